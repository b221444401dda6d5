"""Strict CSV in bounded memory, with the exact line of every row.

Bulk CSV readers are fast but lose what a rejection needs. DuckDB's ``store_rejects``, for
one, lets an unclosed quote swallow the rest of the file as a single row, counts lines wrong
after a quoted line break, lists some rows twice and replaces bytes that are not UTF-8. So
lines are found first, in blocks of a few MiB; the lines of a block that match the table's
plain form (nearly always all of them) are parsed in bulk by Arrow, and only the others one
by one.

:class:`DelimitedReader` reads text without quoting, such as MovieLens' ``::`` and tab separated
files: a line is a row, so that a fault in one row can't reach into the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.sources.formats import values
from pipelines.sources.formats.files import MadeStream, Original, Stream
from pipelines.sources.formats.lines import (
    MAX_LINE,
    MAX_RECORD,
    content_end,
    decoded,
    line_array,
    line_starts,
    lines_at,
)

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow

__all__ = ["Batch", "CsvReader"]


_BLOCK = 8 << 20
#: Stands for a separator of several characters where one is needed; no text has it.
_UNIT = "\x1f"


def latin1(original: Original) -> Original:
    """The same file as UTF-8: its bytes are ISO-8859-1, in which every byte is a character."""

    def opened() -> Stream:
        return _Latin1(original.open())

    return replace(original, open=opened)


class _Latin1(MadeStream):
    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        return data if data.isascii() else data.decode("latin-1").encode()


class _Fault(Enum):
    OPEN = "a quoted field does not end"
    BROKEN = "text after a closing quote"
    SPLIT = "a carriage return in an unquoted field"


OPEN: Final = _Fault.OPEN
BROKEN: Final = _Fault.BROKEN
SPLIT: Final = _Fault.SPLIT


@dataclass(frozen=True, slots=True)
class RowFault:
    """Reason for rejecting a row: a short code such as ``bad_rating``."""

    reason: str
    #: Header and content of the field at fault, if it is one field's.
    field: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of value of a column."""

    #: Regular expression (Rust syntax) of the form that Arrow parses to the same value as ``parse``
    #: does.
    plain: str
    #: Value of a field; raises :class:`values.UnreadableError`.
    parse: Callable[[str], Any]
    #: Reason of a row whose field can't be parsed.
    reason: str
    #: Whether an empty field is a null rather than a fault.
    optional: bool
    #: Whether it holds free text.
    text: bool
    type_name: Literal["int64", "float64", "string"]

    def polars(self) -> pl.DataType:
        """The column's polars type."""
        import polars as pl

        kinds = {"int64": pl.Int64(), "float64": pl.Float64(), "string": pl.String()}
        return kinds[self.type_name]

    def arrow(self) -> pyarrow.DataType:
        """The column's Arrow type."""
        import pyarrow as pa

        kinds = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
        return kinds[self.type_name]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file: its header, the name it gets, and what it holds."""

    header: str
    name: str
    kind: Kind


def integer(reason: str, *, optional: bool = False) -> Kind:
    """Whole numbers that fit 64 bits; anything else is rejected for ``reason``."""
    plain = "[0-9]{0,18}" if optional else "[0-9]{1,18}"
    return Kind(plain, _optional(values.whole_number, optional), reason, optional, False, "int64")


def number(reason: str) -> Kind:
    """Decimal numbers; anything else is rejected for ``reason``."""
    plain = r"[0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9}"
    return Kind(plain, values.number, reason, False, False, "float64")


def seconds(reason: str) -> Kind:
    """Times in seconds since 1970, or dates in ISO 8601; anything else is rejected."""
    return Kind(
        "[0-9]{1,18}", lambda field: values.timestamp(field, 1), reason, False, False, "int64"
    )


def text() -> Kind:
    """Free text, quoted or not, kept as it is."""
    plain = r'[^",\r\n]*|"(?:[^"\r\n]|"")*"'
    return Kind(plain, lambda field: field, "", False, True, "string")


def _optional(parse: Callable[[str], Any], optional: bool) -> Callable[[str], Any]:
    return lambda field: None if optional and values.is_missing(field) else parse(field)


def split_record(record: str) -> list[str] | _Fault:
    """Split by RFC 4180; a quote inside an unquoted field is a plain character.

    >>> split_record('7,"Good, Bad","a ""b"" c"')
    ['7', 'Good, Bad', 'a "b" c']
    >>> split_record('7,5" disk,')
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
            if position < end and record[position] != ",":
                return BROKEN
            fields.append("".join(parts))
        else:
            comma = record.find(",", position)
            comma = end if comma < 0 else comma
            field = record[position:comma]
            if "\n" in field or "\r" in field:
                return SPLIT
            fields.append(field)
            position = comma
        if position >= end:
            return fields
        position += 1


