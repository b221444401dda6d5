"""Separated text in bounded memory, with the exact line of every row.

Bulk readers are fast but lose what a rejection needs: DuckDB's ``store_rejects`` lets an unclosed
quote swallow the rest of the file as a single row, counts lines wrong after a quoted line break
and replaces bytes that are not UTF-8. So lines come first, in blocks of a few MiB: those without a
quote are split in bulk, records with one by themselves (they may span lines), and each column is
one cast. Cells that a cast does not take are read by :mod:`values`, each distinct one once. A row
is rejected for the first check that is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.sources._rejects import Fault, first_fault
from pipelines.sources.formats import values
from pipelines.sources.formats.files import Original
from pipelines.sources.formats.lines import (
    MAX_LINE,
    MAX_RECORD,
    decoded,
    line_array,
    line_blocks,
    line_starts,
    lines_at,
)

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

__all__ = ["SEPARATORS", "Batch", "Column", "DelimitedReader", "plain"]

#: Separators of files that people save.
SEPARATORS = ("\t", "::", ";", "|", ",")
_BLOCK = 8 << 20
#: A quoted field may span this many lines; past them its quote counts as never closed.
_MAX_SPAN = 20
#: Bytes of rows without any content, as spreadsheets write them below a table.
_BLANK = b", \t\r\n"
_BOM = b"\xef\xbb\xbf"
#: Stands for a separator of several characters where one is needed; no number has it.
_UNIT = "\x1f"
#: Bytes of nothing but numbers that Arrow takes at a time: they stay in the processor's cache.
_PIECE = 256 << 10


class _Fault(Enum):
    OPEN = "a quoted field does not end"
    BROKEN = "text after a closing quote"
    SPLIT = "a carriage return in an unquoted field"


OPEN: Final = _Fault.OPEN
BROKEN: Final = _Fault.BROKEN
SPLIT: Final = _Fault.SPLIT


def split_record(record: str, separator: str = ",") -> list[str] | _Fault:
    """Split by RFC 4180; a quote inside an unquoted field is a plain character.

    >>> split_record('7,"Good, Bad","a ""b"" c"')
    ['7', 'Good, Bad', 'a "b" c']
    >>> split_record('7;5" disk;', ";")
    ['7', '5" disk', '']
    >>> split_record('7,"never closed').name
    'OPEN'
    >>> split_record('7,"closed"early').name
    'BROKEN'
    """
    fields: list[str] = []
    position, end = 0, len(record)
    while True:
        if position < end and record[position] == '"':
            parts = []
            position += 1
            while True:
                quote = record.find('"', position)
                if quote < 0:
                    return OPEN
                doubled = record.startswith('"', quote + 1)
                parts.append(record[position : quote + doubled])
                position = quote + 1 + doubled
                if not doubled:
                    break
            if position < end and not record.startswith(separator, position):
                return BROKEN
            fields.append("".join(parts))
        else:
            stop = record.find(separator, position)
            stop = end if stop < 0 else stop
            field = record[position:stop]
            if "\n" in field or "\r" in field:
                return SPLIT
            fields.append(field)
            position = stop
        if position >= end:
            return fields
        position += len(separator)


def plain(name: str) -> str:
    """A column's name without case, separators and RecBole's type.

    >>> plain("User-ID"), plain("movie_title:token_seq")
    ('userid', 'movietitle')
    """
    return "".join(c for c in name.partition(":")[0].lower() if c.isalnum())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file: its header, the name it gets, and what it holds."""

    header: str
    name: str
    #: ``text``, the type of its numbers, or ``flag`` (0 or 1).
    kind: Literal["text", "int", "float", "flag"] = "text"
    #: Value of a cell that a cast does not take (of a flag: of any); raises
    #: :class:`values.UnreadableError`.
    parse: Callable[[str], Any] = str
    #: Reason of a row whose cell can't be read.
    reason: str = ""
    #: Whether a cell that stands for nothing is a null rather than a fault.
    optional: bool = False

    def dtype(self) -> pl.DataType:
        """The column's polars type."""
        import polars as pl

        types = {"text": pl.String(), "float": pl.Float64()}
        return types.get(self.kind, pl.Int64())

    def reads(self, cell: str) -> bool:
        """Whether the cell is one of the column."""
        try:
            self.parse(cell)
        except values.UnreadableError:
            return self.optional and values.is_missing(cell)
        return True


