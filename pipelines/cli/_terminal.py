"""Terminal output: consoles, JSON, tables that fit 80 columns, progress bars."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

import orjson
import typer

from pipelines.progress import listening

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table

#: Characters that terminals interpret and JSON need not escape: delete, C1, bidirectional marks.
_ESCAPED = {
    c: f"\\u{c:04x}"
    for c in (0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
#: Exit code that a shell reports for a program ended by SIGPIPE; this one returns it quietly.
EXIT_PIPE = 141
#: Line about Ctrl-C in a command whose results are stored as they are computed.
INTERRUPTED = "interrupted (the same command resumes from what is stored)"
#: Control characters but tab and line feed, and those that reorder text, as visible ones.
_VISIBLE = (
    {c: 0x2400 + c for c in range(32) if chr(c) not in "\t\n"}
    | {0x7F: 0x2421}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
)


def printable(text: str) -> str:
    r"""Text of unknown origin without characters that a terminal would act on.

    >>> printable("\x1b[2Jtitle")
    '␛[2Jtitle'
    """
    return text.translate(_VISIBLE)


def _is_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "utf-8").lower().startswith("utf")


def write_in_any_encoding() -> None:
    """Let standard output and error take all text; children's too.

    A character that the encoding lacks becomes a question mark.
    """
    if not _is_unicode(sys.stdout):
        os.environ["PYTHONIOENCODING"] = f"{sys.stdout.encoding}:replace"
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test captures it
            stream.reconfigure(errors="replace")


def log_printable() -> None:
    """Make log lines that reach the terminal :func:`printable`."""

    class _Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(super().format(record))

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Formatter())


def console(*, stderr: bool = False, markup: bool = False) -> Console:
    """A rich console on stdout or stderr that ends the program quietly on a broken pipe.

    Colour follows the terminal and ``NO_COLOR``; without a terminal the width is 80 columns (or
    ``COLUMNS``), so piped tables look the same everywhere. Control characters of the text are
    shown, not sent: see :func:`printable`. Brackets are text unless ``markup`` is set.
    """
    from rich.console import Console
    from rich.segment import Segment

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            reader_gone()

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            # All output passes here: texts, tables, live lines, bars.
            for segment in super().render(renderable, options):
                text, style, control = segment
                yield segment if control else Segment(printable(text), style)

    return _Console(stderr=stderr, markup=markup, highlight=False, emoji=False)


def reader_gone() -> None:
    """Stop writing to a broken pipe: exit with code 141."""
    # The rest of Python's buffer would fail again when the interpreter closes stdout.
    with suppress(OSError, ValueError):  # stdout is not a file (captured by a test)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(EXIT_PIPE)


def write_json(payload: Any) -> None:
    """Write one JSON document to stdout: two spaces of indent, a final newline.

    In an encoding other than UTF-8 all but ASCII is escaped.
    """
    data = orjson.dumps(
        payload,
        default=str,
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS,
    )
    # Such characters stand within strings only, where an escape means the same.
    text = data.decode().translate(_ESCAPED)
    if not _is_unicode(sys.stdout):
        text = re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], text)
    _write(text)


def write_csv(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to stdout as CSV, with a line of names; all but text and numbers is JSON."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    out = csv.DictWriter(text, names, lineterminator="\n")
    out.writeheader()
    for row in rows:
        out.writerow(
            {
                key: orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
                if isinstance(value, bool | list | tuple | dict)
                else value
                for key, value in row.items()
            }
        )
    _write(text.getvalue())


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        reader_gone()


def show(*parts: str | Table | Callable[[Console], None]) -> None:
    """Print lines, tables, and what functions draw on the console, to stdout."""
    screen = console()
    for part in parts:
        if callable(part):
            part(screen)
        else:
            screen.print(part, soft_wrap=isinstance(part, str))
    _write("")


def table(*columns: str, rows: Iterable[Sequence[Any]] = (), numeric: Sequence[str] = ()) -> Table:
    """A rich table in the house style.

    Cells are text, counts (``1,234``), figures (an object or a mapping with ``value``, ``low`` and
    ``high``: the interval stands below the value) or None (empty).

    Cells wrap rather than lose text when the terminal is narrow; columns named in ``numeric`` are
    right-aligned and never wrap.
    """
    from rich import box
    from rich.table import Table

    out = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for name in columns:
        if name in numeric:
            out.add_column(name, justify="right", no_wrap=True)
        else:
            out.add_column(name, overflow="fold")
    for row in rows:
        out.add_row(*map(_cell, row))
    return out


def _cell(cell: Any) -> Any:
    figure = cell if isinstance(cell, Mapping) else getattr(cell, "__dict__", {})
    if "low" in figure:
        value, low, high = (figure[name] for name in ("value", "low", "high"))
        return f"{value:.3f}\n[{low:.2f}, {high:.2f}]" if value == value else "–"
    return f"{cell:,}" if isinstance(cell, int) else "" if cell is None else cell


def shown_outcomes(counts: Mapping[str, Any]) -> str:
    """Numbers of checks by outcome, as one line; lists are counted.

    >>> shown_outcomes({"passed": 9, "warned": ["posters"], "failed": [], "not_applicable": 2})
    '9 passed, 1 warned, 0 failed, 2 not applicable'
    """
    outcomes = ("passed", "warned", "failed", "not_applicable")
    pairs = ((name, counts[name]) for name in outcomes)
    return ", ".join(
        f"{n if isinstance(n, int) else len(n)} {name.replace('_', ' ')}" for name, n in pairs
    )


def human_bytes(count: int) -> str:
    """A size in binary units.

    >>> human_bytes(0), human_bytes(1536), human_bytes(3 * 1024**3)
    ('0 B', '1.5 KiB', '3.0 GiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_seconds(seconds: float) -> str:
    """A duration in the two largest units.

    >>> human_seconds(42.4), human_seconds(90), human_seconds(3_700)
    ('42 s', '1 min 30 s', '1 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def human_age(moment: str, *, now: datetime | None = None) -> str:
    """Age of an ISO 8601 moment (UTC if it names no zone), in its largest unit.

    >>> human_age("2026-01-01T00:00:00Z", now=datetime(2026, 1, 3, 5, tzinfo=UTC))
    '2 d'
    """
    then = datetime.fromisoformat(moment)
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = max(0, int(((now or datetime.now(UTC)) - then).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


@contextmanager
def progress_bar(
    text: str, *, unit: str = "", disable: bool = False, lines: bool = False
) -> Iterator[None]:
    """A progress bar on stderr of what the work inside says, on a terminal; removed when done.

    It begins as a pulse with ``text``. The unit ``"bytes"`` shows sizes and speed, anything else is
    printed after the counts. Pass the ``--json`` flag as ``disable``. With ``lines`` a log that is
    no terminal gets a line with every new step that comes 2 s after the last one, and one a minute.
    """
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts: list[ProgressColumn] = (
        [DownloadColumn(binary_units=True), TransferSpeedColumn()]
        if unit == "bytes"
        else [MofNCompleteColumn(), TextColumn(unit)]
    )
    screen = console(stderr=True)
    # FORCE_COLOR makes rich take a pipe for a terminal; a bar in a log file helps nobody.
    shown = not disable and screen.is_terminal and screen.file.isatty()
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        *counts,
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not shown,
    ) as bar:
        task = bar.add_task(text, total=None)
        printed, since = "", monotonic()

        def show(step: str, done: int, total: int | None) -> None:
            nonlocal printed, since
            bar.update(task, completed=done, total=total, description=step)
            if not lines or shown or disable:
                return
            if monotonic() < since + (60 if step == printed else 2):
                return
            printed, since = step, monotonic()
            counts = (f" {done:,}" if done else "") + (f" of {total:,}" if total else "")
            print(f"{datetime.now(UTC):%H:%M:%S} {step}{counts}", file=screen.file, flush=True)

        with listening(show):
            yield
