"""Text of unknown origin never steers the terminal that it is printed to."""

from __future__ import annotations

import logging

import pytest
from rich.table import Table
from rich.text import Text

from pipelines.cli import _terminal
from pipelines.cli._terminal import console
from pipelines.cli.main import guarded
from pipelines.errors import SourceError

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


def test_log_lines_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    guarded(lambda: 0, [], debug=False)
    assert logging.lastResort is not None
    record = logging.LogRecord("pipelines", logging.WARNING, "", 1, HOSTILE, None, None)
    assert clean(logging.lastResort.format(record))
    assert _terminal.printable("a\tb\n") == "a\tb\n"
    assert capsys.readouterr().err == ""
