"""The list of rejected rows: counted, in bounded memory, spilled to disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipelines.scratch import scratch_errors

if TYPE_CHECKING:
    import polars as pl

#: Longest text of a rejected row that is kept (characters); the size of a longer one is added.
MAX_TEXT = 500
#: Longest value that a message shows (characters).
_SHOWN = 80
_SPILL_ROWS = 50_000


class Rejection(NamedTuple):
    """A rejected row of a file."""

    line: int
    #: Reason code.
    reason: str
    #: The row as read, cut.
    text: str
    #: Name of the field at fault, and its value (None if the field is absent); None if the row as a
    #: whole is at fault.
    field: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        """Line, reason, and the field with its value; of other faults, the beginning of the row.

        >>> str(Rejection(7, "bad_timestamp", "…", "timestamp", "-5364000000"))
        "line 7 bad_timestamp: timestamp is '-5364000000'"
        >>> str(Rejection(1, "bad_id", "…", "parent_asin"))
        'line 1 bad_id: parent_asin is missing'
        """
        if self.field is None:
            shown = " ".join(self.text[:_SHOWN].split())
        else:
            value = "missing" if self.value is None else repr(self.value[:_SHOWN])
            shown = f"{self.field} is {value}"
        return f"line {self.line} {self.reason}: {shown}"


class RejectLog:
    """Rejected rows of one source.

    A row (file, line) is rejected once, for the first reason found. Many rows are spilled to
    ``folder``.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = RejectLog(Path(folder))
    ...     log.add("ratings.csv", 7, "bad_rating", "1,2,nine,3")
    ...     log.count("ratings.csv"), log.reasons("ratings.csv")
    (1, {'bad_rating': 1})
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[tuple[str, int, str, str, str | None, str | None]] = []
        self._parts: list[Path] = []
        self._counts: dict[str, Counter[str]] = {}
        self._first: dict[str, list[Rejection]] = {}

    def add(
        self,
        file: str,
        line: int,
        reason: str,
        text: str,
        field: str | None = None,
        value: str | None = None,
    ) -> None:
        """Reject one row."""
        text, value = _cut(text), None if value is None else _cut(value)
        self._note(file, Rejection(line, reason, text, field, value))
        self._counts.setdefault(file, Counter())[reason] += 1
        self._rows.append((file, line, reason, text, field, value))
        if len(self._rows) >= _SPILL_ROWS:
            self._spill()

    def count(self, file: str | None = None) -> int:
        """Rejected rows of one file, or of all."""
        files = self._counts if file is None else [file]
        return sum(sum(self._counts.get(f, Counter()).values()) for f in files)

    def reasons(self, file: str | None = None) -> Mapping[str, int]:
        """Rejected rows by reason, of one file or of all; reasons in alphabetical order."""
        total: Counter[str] = Counter()
        for name, counts in self._counts.items():
            if file is None or name == file:
                total.update(counts)
        return dict(sorted(total.items()))

    def first(self, file: str) -> list[Rejection]:
        """Up to three rejected rows of a file with the lowest lines."""
        return list(self._first.get(file, []))

    def batches(self, rows: int = _SPILL_ROWS) -> Iterator[pl.DataFrame]:
        """All rejected rows in the order file, line, reason, text."""
        import polars as pl

        self._spill()
        if self._parts:
            # The streaming engine sorts out of core, so a file of nothing but faults fits too.
            parts = pl.scan_parquet(self._parts, glob=False).sort("file", "line", "reason", "text")
            with scratch_errors(self._folder):
                yield from parts.collect_batches(chunk_size=rows, maintain_order=True)

    def _note(self, file: str, row: Rejection) -> None:
        first = self._first.setdefault(file, [])
        if len(first) < 3 or row.line < first[-1].line:
            first.append(row)
            first.sort(key=lambda rejection: rejection[:3])
            del first[3:]

    def _spill(self) -> None:
        import polars as pl

        if not self._rows:
            return
        part = self._folder / f"rejects-{len(self._parts):06d}.parquet"
        frame = pl.DataFrame(self._rows, schema=_schema(), orient="row")
        with scratch_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(part)
        self._parts.append(part)
        self._rows = []


def _schema() -> dict[str, pl.DataType]:
    import polars as pl

    names = ("file", "line", "reason", "text", "field", "value")
    return {name: pl.Int64() if name == "line" else pl.String() for name in names}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"