def convert(fields: Sequence[str], columns: Sequence[Column]) -> tuple[Any, ...] | RowFault:
    """Values of a row, or why it can't be taken (the first reason, from the left)."""
    if len(fields) == 1 and not fields[0].strip():
        return RowFault("blank_line")
    if len(fields) != len(columns):
        return RowFault("wrong_columns")
    row = []
    for field, column in zip(fields, columns, strict=True):
        try:
            row.append(column.kind.parse(field))
        except values.UnreadableError:
            return RowFault(column.kind.reason, column.header, field)
    return tuple(row)


#: A quoted field may span this many lines; past them its quote counts as never closed.
_MAX_SPAN = 20
#: Bytes of nothing but numbers that Arrow takes at a time: they stay in the processor's cache.
_PIECE = 256 << 10
_NUMERIC_BYTES = b"0123456789,.\r\n"
#: Bytes of rows without any content, as spreadsheets write them below a table.
_BLANK = b", \t\r\n"
_BOM = b"\xef\xbb\xbf"

#: Called with file, line, reason and text, and with header and content of the field at fault.
Reject = Callable[[str, int, str, str, str | None, str | None], None]


@dataclass(slots=True)
class Batch:
    """Some rows of a file, in the order of the file."""

    #: The columns and ``line`` (int64, 1-based line of the row's start).
    frame: pl.DataFrame
    #: Headers of the columns.
    headers: Mapping[str, str]
    _raw: Callable[[], pyarrow.LargeBinaryArray]

    def texts(self, mask: pl.Series) -> pl.Series:
        """The rows under the mask as they stand in the file, without the line end."""
        import polars as pl

        picked = pl.Series(values=self._raw()).filter(mask)
        return picked.cast(pl.String).str.strip_chars_end("\r\n")


