r"""The reader: lines of an original file become typed rows, or are noted with what is wrong.

Bulk readers are fast but lose what a rejection needs: DuckDB's ``store_rejects`` lets an unclosed
quote swallow the rest of the file as a single row, counts lines wrong after a quoted line break
and replaces bytes that are not UTF-8; of JSON they make a row of nulls, or the number 5 of ``"5"``.
So a block of lines is split, or parsed, and each column is one cast or one check of types; values
that these do not take are read by :mod:`pipelines.sources._values`, one by one.

A row is rejected for the first fault: of separated text ``too_long``, ``invalid_utf8``,
``bad_quotes`` (a quoted field that does not end, or text after its end), ``bare_return`` (a
carriage return inside the line), ``blank_line``, ``wrong_columns``; of JSON lines ``too_long``,
``invalid_utf8``, ``blank_line``, ``not_json`` (unescaped quotes, a record cut short, two on a
line), ``not_object``; then the reason of the first column that can't be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import orjson

from pipelines.errors import SourceError
from pipelines.sources import _values as values
from pipelines.sources._files import BLANK, BLOCK, MAX_LINE, Original, line_blocks, line_text

if TYPE_CHECKING:
    import polars as pl

Kind = Literal[
    "text", "id", "number", "integer", "seconds", "milliseconds", "boolean", "texts", "object",
    "json",
]  # fmt: skip
#: Reason, field and value for which a row is rejected; the last two are null if the row as a
#: whole is at fault.
Fault: TypeAlias = tuple[str, str | None, str | None]
#: Faults by place in a block of rows.
Faults: TypeAlias = dict[int, Fault]
Blocks: TypeAlias = Iterable[tuple[int, list[bytes]]]

#: Separators of files that people save.
SEPARATORS = ("\t", "::", ";", "|", ",")
#: A quoted field may span this many lines; past them its quote counts as never closed.
_MAX_SPAN = 20


class RowError(Exception):
    """Why a line is no row: its :data:`Fault`."""

    def __init__(self, reason: str, field: str | None = None, value: object = None) -> None:
        super().__init__(reason)
        self.fault: Fault = (reason, field, values.shown(value))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and the field of the file that it is read from."""

    #: The header, or the key at a record's top level.
    field: str
    #: The column.
    name: str
    #: ``text``, ``id`` (text), ``number`` (float64), ``integer`` (int64), ``seconds`` or
    #: ``milliseconds`` since 1970 (int64), ``boolean``, ``texts`` (list of text; an absent one is
    #: empty, a single text a list of one, nested ones are flattened), ``object`` (as JSON text), or
    #: ``json``: the value as JSON text, whatever it is.
    kind: Kind = "text"
    #: Reason code of a row whose field can't be read (or, if required, is absent).
    reason: str = "wrong_type"
    #: Whether a row without a value is rejected.
    required: bool = False
    #: Reader of every value that is not null, in place of the kind's; raises
    #: :class:`values.UnreadableError`.
    parse: Callable[[Any], Any] | None = None

    def read(self, value: Any) -> Any:
        """The column's value of a value that is written in any of the known ways.

        Raises :class:`values.UnreadableError`.
        """
        kind = _KINDS[self.kind]
        may_be_missing = kind.unwritten or isinstance(value, float)
        absent = value is None or (may_be_missing and values.is_missing(value))
        result = None if absent else (self.parse or kind.read)(value)
        if result is None and self.required:
            raise values.UnreadableError
        return result

    def of_cells(self, cells: pl.Series, faults: Faults) -> pl.Series:
        """The column of cells of text: plain ones by a cast, each other distinct one read."""
        import polars as pl

        if self.kind == "text":
            for row in cells.is_null().arg_true() if self.required else ():
                faults.setdefault(row, (self.reason, self.field, None))
            return cells.alias(self.name)
        dtype = getattr(pl, _KINDS[self.kind].dtype)
        if dtype == pl.Boolean or self.parse:
            result = pl.Series([None], dtype=dtype).new_from_index(0, len(cells))
        else:
            result = cells.cast(dtype, strict=False)
            result = result.set(~result.is_finite(), None) if dtype == pl.Float64 else result
        others: dict[str | None, Any] = {}
        unreadable = set()
        for cell in cells.filter(result.is_null()).unique():
            try:
                others[cell] = self.read(cell)
            except values.UnreadableError:
                unreadable.add(cell)
        if any(value is not None for value in others.values()):
            more = cells.replace_strict(others, default=None, return_dtype=dtype)
            result = pl.select(pl.coalesce(result, more)).to_series()
        if unreadable:
            bad = result.is_null() & cells.is_in(list(unreadable), nulls_equal=True)
            for row in bad.arg_true():
                faults.setdefault(row, (self.reason, self.field, cells[row]))
        return result.alias(self.name)

    def of_records(
        self, records: Sequence[Mapping[str, Any]], faults: Faults, *, strict: bool
    ) -> pl.Series:
        """The column of some records; ``strict`` ones are JSON as published, without NaN."""
        import polars as pl

        kind = _KINDS[self.kind]
        cells: list[Any] = [record.get(self.field) for record in records]
        plain = kind.plain if strict and not self.parse else frozenset()
        if not self.required:
            plain |= {type(None)}
        if not plain.issuperset(map(type, cells)) or not kind.fit(cells):
            plain = plain if kind.fit is _any else frozenset()
            for n, cell in enumerate(cells):
                if type(cell) in plain:
                    continue
                try:
                    cells[n] = self.read(cell)
                except values.UnreadableError:
                    cells[n] = None
                    faults.setdefault(n, (self.reason, self.field, values.shown(cell)))
        if self.kind == "texts":
            cells = [cell or [] for cell in cells]
            return pl.Series(self.name, cells, pl.List(pl.String))
        return pl.Series(self.name, cells, getattr(pl, kind.dtype), strict=False)