def integer(header: str, name: str, reason: str, *, optional: bool = False) -> Column:
    """Whole numbers that fit 64 bits; anything else is rejected for ``reason``."""
    return Column(header, name, "int", values.whole_number, reason, optional)


def number(header: str, name: str, reason: str) -> Column:
    """Decimal numbers; anything else is rejected for ``reason``."""
    return Column(header, name, "float", values.number, reason)


def seconds(header: str, name: str, reason: str) -> Column:
    """Times in seconds since 1970, or dates in ISO 8601; anything else is rejected."""
    return Column(header, name, "int", lambda cell: values.timestamp(cell, 1), reason)


def typed(
    cells: pl.Series, parse: Callable[[str], Any], dtype: pl.DataType, *, cast: bool = True
) -> pl.Series:
    """Cells as numbers: plain ones by a cast, each other one by ``parse``; null if neither."""
    import polars as pl

    result = cells.cast(dtype, strict=False) if cast else pl.Series(cells.name, [None], dtype)
    if not cast:
        result = result.new_from_index(0, len(cells))
    if dtype.is_float():
        result = result.set(~result.is_finite(), None)
    odd = cells.filter(result.is_null() & cells.is_not_null()).unique()
    parsed: dict[str, Any] = {}
    for cell in odd:
        try:
            parsed[cell] = parse(cell)
        except values.UnreadableError:
            parsed[cell] = None
    if not parsed:
        return result
    others = cells.replace_strict(
        list(parsed), list(parsed.values()), default=None, return_dtype=dtype
    )
    return pl.select(pl.coalesce(result, others)).to_series().rename(cells.name)


@dataclass(slots=True)
class Batch:
    """Some rows of a file, in the order of the file."""

    #: The columns and ``line`` (int64, 1-based line of the row's start).
    frame: pl.DataFrame
    #: Headers of the columns.
    headers: Mapping[str, str]
    _texts: Callable[[], pl.Series]

    def texts(self, mask: pl.Series) -> pl.Series:
        """The rows under the mask as they stand in the file, without the line end."""
        return self._texts().filter(mask)