class CsvReader:
    """Rows of one CSV file; iterate once per pass.

    The first line must be exactly the headers of ``columns``. ``reject`` is called with (file,
    line, reason, text, and the field's header and content if the fault is one field's) for each row
    that can't be parsed. ``rows_read`` counts data rows met so far, parsed or rejected; blank lines
    at the end of the file are none. ``block`` is for tests.
    """

    def __init__(
        self,
        original: Original,
        columns: tuple[Column, ...],
        reject: Reject,
        *,
        block: int = _BLOCK,
    ) -> None:
        self.original = original
        self.columns = columns
        self.headers = {column.name: column.header for column in columns}
        self.rows_read = 0
        self._reject = reject
        self._block = block
        self._line = 1
        # Line ends are matched outside: Arrow takes `\n` and `\r\n` alike.
        fields = ",".join(f"(?:{c.kind.plain})" for c in columns)
        self._plain = rf"^{fields}\r?\n?$"
        self._numeric = not any(c.kind.text for c in columns)
        self._numerals = _NUMERIC_BYTES

    def __iter__(self) -> Iterator[Batch]:
        """Parsed rows, block by block; unparsable ones are rejected on the way.

        Raises :class:`SourceError` if the file is empty or unreadable, its header differs, or it is
        not text.
        """
        self.rows_read, self._line, done = 0, 1, 0
        stage = f"reading {self.original.name}"
        with self.original.open() as stream:
            carry, ended, header = b"", False, False
            while not ended:
                data = stream.read(self._block)
                ended = not data
                done += len(data)
                advance(stage, done, self.original.size)
                body = carry + data
                if not ended:
                    cut = body.rfind(b"\n") + 1
                    if not cut and len(body) > MAX_RECORD:
                        raise SourceError(
                            f"a line is longer than {MAX_RECORD >> 20} MiB",
                            where=f"{self.original.name}:{self._line}",
                            hint="is this a CSV file?",
                        )
                    # Blank lines wait for what follows them, unless there are very many.
                    end = content_end(body, cut, _BLANK)
                    cut = end if cut - end <= MAX_LINE else cut
                    body, carry = body[:cut], body[cut:]
                else:
                    body, carry = body[: content_end(body, len(body), _BLANK)], b""
                if not header and (body or ended):
                    body, header = self._skip_header(body), True
                if body:
                    batch, used = self._parse(body, final=ended or len(body) > MAX_RECORD)
                    carry = body[used:] + carry
                    if batch is not None and batch.frame.height:
                        yield batch

    def lines(self, numbers: np.ndarray[Any, Any]) -> Iterator[tuple[int, str]]:
        """Text of the lines with these sorted numbers, in another pass over the file."""
        return lines_at(self.original, numbers, self._block)

    def _skip_header(self, body: bytes) -> bytes:
        expected = ",".join(c.header for c in self.columns)
        where = f"{self.original.name}:1"
        if not body:
            raise SourceError(
                "the file is empty", where=self.original.name, hint=f"expected header {expected}"
            )
        end = body.find(b"\n") + 1 or len(body)
        found = body[:end].removeprefix(_BOM).decode("utf-8", "replace").rstrip("\r\n")
        fields = split_record(found)
        if fields != [c.header for c in self.columns]:
            raise SourceError(
                f"the header is not the expected one: expected {expected}, found {found[:200]}",
                where=where,
                hint="is this the published file?",
                details={"expected": expected, "found": found[:500]},
            )
        self._line = 2
        return body[end:]

    def _parse(self, body: bytes, *, final: bool) -> tuple[Batch | None, int]:
        """Parse whole lines; return the rows and how many bytes were used."""
        fast = self._parse_numeric(body) if self._numeric else None
        if fast is not None:
            return fast, len(body)
        return self._parse_lines(body, final=final)

    def _parse_numeric(self, body: bytes) -> Batch | None:
        """Rows of a block of nothing but plain numbers, or None if it holds anything else."""
        import numpy as np
        import polars as pl
        import pyarrow as pa

        if body.translate(None, self._numerals):
            return None
        # `bytes.count` of a frequent byte is ten times slower than this.
        data = np.frombuffer(body, dtype=np.uint8)
        ends, returns = data == 10, data == 13
        if returns[-1] or np.greater(returns[:-1], ends[1:]).any():
            return None  # a carriage return on its own: Arrow would end the line there
        lines = int(np.count_nonzero(ends)) + (not body.endswith(b"\n"))
        try:
            table = self._arrow(body, _PIECE)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != lines or any(
            table[c.name].null_count and not c.kind.optional for c in self.columns
        ):
            return None
        numbers = np.arange(self._line, self._line + lines, dtype=np.int64)
        frame = pl.DataFrame(table).with_columns(line=numbers)
        self._line += lines
        self.rows_read += lines
        return Batch(frame, self.headers, lambda: line_array(body, line_starts(body)))

    def _parse_lines(self, body: bytes, *, final: bool) -> tuple[Batch | None, int]:
        import numpy as np

        offsets = line_starts(body)
        count = len(offsets) - 1
        raw = line_array(body, offsets)
        plain = decoded(raw).str.contains(self._plain).fill_null(value=False).to_numpy().copy()
        # Arrow parses blocks of 1 MiB, which a line must not be longer than.
        plain &= np.diff(offsets) <= MAX_LINE

        rows: list[tuple[Any, ...]] = []
        outcome: tuple[Any, ...] | RowFault
        own: list[bytes] = []
        keep, resume, spanned = count, 0, 0
        for n in np.flatnonzero(~plain).tolist():
            if n < resume:
                continue
            if offsets[n + 1] - offsets[n] > MAX_LINE:
                span, outcome = 1, RowFault("too_long")
            else:
                span, outcome = self._parse_record(body, offsets, n, final=final)
            if span == 0:
                keep = n
                break
            plain[n : n + span] = False
            spanned += span - 1
            resume = n + span
            record = body[offsets[n] : offsets[n + span]]
            if isinstance(outcome, RowFault):
                shown = record.decode("utf-8", "replace").rstrip("\r\n")
                fault = (outcome.reason, shown, outcome.field, outcome.value)
                self._reject(self.original.name, self._line + n, *fault)
            else:
                rows.append((*outcome, self._line + n))
                own.append(record)
        plain[keep:] = False
        batch = self._assemble(raw, np.flatnonzero(plain), rows, own)
        self._line += keep
        self.rows_read += keep - spanned
        return batch, int(offsets[keep])

    def _parse_record(
        self, body: bytes, offsets: np.ndarray[Any, Any], n: int, *, final: bool
    ) -> tuple[int, tuple[Any, ...] | RowFault]:
        """The record at line ``n``: its lines and values; 0 lines if more bytes are needed."""
        count = len(offsets) - 1
        outcome: tuple[Any, ...] | RowFault = RowFault("bad_quotes")
        for span in range(1, _MAX_SPAN + 1):
            if n + span > count:
                return (1, outcome) if final else (0, outcome)
            try:
                text = body[offsets[n] : offsets[n + span]].decode("utf-8")
            except UnicodeDecodeError:
                return 1, RowFault("invalid_utf8") if span == 1 else outcome
            fields = split_record(text.removesuffix("\n").removesuffix("\r"))
            if fields is OPEN:
                continue
            if not isinstance(fields, list):
                bare = fields is SPLIT and span == 1
                return 1, RowFault("bare_return") if bare else outcome
            values = convert(fields, self.columns)
            # A quote that closes lines later, but not into a whole row, was never opened
            # on purpose: the line alone is at fault, and the following ones are read anew.
            if span > 1 and isinstance(values, RowFault):
                return 1, outcome
            return span, values
        return 1, outcome

    def _assemble(
        self,
        raw: pyarrow.LargeBinaryArray,
        good: np.ndarray[Any, Any],
        rows: list[tuple[Any, ...]],
        own: list[bytes],
    ) -> Batch | None:
        """Parse a batch, in the order of the file: plain lines at once, other rows one by one."""
        import polars as pl
        import pyarrow as pa

        frames, raws = [], []
        if len(good):
            lines = raw.take(pa.array(good))
            table = self._arrow(lines.buffers()[2])
            assert table.num_rows == len(good), "plain lines are one row each"
            frames.append(pl.DataFrame(table).with_columns(line=good + self._line))
            raws.append(lines)
        if rows:
            schema = {c.name: c.kind.polars() for c in self.columns} | {"line": pl.Int64()}
            frames.append(pl.DataFrame(rows, schema=schema, orient="row"))
            raws.append(pa.array(own, pa.large_binary()))
        if not frames:
            return None
        frame = pl.concat(frames)
        order = frame["line"].arg_sort() if len(frames) > 1 else None
        everything = pa.concat_arrays(raws)
        if order is None:
            return Batch(frame, self.headers, lambda: everything)
        places = pa.array(order.to_numpy())
        return Batch(frame[order], self.headers, lambda: everything.take(places))

    def _arrow(self, data: bytes | pyarrow.Buffer, piece: int | None = None) -> pyarrow.Table:
        import pyarrow as pa
        from pyarrow import csv

        return csv.read_csv(
            pa.BufferReader(data),
            read_options=self._reading(piece),
            convert_options=self._conversion(),
        )

    def _reading(self, piece: int | None) -> pyarrow.csv.ReadOptions:
        """``piece`` bytes at a time, which no line may be longer than; Arrow's choice if None."""
        from pyarrow import csv

        return csv.ReadOptions(column_names=[c.name for c in self.columns], block_size=piece)

    def _conversion(self) -> pyarrow.csv.ConvertOptions:
        from pyarrow import csv

        return csv.ConvertOptions(
            column_types={c.name: c.kind.arrow() for c in self.columns},
            null_values=[""],
            strings_can_be_null=False,
        )


