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
#: 1990-01-01 and 2035-12-31, the bounds of the checks `rated_from` and `rated_to`: another time
#: counts in another unit, or is nonsense.
_FIRST_SECOND, _LAST_SECOND = 631_152_000, 2_082_758_399


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


class Fault(NamedTuple):
    """A condition for which a row is rejected."""

    #: Reason code.
    reason: str
    #: Column of the field at fault.
    column: str
    #: Whether a row has it.
    condition: pl.Expr


def first_fault(*faults: Fault) -> pl.Expr:
    """The first fault of a row: ``reason`` (null if it has none), ``column``, ``value``."""
    import polars as pl

    first = pl.coalesce(pl.when(f.condition).then(pl.lit(n)) for n, f in enumerate(faults))
    value = pl.lit(None, dtype=pl.String)
    for n, fault in enumerate(faults):
        value = pl.when(first == n).then(pl.col(fault.column).cast(pl.String)).otherwise(value)
    names = {n: (fault.reason, fault.column) for n, fault in enumerate(faults)}
    reasons, columns = ({n: pair[k] for n, pair in names.items()} for k in (0, 1))
    return pl.struct(
        reason=first.replace_strict(reasons, return_dtype=pl.String),
        column=first.replace_strict(columns, return_dtype=pl.String),
        value=value,
    )


def bad_time(column: str, per_second: int = 1, *, zero: bool = False) -> Fault:
    """The fault of a time beyond 1990 to 2035, in units of which a second has so many.

    With ``zero``, 0 is no fault: exports in MovieLens' layout write it where no time is known.
    """
    import polars as pl

    first, last = _FIRST_SECOND * per_second, (_LAST_SECOND + 1) * per_second - 1
    within = pl.col(column).is_between(first, last)
    if zero:
        within |= pl.col(column) == 0
    return Fault("bad_timestamp", column, ~within)


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

    def extend(self, frame: pl.DataFrame) -> None:
        """Reject many rows: ``file``, ``line`` (int), ``reason``, ``text``, ``field``, ``value``.

        The last two may be absent.
        """
        import polars as pl

        if not frame.height:
            return
        absent = [pl.lit(None).alias(name) for name in ("field", "value") if name not in frame]
        frame = (
            frame.with_columns(absent)
            .select(pl.col(name).cast(dtype) for name, dtype in _schema().items())
            .with_columns(_cut_column("text").fill_null(""), _cut_column("value"))
        )
        for file, reason, count in frame.group_by("file", "reason").len().iter_rows():
            self._counts.setdefault(file, Counter())[reason] += count
        first = frame.sort("file", "line").group_by("file", maintain_order=True).head(3)
        for file, *row in first.iter_rows():
            self._note(file, Rejection(*row))
        self._write(frame)

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

    def forget(self, file: str) -> None:
        """Drop the rejected rows of a file, which is read anew; few enough not to be spilled."""
        self._rows = [row for row in self._rows if row[0] != file]
        self._counts.pop(file, None)
        self._first.pop(file, None)

    def batches(self, rows: int = _SPILL_ROWS) -> Iterator[pl.DataFrame]:
        """All rejected rows in the order file, line, reason, text."""
        import polars as pl

        self._spill()
        if not self._parts:
            return
        # The streaming engine sorts out of core, so a file of nothing but faults fits too.
        merged = self._folder / "rejects-sorted.parquet"
        ordered = pl.scan_parquet(self._parts, glob=False).sort("file", "line", "reason", "text")
        with scratch_errors(self._folder):
            ordered.sink_parquet(merged)
        import pyarrow.parquet as pq

        with pq.ParquetFile(merged) as file:
            for batch in file.iter_batches(batch_size=rows):
                frame = pl.from_arrow(batch)
                assert isinstance(frame, pl.DataFrame)
                yield frame
        merged.unlink()

    def _note(self, file: str, row: Rejection) -> None:
        first = self._first.setdefault(file, [])
        if len(first) < 3 or row.line < first[-1].line:
            first.append(row)
            first.sort(key=lambda rejection: rejection[:3])
            del first[3:]

    def _spill(self) -> None:
        import polars as pl

        if self._rows:
            rows, self._rows = self._rows, []
            self._write(pl.DataFrame(rows, schema=_schema(), orient="row"))

    def _write(self, frame: pl.DataFrame) -> None:
        part = self._folder / f"rejects-{len(self._parts):06d}.parquet"
        with scratch_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(part)
        self._parts.append(part)


def _schema() -> dict[str, pl.DataType]:
    import polars as pl

    names = ("file", "line", "reason", "text", "field", "value")
    return {name: pl.Int64() if name == "line" else pl.String() for name in names}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def _cut_column(name: str) -> pl.Expr:
    """:func:`_cut` of a column."""
    import polars as pl

    text, size = pl.col(name), pl.col(name).str.len_chars()
    cut = pl.format("{}… ({} characters)", text.str.slice(0, MAX_TEXT), size)
    return pl.when(size > MAX_TEXT).then(cut).otherwise(text).alias(name)