def columns(*fields: str, kind: Kind = "text", **more: Any) -> tuple[Column, ...]:
    """Columns of one kind with the names of their fields.

    >>> [(column.field, column.name, column.kind) for column in columns("tags", kind="texts")]
    [('tags', 'tags', 'texts')]
    """
    return tuple(Column(name, name, kind, **more) for name in fields)


def _any(cells: list[Any]) -> bool:  # noqa: ARG001
    return True


def _fit(cells: list[Any]) -> bool:
    """Whether whole numbers fit 64 bits."""
    given = list(filter(None, cells))
    return not given or (min(given) >= -(1 << 63) and max(given) < 1 << 63)


def _flat(cells: list[Any]) -> bool:
    """Whether lists hold nothing but texts."""
    return {*map(type, chain.from_iterable(filter(None, cells)))} <= {str, type(None)}


def _object(value: Any) -> str | None:
    if isinstance(value, str) and not value.strip():
        return None
    value = values.structure(value)
    if isinstance(value, list):
        raise values.UnreadableError
    return orjson.dumps(value).decode()


def _json(value: Any) -> str:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(values.UnreadableError):
            value = values.structure(value)
    return orjson.dumps(value).decode()


class _Kind(NamedTuple):
    """How values of a kind are read: the column's type, and types of values taken as they are."""

    dtype: str
    plain: frozenset[type]
    read: Callable[[Any], Any]
    #: Whether values of these types may stay as they are.
    fit: Callable[[list[Any]], bool] = _any
    #: Whether some texts stand for no value.
    unwritten: bool = False


_WHOLE = frozenset((int,))
_KINDS: Mapping[Kind, _Kind] = {
    "text": _Kind("String", frozenset((str,)), values.text),
    "id": _Kind("String", frozenset((str,)), values.identifier),
    "number": _Kind("Float64", frozenset((int, float)), values.number, unwritten=True),
    "integer": _Kind("Int64", _WHOLE, values.whole_number, _fit, unwritten=True),
    "seconds": _Kind("Int64", _WHOLE, partial(values.timestamp, per_second=1), _fit, True),
    "milliseconds": _Kind("Int64", _WHOLE, partial(values.timestamp, per_second=1000), _fit, True),
    "boolean": _Kind("Boolean", frozenset((bool,)), values.boolean, unwritten=True),
    "texts": _Kind("List", frozenset((list,)), values.texts, _flat),
    "object": _Kind("String", frozenset(), _object),
    "json": _Kind("String", frozenset(), _json),
}