class DelimitedReader:
    r"""Rows of one file of separated text; iterate once per pass.

    Rejected are, by reason: ``wrong_columns``, ``blank_line``, ``bad_quotes`` (a quoted field that
    does not end, or text after its end), ``bare_return`` (a carriage return inside the line),
    ``invalid_utf8``, ``too_long``, and the reason of the first column whose cell can't be read.

    Parameters
    ----------
    original, columns
        The file, and its columns; in order where it has no header.
    reject
        Called with frames ``file, line, reason, text, field, value``; the last two are header and
        content of the cell at fault, if it is one cell's.
    separator, quoted
        One or more characters; whether fields may be quoted (RFC 4180).
    headed
        Whether the first line names the columns. They may stand in another order, in other case,
        with ``_``, behind another of :data:`SEPARATORS`, and among columns that are not read.
    encoding
        ``utf-8`` or ``latin-1``.
    lenient
        Whether lines that are not UTF-8 are read as Windows-1252, and ``\"`` stands for a quote.
    block
        Bytes read at a time; for tests.

    ``rows_read`` counts data rows met so far, parsed or rejected; blank lines at the end of the
    file are none.
    """

    def __init__(
        self,
        original: Original,
        columns: Sequence[Column],
        reject: Callable[[pl.DataFrame], None],
        *,
        separator: str = ",",
        quoted: bool = True,
        headed: bool = True,
        encoding: Literal["utf-8", "latin-1"] = "utf-8",
        lenient: bool = False,
        block: int = _BLOCK,
    ) -> None:
        self.original = original
        self.columns = tuple(columns)
        self.headers = {column.name: column.header for column in columns}
        self.rows_read = 0
        self._reject = reject
        self._separator = separator
        self._quoted = quoted
        self._headed = headed
        self._encoding = encoding
        self._lenient = lenient
        self._block = block
        self._line = 1
        #: Columns in the order of the file, others among them.
        self._layout = self.columns

    def __iter__(self) -> Iterator[Batch]:
        """Parsed rows, block by block; others are rejected on the way.

        Raises :class:`SourceError` if the file is empty or unreadable, its header differs, or it is
        not text.
        """
        self.rows_read, self._line = 0, 1
        tail, begun = b"", False
        blank = _BLANK if self._quoted else b" \t\r\n"
        for done, block in line_blocks(self.original, self._block, blank):
            advance(f"reading {self.original.name}", done, self.original.size)
            body = tail + bytes(block)
            if not begun:
                body, begun = self._begin(body), True
            if self._encoding == "latin-1" and not body.isascii():
                body = body.decode("latin-1").encode()
            batch, used = self._parse(body, final=len(body) > MAX_RECORD)
            tail = body[used:]
            if batch is not None and batch.frame.height:
                yield batch
        if not begun:
            self._begin(b"")
        if tail and (batch := self._parse(tail, final=True)[0]) is not None and batch.frame.height:
            yield batch

    def lines(self, numbers: np.ndarray[Any, Any]) -> Iterator[tuple[int, str]]:
        """Text of the lines with these sorted numbers, in another pass over the file."""
        return lines_at(self.original, numbers, self._block, self._encoding)

    def _begin(self, body: bytes) -> bytes:
        """The body without byte order mark and header."""
        headers = [column.header for column in self.columns]
        expected = self._separator.join(headers)
        if not body:
            what = f"expected {'header' if self._headed else 'lines of'} {expected}"
            raise SourceError("the file is empty", where=self.original.name, hint=what)
        body = body.removeprefix(_BOM)
        if not self._headed:
            return body
        end = body.find(b"\n") + 1 or len(body)
        header = body[:end].decode("utf-8", "replace").rstrip("\r\n")
        if split_record(header, self._separator) != headers and not self._arrange(header):
            raise SourceError(
                f"the header is not the expected one: expected {expected}, found {header[:200]}",
                where=f"{self.original.name}:1",
                hint="is this the published file?",
                details={"expected": expected, "found": header[:500]},
            )
        self._line = 2
        return body[end:]

    def _arrange(self, header: str) -> bool:
        """Take order and separator from a header; False if a column is absent or there twice."""
        if not header.replace("\t", "").isprintable():
            return False  # another encoding, or no text at all
        by_name = {plain(column.header): column for column in self.columns}
        for separator in dict.fromkeys((self._separator, *SEPARATORS)):
            fields = split_record(header, separator)
            if not isinstance(fields, list):
                continue
            names = [plain(field) for field in fields]
            if sorted(name for name in names if name in by_name) == sorted(by_name):
                self._separator = separator
                self._layout = tuple(
                    by_name.get(name) or Column(field, f"unread {n}")
                    for n, (name, field) in enumerate(zip(names, fields, strict=True))
                )
                return True
        return False

    def _parse(self, body: bytes, *, final: bool) -> tuple[Batch | None, int]:
        """Parse whole lines; return the rows and how many bytes were used."""
        if not body:
            return None, 0
        numeric = all(column.kind in ("int", "float") for column in self._layout)
        numbers = self._numbers(body) if numeric else None
        return (numbers, len(body)) if numbers is not None else self._lines(body, final=final)

    def _numbers(self, body: bytes) -> Batch | None:
        """Rows of a block of nothing but plain numbers, or None if it holds anything else."""
        import numpy as np
        import polars as pl
        import pyarrow as pa
        from pyarrow import csv

        if body.translate(None, f"0123456789.{self._separator}\r\n".encode()):
            return None
        # `bytes.count` of a frequent byte is ten times slower than this.
        data = np.frombuffer(body, dtype=np.uint8)
        ends, returns = data == 10, data == 13
        if returns[-1] or np.greater(returns[:-1], ends[1:]).any():
            return None  # a carriage return on its own: Arrow would end the line there
        count = int(np.count_nonzero(ends)) + (not body.endswith(b"\n"))
        separator = self._separator if len(self._separator) == 1 else _UNIT
        table = body if separator != _UNIT else body.replace(self._separator.encode(), b"\x1f")
        types = {"int": pa.int64(), "float": pa.float64()}
        try:
            rows = csv.read_csv(
                pa.BufferReader(table),
                csv.ReadOptions(column_names=[c.name for c in self._layout], block_size=_PIECE),
                csv.ParseOptions(delimiter=separator, quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types={c.name: types[c.kind] for c in self.columns}, null_values=[""]
                ),
            )
        except pa.ArrowInvalid:
            return None
        required = [c.name for c in self.columns if not c.optional]
        if rows.num_rows != count or any(rows[name].null_count for name in required):
            return None
        numbers = np.arange(self._line, self._line + count, dtype=np.int64)
        self._line += count
        self.rows_read += count
        return Batch(
            pl.DataFrame(rows).select(*self.headers, line=pl.Series(numbers)),
            self.headers,
            lambda: decoded(line_array(body, line_starts(body))).str.strip_chars_end("\r\n"),
        )

    def _lines(self, body: bytes, *, final: bool) -> tuple[Batch | None, int]:
        """Rows of a block, by line."""
        import numpy as np
        import polars as pl

        offsets = line_starts(body)
        count = len(offsets) - 1
        texts = self._decoded(line_array(body, offsets))
        width, separator = len(self._layout), pl.lit(self._separator)
        text = pl.col("text")
        empty = (text.str.strip_chars() == "") & ~text.str.contains(separator, literal=True)
        frame = pl.DataFrame({"line": np.arange(count) + self._line, "text": texts}).with_columns(
            reason=pl.when(pl.Series(np.diff(offsets) > MAX_LINE))
            .then(pl.lit("too_long"))
            .when(text.is_null())
            .then(pl.lit("invalid_utf8"))
            .when(text.str.contains('"', literal=True) & self._quoted)
            .then(pl.lit("quoted"))
            .when(text.str.contains("\r", literal=True))
            .then(pl.lit("bare_return"))
            .when(empty)
            .then(pl.lit("blank_line"))
            .when(text.str.count_matches(separator, literal=True) != width - 1)
            .then(pl.lit("wrong_columns"))
        )
        names = [column.name for column in self._layout]
        quoted = np.flatnonzero((frame["reason"] == "quoted").fill_null(value=False).to_numpy())
        records: list[tuple[Any, ...]] = []
        faults: list[tuple[int, str, str]] = []
        alone = np.ones(count, dtype=np.bool_)
        keep, resume = count, 0
        for n in quoted.tolist():
            if n < resume:
                continue
            span, cells, record = self._record(body, offsets, n, final=final)
            if span == 0:
                keep = n
                break
            alone[n : n + span] = False
            resume = n + span
            if isinstance(cells, str):
                faults.append((n + self._line, cells, record))
            else:
                records.append((*cells, n + self._line, record))
        spanned = int(np.count_nonzero(~alone[:keep])) - len(records) - len(faults)
        alone[keep:] = False
        lines = frame.filter(pl.Series(alone))
        wrong = lines.filter(pl.col("reason").is_not_null())
        if wrong.height or faults:
            raw = {
                n: body[offsets[n - self._line] : offsets[n - self._line + 1]]
                for n in wrong["line"]
            }
            shown = [r.decode("utf-8", "replace").rstrip("\r\n") for r in raw.values()]
            rejected = wrong.select("line", "reason").with_columns(
                text=pl.Series(shown, dtype=pl.String)
            )
            schema = {"line": pl.Int64, "reason": pl.String, "text": pl.String}
            more = pl.DataFrame(faults, schema=schema, orient="row")
            self._refuse(pl.concat([rejected.cast({"line": pl.Int64}), more]))
        split = pl.col("text").str.split_exact(self._separator, width - 1)
        rows = (
            lines.filter(pl.col("reason").is_null())
            .select("line", "text", cells=split.struct.rename_fields(names))
            .unnest("cells")
            .select(*names, pl.col("line").cast(pl.Int64), "text")
        )
        if records:
            schema = {**dict.fromkeys(names, pl.String), "line": pl.Int64, "text": pl.String}
            rows = pl.concat([rows, pl.DataFrame(records, schema=schema, orient="row")]).sort(
                "line"
            )
        self._line += keep
        self.rows_read += keep - spanned
        return self._typed(rows), int(offsets[keep])

    def _decoded(self, raw: Any) -> pl.Series:
        """Lines as text without their ends; null where one can't be read."""
        import polars as pl

        texts = decoded(raw)
        if self._lenient and texts.null_count():
            others = [
                line.decode("cp1252", "replace") if text is None else None
                for text, line in zip(texts, raw.to_pylist(), strict=True)
            ]
            texts = pl.select(pl.coalesce(texts, pl.Series(others, dtype=pl.String))).to_series()
        return texts.str.strip_suffix("\n").str.strip_suffix("\r")

    def _record(
        self, body: bytes, offsets: np.ndarray[Any, Any], n: int, *, final: bool
    ) -> tuple[int, list[str] | str, str]:
        """The record at line ``n``: lines (0 if more bytes are needed), cells or reason, text."""
        count = len(offsets) - 1
        first, reason = "", "bad_quotes"
        for span in range(1, _MAX_SPAN + 1):
            if n + span > count:
                return (1 if final else 0), reason, first
            raw = body[offsets[n] : offsets[n + span]]
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                if not self._lenient:
                    break
                text = raw.decode("cp1252", "replace")
            text = text.removesuffix("\n").removesuffix("\r")
            first = first or text
            cells = split_record(text, self._separator)
            if self._lenient and isinstance(cells, _Fault) and r"\"" in text:
                cells = split_record(text.replace(r"\"", '""'), self._separator)
            if cells is OPEN:
                continue
            if not isinstance(cells, list):
                return 1, "bare_return" if cells is SPLIT and span == 1 else reason, first
            complete = len(cells) == len(self._layout)
            # A quote that closes lines later, but not into a whole row, was never opened on
            # purpose: the line alone is at fault, and the following ones are read anew.
            if span > 1 and not (
                complete and all(c.reads(cell) for c, cell in zip(self._layout, cells, strict=True))
            ):
                return 1, reason, first
            return span, cells if complete else "wrong_columns", text
        return 1, reason, first

    def _typed(self, rows: pl.DataFrame) -> Batch | None:
        """Rows with typed columns; those with a cell that can't be read are rejected."""
        import polars as pl

        if not rows.height:
            return None
        columns, faults, marks = [], [], {}
        for column in self.columns:
            if column.kind == "text":
                columns.append(rows[column.name])
                continue
            cells = rows[column.name]
            cast = column.kind != "flag"
            result = typed(cells, column.parse, column.dtype(), cast=cast)
            bad = result.is_null()
            if column.optional and bad.any():
                bad &= ~cells.str.strip_chars().str.to_lowercase().is_in(sorted(values.MISSING))
            columns.append(result)
            if bad.any():
                marks[f"bad {column.name}"] = bad
                faults.append(Fault(column.reason, column.name, pl.col(f"bad {column.name}")))
        frame = pl.DataFrame([*columns, rows["line"]])
        texts = rows["text"]
        if faults:
            marked = rows.with_columns(**marks)
            bad = marked.select(bad=pl.any_horizontal(list(marks)))["bad"]
            fault = marked.filter(bad).select("line", "text", fault=first_fault(*faults))
            self._refuse(
                fault.unnest("fault").with_columns(field=pl.col("column").replace(self.headers))
            )
            frame, texts = frame.filter(~bad), texts.filter(~bad)
        return Batch(frame, self.headers, lambda: texts)

    def _refuse(self, rows: pl.DataFrame) -> None:
        import polars as pl

        self._reject(rows.with_columns(file=pl.lit(self.original.name)))
