"""Output in encodings other than UTF-8: no command fails, and JSON loses nothing."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app, guarded
from pipelines.cli.options import console, show, table, write_json

TITLE = "Amélie · 3½ ★ → 天気"
Run = Callable[[Callable[[], object]], str]


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")


@pytest.fixture(params=["ascii", "latin-1", "cp1252", "utf-8"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command with an output of one encoding; the text that a reader decodes."""

    def written(call: Callable[[], object]) -> str:
        for name in ("stdout", "stderr"):
            stream = io.TextIOWrapper(io.BytesIO(), encoding=request.param)
            monkeypatch.setattr(sys, name, stream)
        code = guarded(call, [], debug=True)
        sys.stdout.flush()
        assert code == 0, sys.stderr.buffer.getvalue()  # type: ignore[attr-defined]
        content: bytes = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
        return content.decode(request.param)

    return written


def test_tables_and_texts_are_printed_in_every_encoding(run: Run) -> None:
    rows = table("Ⅻ films", rows=[[TITLE]])
    shown = run(lambda: show(rows))
    assert "lie" in shown
    assert len({len(line) for line in shown.splitlines()[1:]}) <= 2


def test_json_is_the_same_in_every_encoding(run: Run) -> None:
    assert json.loads(run(lambda: write_json({"title": TITLE}))) == {"title": TITLE}


def test_characters_without_an_encoding_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    guarded(lambda: console().print("Amélie → 1"), [], debug=True)
    stream.flush()
    assert stream.buffer.getvalue() == b"Am?lie ? 1\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["personas", "release", "models", "doctor", "config"])
def test_help_is_printed_in_ascii(command: str) -> None:
    shown = CliRunner(charset="ascii").invoke(app, [command, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Options" in shown.output