class DelimitedReader(CsvReader):
    """Rows of one file without header and quotes; iterate once per pass.

    Rejected are, by reason: ``wrong_columns``, ``blank_line``, ``bare_return`` (a carriage
    return inside the line), ``invalid_utf8``, and the reason of the first field that is not
    what its column holds.

    The file is UTF-8 (see :func:`latin1`); headers of ``columns`` only name them, and the
    ``separator`` is one or more characters. The rest is as for :class:`CsvReader`.
    """

    def __init__(
        self,
        original: Original,
        columns: tuple[Column, ...],
        separator: str,
        reject: Reject,
        *,
        block: int = _BLOCK,
    ) -> None:
        super().__init__(original, columns, reject, block=block)
        self.separator = separator
        # Content of a field: nothing that could begin a separator, or Arrow's own one.
        text = rf"[^{re.escape(separator[0])}{_UNIT}\r\n]*"
        if len(separator) > 1:
            text = rf"(?:{text}(?:{re.escape(separator[0])}[^{re.escape(separator)}{_UNIT}\r\n])?)*"
        fields = [text if c.kind.text else c.kind.plain for c in columns]
        self._plain = rf"^{re.escape(separator).join(f'(?:{f})' for f in fields)}\r?\n?$"
        self._numerals = f"0123456789.{separator}\r\n".encode()

    def _skip_header(self, body: bytes) -> bytes:
        if not body:
            names = self.separator.join(c.header for c in self.columns)
            raise SourceError(
                "the file is empty", where=self.original.name, hint=f"expected lines of {names}"
            )
        self._line = 1
        return body

    def _parse_record(
        self, body: bytes, offsets: np.ndarray[Any, Any], n: int, *, final: bool
    ) -> tuple[int, tuple[Any, ...] | RowFault]:
        del final
        try:
            text = body[offsets[n] : offsets[n + 1]].decode("utf-8")
        except UnicodeDecodeError:
            return 1, RowFault("invalid_utf8")
        text = text.removesuffix("\n").removesuffix("\r")
        if "\r" in text:
            return 1, RowFault("bare_return")
        return 1, convert(text.split(self.separator), self.columns)

    def _arrow(self, data: bytes | pyarrow.Buffer, piece: int | None = None) -> pyarrow.Table:
        import pyarrow as pa
        from pyarrow import csv

        delimiter = self.separator
        if len(delimiter) > 1:
            data, delimiter = bytes(data).replace(delimiter.encode(), _UNIT.encode()), _UNIT
        return csv.read_csv(
            pa.BufferReader(data),
            read_options=self._reading(piece),
            parse_options=csv.ParseOptions(
                delimiter=delimiter, quote_char=False, double_quote=False, ignore_empty_lines=False
            ),
            convert_options=self._conversion(),
        )