class Batch(NamedTuple):
    """Some rows of a file, in the order of the file: those that can be taken and those at fault."""

    #: ``line`` (int64, 1-based line of the row's start) and the columns.
    frame: pl.DataFrame
    faults: Faults
    #: The row at a place of the frame as it stands in the file, without the line end.
    text: Callable[[int], str]


# -- separated text ------------------------------------------------------------------------


def split_record(record: str, separator: str = ",") -> list[str]:
    """Split by RFC 4180; a quote inside an unquoted field is a plain character.

    >>> split_record('7,"Good, Bad","a ""b"" c"')
    ['7', 'Good, Bad', 'a "b" c']
    >>> split_record('7;5" disk;', ";")
    ['7', '5" disk', '']

    Raises :class:`RowError`: ``open`` (a quoted field does not end), ``bad_quotes`` (text after a
    closing quote) or ``bare_return`` (a line break in an unquoted field).
    """
    fields: list[str] = []
    position, end = 0, len(record)
    while True:
        if record.startswith('"', position):
            quote = position
            while True:
                quote = record.find('"', quote + 1)
                if quote < 0:
                    raise RowError("open")
                if not record.startswith('"', quote + 1):
                    break
                quote += 1
            fields.append(record[position + 1 : quote].replace('""', '"'))
            position = quote + 1
            if position < end and not record.startswith(separator, position):
                raise RowError("bad_quotes")
        else:
            stop = record.find(separator, position)
            stop = end if stop < 0 else stop
            field = record[position:stop]
            if "\n" in field or "\r" in field:
                raise RowError("bare_return")
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
class Separated:
    r"""How rows of separated text are written.

    A header may name the columns in another order, in other case, with ``_``, behind another of
    :data:`SEPARATORS`, and among columns that are not read. A lenient reader takes lines that are
    not UTF-8 as Windows-1252, and ``\"`` for a quote.
    """

    separator: str = ","
    #: Whether fields may be quoted (RFC 4180), and whether the first line names the columns.
    quoted: bool = True
    headed: bool = True
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    lenient: bool = False

    def rows(
        self, original: Original, columns: Sequence[Column], block: int = BLOCK
    ) -> Iterator[Batch]:
        """Rows of a file, block by block; blank lines at its end are none.

        ``columns`` are in order where the file has no header.

        Raises :class:`SourceError` if the file is empty or unreadable, its header differs, or it is
        not text.
        """
        separator, layout, held = self.separator, tuple(columns), list[bytes]()
        first = 0
        for first, lines in line_blocks(original, block, BLANK + b"," * self.quoted):
            if first == 1 and self.headed:
                separator, layout = self._layout(original.name, lines.pop(0), columns)
                first = 2
            # A record may go on in the next block.
            first, lines = first - len(held), held + lines
            batch, held = self._batch(first, lines, separator, layout, columns, final=False)
            yield batch
        if held:
            last = first + len(lines) - len(held)
            yield self._batch(last, held, separator, layout, columns, final=True)[0]
        if not first:
            expected = separator.join(column.field for column in columns)
            what = f"expected {'header' if self.headed else 'lines of'} {expected}"
            raise SourceError("the file is empty", where=original.name, hint=what)

    def _layout(
        self, name: str, line: bytes, columns: Sequence[Column]
    ) -> tuple[str, tuple[Column, ...]]:
        """The separator and the columns in the order of a header, others among them."""
        fields = [column.field for column in columns]
        by_name = {plain(field): column for field, column in zip(fields, columns, strict=True)}
        header = line_text(line)
        # Another encoding, or no text at all, has no separator.
        text = header.replace("\t", "").isprintable()
        for separator in dict.fromkeys((self.separator, *SEPARATORS)) if text else ():
            with suppress(RowError):
                listed = split_record(header, separator)
                if listed == fields:
                    return separator, tuple(columns)
                names = [plain(field) for field in listed]
                if sorted(name for name in names if name in by_name) == sorted(by_name):
                    return separator, tuple(
                        by_name.get(name) or Column(field, f"unread {n}")
                        for n, (name, field) in enumerate(zip(names, listed, strict=True))
                    )
        expected = self.separator.join(fields)
        raise SourceError(
            f"the header is not the expected one: expected {expected}, found {header[:200]}",
            where=f"{name}:1",
            hint="is this the published file?",
            details={"expected": expected, "found": header[:500]},
        )

    def _batch(
        self, first: int, lines: list[bytes], separator: str, layout: Sequence[Column],
        columns: Sequence[Column], *, final: bool,
    ) -> tuple[Batch, list[bytes]]:  # fmt: skip
        """Rows of some lines, and the lines that need more to follow them."""
        import polars as pl

        rows, numbers = self._decoded(lines), list(range(first, first + len(lines)))
        faults: Faults = {}
        records: dict[int, list[str]] = {}
        used = len(lines)
        if self.quoted and any(b'"' in line for line in lines):
            texts, rows, numbers, used = rows, [], [], 0
            while used < len(lines):
                text, span = texts[used], 1
                if text is not None and '"' in text and len(lines[used]) < MAX_LINE:
                    some = lines[used : used + _MAX_SPAN]
                    try:
                        record = self._record(some, separator, layout, final=final)
                    except RowError as error:
                        faults[len(rows)] = error.fault
                    else:
                        if record is None:
                            break
                        span, text, records[len(rows)] = record
                numbers.append(first + used)
                rows.append(text)
                used += span
        column = pl.Series(rows, dtype=pl.String)
        cells = column.str.split(separator)
        bare = column.str.contains("\r", literal=True)
        if records:
            fields = [records.get(n) or (row or "").split(separator) for n, row in enumerate(rows)]
            cells = pl.Series(fields, dtype=pl.List(pl.String))
            bare &= ~column.str.contains('"', literal=True)
        for reason, mask in (
            ("too_long", pl.Series([len(lines[n - first]) >= MAX_LINE for n in numbers])),
            ("invalid_utf8", column.is_null()),
            ("bare_return", bare),
            ("blank_line", (column.str.strip_chars() == "") & (cells.list.len() == 1)),
            ("wrong_columns", cells.list.len() != len(layout)),
        ):
            for row in mask.fill_null(value=False).arg_true():
                faults.setdefault(row, (reason, None, None))
        places = {column.name: place for place, column in enumerate(layout)}
        series = [
            column.of_cells(cells.list.get(places[column.name], null_on_oob=True), faults)
            for column in columns
        ]
        frame = pl.DataFrame([*series, pl.Series("line", numbers, pl.Int64)])

        def shown(row: int) -> str:
            text = rows[row]
            return line_text(lines[numbers[row] - first]) if text is None else text.rstrip("\r\n")

        return Batch(frame, faults, shown), lines[used:]

    def _record(
        self, lines: list[bytes], separator: str, layout: Sequence[Column], *, final: bool
    ) -> tuple[int, str, list[str]] | None:
        """The record that some lines begin with: lines, text and cells; None if it needs more.

        Raises :class:`RowError` if the first line begins none.
        """
        for span in range(1, _MAX_SPAN + 1):
            if span > len(lines) and not final:
                return None
            text = self._decode(b"\n".join(lines[:span])) if span <= len(lines) else None
            if text is None:
                break
            try:
                cells = self._split(text, separator)
            except RowError as error:
                if error.fault[0] == "open":
                    continue
                raise RowError(error.fault[0] if span == 1 else "bad_quotes") from None
            # A quote that closes lines later, but not into a whole row, was never opened on
            # purpose: the line alone is at fault, and the following ones are read anew.
            if span > 1 and not _reads(layout, cells):
                break
            return span, text, cells
        raise RowError("bad_quotes")

    def _split(self, text: str, separator: str) -> list[str]:
        try:
            return split_record(text, separator)
        except RowError:
            if self.lenient and r"\"" in text:
                return split_record(text.replace(r"\"", '""'), separator)
            raise

    def _decoded(self, lines: list[bytes]) -> list[str | None]:
        """Lines as text without their ends; null where one can't be read."""
        try:
            body = b"\n".join([*lines, b""]).decode(self.encoding)
        except UnicodeDecodeError:
            return [*map(self._decode, lines)]
        return [*body.replace("\r\n", "\n").split("\n")[:-1]]

    def _decode(self, line: bytes) -> str | None:
        try:
            text = line.decode(self.encoding)
        except UnicodeDecodeError:
            if not self.lenient:
                return None
            text = line.decode("cp1252", "replace")
        return text.removesuffix("\r")


