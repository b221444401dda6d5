"""Text of unknown origin never steers the terminal that it is printed to."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from orchestration.cli import Plan, _Steps
from pipelines.cli import _terminal
from pipelines.cli._terminal import console, progress_bar
from pipelines.cli.main import guarded
from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.sources import ingest
from pipelines.store import Store
from pipelines.worlds import prepare_world

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\rtitle\u202e[bold]"


def refuse() -> None:
    raise SourceError(f"the header is {HOSTILE}", where=HOSTILE, hint=HOSTILE)


def crash() -> None:
    raise ValueError(HOSTILE)


def clean(text: str) -> bool:
    """Return True if no control character other than line ends and tabs is left."""
    return not any(c in text for c in "\x1b\x07\x9b\x7f\r\u202e")


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("call", [refuse, crash])
def test_error_lines_and_tracebacks_are_printable(
    capsys: pytest.CaptureFixture[str], call: object, debug: bool
) -> None:
    assert guarded(call, [], debug=debug)  # type: ignore[arg-type]
    output = capsys.readouterr().err
    assert clean(output)
    assert "␛[2J" in output


def test_tables_and_texts_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    grid = Table("a")
    grid.add_row(Text(HOSTILE))
    screen = console()
    screen.print(grid)
    screen.print(HOSTILE)
    output = capsys.readouterr().out
    assert clean(output)
    assert output.count("␛[2J") == 2


def test_styles_still_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for screen, text in ((console(markup=True), "[bold]x[/]"), (console(), "[bold]")):
        screen.file = out = io.StringIO()
        screen.print(text)
        assert ("\x1b[1m" in out.getvalue()) is (text == "[bold]x[/]")
    screen.print("x", style="bold")
    assert "[bold]" in out.getvalue()
    assert "\x1b[1m" in out.getvalue()


def test_progress_stages_are_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Screen()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(HOSTILE):
        advance(HOSTILE, 1, 2)
    # The bar itself moves the cursor; nothing of the text does.
    assert "\x1b]0;" not in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


def test_steps_show_brackets_and_escapes_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    steps = _Steps(quiet=False)
    steps.step("failed", "a[/]b", 1.0, HOSTILE)
    steps.unread(Plan([], [], [], ["x[/].json", HOSTILE], [HOSTILE]))
    output = capsys.readouterr().err
    assert clean(output)
    assert "a[/]b" in output
    assert "x[/].json" in output


def test_log_lines_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    guarded(lambda: 0, [], debug=False)
    assert logging.lastResort is not None
    record = logging.LogRecord("pipelines", logging.WARNING, "", 1, HOSTILE, None, None)
    assert clean(logging.lastResort.format(record))
    assert _terminal.printable("a\tb\n") == "a\tb\n"
    assert capsys.readouterr().err == ""


def test_header_of_a_csv_is_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "movielens" / "ml-25m"
    folder.mkdir(parents=True)
    for name in ("movies", "ratings", "links", "tags"):
        (folder / f"{name}.csv").write_text(f"movieId,{HOSTILE}\n1,2\n")
    tree = Settings(world={"folder": tmp_path}, runtime={"home": tmp_path / "home"})  # type: ignore[arg-type]
    world = prepare_world(tree)
    code = guarded(
        lambda: ingest("movielens", world, Store(tmp_path / "home"), tree), [], debug=False
    )
    output = capsys.readouterr().err
    assert code == 3
    assert clean(output)
    assert "␛[2J" in output