def _reads(layout: Sequence[Column], cells: Sequence[str]) -> bool:
    """Whether the cells are a whole row of the columns."""
    try:
        for column, cell in zip(layout, cells, strict=True):
            column.read(cell)
    except ValueError:
        return False
    return True


# -- JSON lines ----------------------------------------------------------------------------


@dataclass(slots=True)
class Lists:
    """A list in each record whose entries are the rows."""

    #: The list's key.
    key: str
    #: The field of the record that all rows of its list have.
    owner: Column
    #: Records with such a list so far (count).
    records: int = 0

    def of(self, record: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """The owner and the entries; raises :class:`RowError`."""
        owner, entries = record.get(self.owner.field), record.get(self.key)
        try:
            read = self.owner.read(owner)
        except values.UnreadableError:
            raise RowError(self.owner.reason, self.owner.field, owner) from None
        try:
            rows = values.structure(entries)
        except values.UnreadableError:
            rows = None
        if not isinstance(rows, list):
            raise RowError("wrong_type", self.key, entries)
        self.records += 1
        return read, rows


def json_rows(
    blocks: Blocks,
    columns: Sequence[Column],
    *,
    lists: Lists | None = None,
    check: Callable[[int, Mapping[str, Any]], str | None] | None = None,
    max_line: int = MAX_LINE,
) -> Iterator[Batch]:
    """Rows of JSON lines, or of lines with Python's spelling of a record.

    Parameters
    ----------
    blocks
        Lines, such as those of :func:`record_blocks`.
    columns
        Fields that are taken of each record; other keys are ignored, and of a repeated key the last
        counts.
    lists
        A list of each record whose entries are the rows: they have also ``position`` (int64, from
        1) and the owner, and the text of a rejected one begins with its place in the list.
    check
        Returns a reason not to take the record of a line, if there is one.
    max_line
        Longest line that is taken (bytes).
    """
    for first, lines in blocks:
        records, faults, strict = parsed(lines, max_line)
        for n, record in enumerate(records):
            reason = None if check is None or n in faults else check(first + n, record)
            if reason:
                records[n], faults[n] = {}, (reason, None, None)
        yield _rows_of(first, lines, records, faults, strict, columns, lists)


def text_blocks(original: Original, expected: str, block: int = BLOCK) -> Blocks:
    """Lines of a file that has any.

    Raises :class:`SourceError` if it is empty.
    """
    first = 0
    for first, lines in line_blocks(original, block):
        yield first, lines
    if not first:
        raise SourceError("the file is empty", where=original.name, hint=f"expected {expected}")


def record_blocks(original: Original, expected: str, block: int = BLOCK) -> Blocks:
    """Lines of a file with a record on each.

    Raises :class:`SourceError` if it is empty or one JSON array.
    """
    for first, lines in text_blocks(original, expected, block):
        if first == 1 and next(filter(None, map(bytes.strip, lines)), b"").startswith(b"["):
            raise SourceError(
                "the file is one JSON array",
                where=original.name,
                hint=f"expected {expected}; convert it, such as with `jq -c '.[]'`",
            )
        yield first, lines


def parsed(lines: list[bytes], max_line: int) -> tuple[list[dict[str, Any]], Faults, bool]:
    """Records of lines, the faults of those that hold none, and whether all are strict JSON."""
    records: list[Any] = []
    faults: Faults = {}
    strict = True
    for n, line in enumerate(lines):
        try:
            record = orjson.loads(line) if len(line) < max_line else None
        except orjson.JSONDecodeError:
            strict = False
            record = _loads(line)
        if not isinstance(record, dict):
            reason = record if isinstance(record, _Reason) else "not_object"
            faults[n] = ("too_long" if len(line) >= max_line else str(reason), None, None)
            record = {}
        records.append(record)
    return records, faults, strict


class _Reason(str):
    """Why a line holds no record."""

    __slots__ = ()


def _loads(line: bytes) -> Any:
    """The value of a line that is not JSON to the letter, or why it has none."""
    if not line.strip():
        return _Reason("blank_line")
    # A record cut short is not worth the attempt to read it as a Python literal.
    try:
        text = line.decode().strip()
        is_complete = text[:1] + text[-1:] in ("{}", "[]")
        return values.loads(text) if is_complete else _Reason("not_json")
    except UnicodeDecodeError:
        return _Reason("invalid_utf8")
    except ValueError:
        return _Reason("not_json")


def _rows_of(
    first: int, lines: list[bytes], records: list[dict[str, Any]], faults: Faults, strict: bool,
    columns: Sequence[Column], lists: Lists | None,
) -> Batch:  # fmt: skip
    """Rows of records, or of the entries of a list in each."""
    import polars as pl

    entries: list[Any] = records
    places: dict[str, list[Any]] = {"line": [*range(first, first + len(lines))]}
    if lists:
        unread, faults, entries = faults, {}, []
        places = {"line": [], "position": [], lists.owner.name: []}
        for n, record in enumerate(records):
            try:
                if n in unread:
                    raise RowError(*unread[n])
                owner, rows = lists.of(record)
                positions = [*range(1, len(rows) + 1)]
            except RowError as error:
                # A row at position 0 stands for the line.
                owner, rows, positions = None, [{}], [0]
                faults[len(entries)] = error.fault
            for name, cells in zip(
                places, ([first + n] * len(rows), positions, [owner] * len(rows)), strict=True
            ):
                places[name] += cells
            entries += rows
        records = [entry if isinstance(entry, dict) else {} for entry in entries]
        for n, entry in enumerate(entries):
            if not isinstance(entry, dict):
                faults[n] = ("not_object", None, None)

    def text(row: int) -> str:
        if lists and places["position"][row]:
            entry = orjson.dumps(entries[row]).decode()
            return f"{lists.key}[{places['position'][row]}]: {entry}"
        return line_text(lines[places["line"][row] - first]).replace("\x00", "")

    series = [column.of_records(records, faults, strict=strict) for column in columns]
    types = {name: pl.Int64 if name in ("line", "position") else pl.String for name in places}
    return Batch(pl.DataFrame(places, schema=types).with_columns(series), faults, text)


# -- other lines ---------------------------------------------------------------------------


def parsed_lines(
    blocks: Blocks, parse: Callable[[bytes], Mapping[str, Any]], schema: Mapping[str, Any]
) -> Iterator[Batch]:
    """Rows of lines that ``parse`` reads, of columns of this schema.

    It raises :class:`RowError` for a line that is no row; UnicodeDecodeError is ``invalid_utf8``.
    """
    import polars as pl

    for first, lines in blocks:
        rows: list[Mapping[str, Any]] = []
        faults: Faults = {}
        for n, line in enumerate(lines):
            row: Mapping[str, Any] = {}
            try:
                if len(line) > MAX_LINE:
                    raise RowError("too_long")
                if not line.strip():
                    raise RowError("blank_line")
                row = parse(line.removesuffix(b"\r"))
            except UnicodeDecodeError:
                faults[n] = ("invalid_utf8", None, None)
            except RowError as error:
                faults[n] = error.fault
            rows.append({"line": first + n, **row})
        frame = pl.DataFrame(rows, schema={"line": pl.Int64, **schema})
        yield Batch(frame, faults, lambda row, lines=lines: line_text(lines[row]))  # type: ignore[misc]
