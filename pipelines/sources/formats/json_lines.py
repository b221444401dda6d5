"""JSON lines in bounded memory, with the exact line of every row.

One record per line, plain or gzip. Bulk readers are fast, but a record they can't take ends the
read or becomes a row of nulls, without its line; they also take ``"5"`` for the number 5. So
records are parsed one by one, and the values of a block become columns at once: as they are if all
are of the publisher's types, else each other one by :mod:`values`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.sources.formats import values
from pipelines.sources.formats.files import Original
from pipelines.sources.formats.lines import MAX_LINE, ahead, line_blocks, lines_at
from pipelines.sources.formats.literals import as_json

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

__all__ = ["Entries", "JsonBatch", "JsonField", "JsonLinesReader", "Records", "parsed"]

Kind = Literal["text", "id", "number", "integer", "time", "boolean", "texts", "object", "json"]
#: A row's place among the parsed ones, and the reason, key and value for which it is rejected.
_Faults = dict[int, tuple[str, str | None, str | None]]

_BLOCK = 1 << 20
#: Columns that say where a row stands.
_PLACES = ("line", "position")
_BOM = b"\xef\xbb\xbf"


class Records(NamedTuple):
    """Some lines of a file and what they hold."""

    #: Number of the first line, from 1.
    first: int
    #: The lines as they stand in the file, without line ends.
    lines: list[bytes]
    #: An object, or the reason (text) why the line holds none.
    records: list[dict[str, Any] | str]
    #: Whether all of them are JSON as published, without NaN or spellings of Python's.
    strict: bool

    def text(self, number: int) -> str:
        """The line of this number; bytes that are not UTF-8 are replaced."""
        line = self.lines[number - self.first].decode("utf-8", "replace")
        return line.rstrip("\r").replace("\x00", "")


def parsed(
    original: Original,
    expected: str,
    *,
    max_line: int = MAX_LINE,
    literal: bool = False,
    block: int = _BLOCK,
) -> Iterator[Records]:
    """Records of a file, some at a time. See :class:`JsonLinesReader` for parameters and reasons.

    Raises :class:`SourceError` if the file is unreadable or cut short, empty, or one JSON array.
    """
    first = 1
    for done, body in ahead(line_blocks(original, block)):
        data = bytes(body)
        data = data.removeprefix(_BOM) if first == 1 else data
        if first == 1 and data.lstrip()[:1] == b"[":
            raise SourceError(
                "the file is one JSON array",
                where=original.name,
                hint=f"expected {expected}; convert it, such as with `jq -c '.[]'`",
            )
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        texts = as_json(data).split(b"\n") if literal else lines
        records: list[Any] = []
        strict = True
        with _collector_paused():
            for line, text in zip(lines, texts, strict=False):
                try:
                    records.append(orjson.loads(text))
                except orjson.JSONDecodeError:
                    records.append(_loads(line, text))
                    strict = False
        if {*map(type, records)} != {dict} or max(map(len, lines)) >= max_line:
            for n, record in enumerate(records):
                if len(lines[n]) >= max_line:
                    records[n] = _Unread("too_long")
                elif not isinstance(record, dict | _Unread):
                    records[n] = _Unread("not_object")
        advance(f"reading {original.name}", done, original.size)
        yield Records(first, lines, records, strict)
        first += len(lines)
    if first == 1:
        raise SourceError("the file is empty", where=original.name, hint=f"expected {expected}")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Don't look for cycles among records, which have none: a third of the time of parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Unread(str):
    """The reason why a line holds no record."""

    __slots__ = ()


def _loads(line: bytes, text: bytes) -> Any:
    """The value of a line that is not JSON to the letter, or why it has none."""
    if not line.strip():
        return _Unread("blank_line")
    try:
        line.decode()
    except UnicodeDecodeError:
        return _Unread("invalid_utf8")
    # A record cut short is not worth the attempt to read it as a Python literal.
    if text.strip()[:1] + text.strip()[-1:] != b"{}":
        return _Unread("not_json")
    try:
        return values.loads(text)
    except ValueError:
        return _Unread("not_json")


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of the record and the column it becomes."""

    #: The record's key, at its top level.
    key: str
    #: The column.
    name: str
    #: ``text``, ``id`` (text), ``number`` (float64), ``integer`` (int64), ``time`` (int64),
    #: ``boolean``, ``texts`` (list of text; an absent one is empty, a single text a list of one,
    #: nested ones are flattened), ``object`` (as JSON text), or ``json``: the value as JSON text,
    #: whatever it is.
    kind: Kind = "text"
    #: Reason code of a row whose field can't be read (or, if required, is absent).
    reason: str = "wrong_type"
    #: Whether a record without it, or with null, is rejected.
    required: bool = False
    #: Units of a ``time`` in a second.
    per_second: int = 1
    #: Reader of every value that is not null, in place of the kind's; raises
    #: :class:`values.UnreadableError`.
    parse: Callable[[Any], Any] | None = None

    def read(self, value: Any) -> Any:
        """The column's value of a value that is written in any of the known ways.

        Raises :class:`values.UnreadableError`.
        """
        may_be_missing = isinstance(value, float) or self.kind in _UNWRITTEN
        absent = value is None or (may_be_missing and values.is_missing(value))
        result = None if absent else self._read(value)
        if result is None and self.required:
            raise values.UnreadableError
        return result

    def _read(self, value: Any) -> Any:
        if self.parse:
            return self.parse(value)
        if self.kind == "time":
            return values.timestamp(value, self.per_second)
        return _KINDS[self.kind].read(value)

    def column(self, records: Sequence[Mapping[str, Any]], faults: _Faults, strict: bool) -> Any:
        """The field of some records as a series; rows that can't be read get their first fault."""
        import polars as pl
        import pyarrow as pa

        key, kind = self.key, _KINDS[self.kind]
        cells: list[Any] = [record.get(key) for record in records]
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
                    faults.setdefault(n, (self.reason, key, values.shown(cell)))
        if self.kind == "texts":
            # A tenth of the time that polars takes for lists.
            cells = [cell or [] for cell in cells]
            lists = pl.from_arrow(pa.array(cells, pa.large_list(pa.large_string())))
            assert isinstance(lists, pl.Series)
            return lists.alias(self.name)
        return pl.Series(self.name, cells, getattr(pl, kind.dtype), strict=False)


def same(*names: str, kind: Kind = "text", **more: Any) -> tuple[JsonField, ...]:
    """Fields of one kind whose columns have the names of their keys.

    >>> [(field.key, field.name, field.kind) for field in same("tags", "specs", kind="texts")]
    [('tags', 'tags', 'texts'), ('specs', 'specs', 'texts')]
    """
    return tuple(JsonField(name, name, kind, **more) for name in names)


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
    if type(value) is not dict:
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


_KINDS: Mapping[Kind, _Kind] = {
    "text": _Kind("String", frozenset((str,)), values.text),
    "id": _Kind("String", frozenset((str,)), values.identifier),
    "number": _Kind("Float64", frozenset((int, float)), values.number),
    "integer": _Kind("Int64", frozenset((int,)), values.whole_number, _fit),
    "time": _Kind("Int64", frozenset((int,)), values.whole_number, _fit),
    "boolean": _Kind("Boolean", frozenset((bool,)), values.boolean),
    "texts": _Kind("List", frozenset((list,)), values.texts, _flat),
    "object": _Kind("String", frozenset(), _object),
    "json": _Kind("String", frozenset(), _json),
}
#: Kinds of which some texts stand for no value.
_UNWRITTEN = frozenset(("number", "integer", "boolean", "time"))


@dataclass(frozen=True, slots=True)
class Entries:
    """A list in each record whose entries are the rows."""

    #: The list's key.
    key: str
    #: The field of the record that all rows of its list have.
    owner: JsonField

    def of(self, record: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """The owner and the entries; raises :class:`_FaultError`."""
        owner, entries = record.get(self.owner.key), record.get(self.key)
        try:
            read = self.owner.read(owner)
        except values.UnreadableError:
            raise _FaultError(self.owner.reason, self.owner.key, values.shown(owner)) from None
        try:
            rows = values.structure(entries)
        except values.UnreadableError:
            rows = None
        if not isinstance(rows, list):
            raise _FaultError("wrong_type", self.key, values.shown(entries))
        return read, rows


class _FaultError(Exception):
    """Why a record is rejected: reason, key and value."""


@dataclass(slots=True)
class JsonBatch:
    """Some rows of a file, in the order of the file."""

    #: The fields' columns and ``line`` (int64, from 1), without rejected rows; with entries also
    #: ``position`` (int64, from 1) and the owner.
    frame: pl.DataFrame
    #: Keys of the columns in the record.
    headers: Mapping[str, str]
    _rows: pl.Series
    _text: Callable[[int], str]

    def texts(self, mask: pl.Series) -> pl.Series:
        """The frame's rows under the mask as they stand in the file, without the line end."""
        import polars as pl

        return pl.Series("text", map(self._text, self._rows.filter(mask)), pl.String)


class JsonLinesReader:
    """Rows of one file of JSON lines; iterate once per pass.

    Rejected are, by reason: ``blank_line``, ``too_long``, ``invalid_utf8``, ``not_json``
    (unescaped quotes, a record cut short, two on a line), ``not_object``, and the reason of the
    first field that can't be read (:mod:`values`) as the declared kind.

    Of each record ``fields`` are taken and other keys ignored; of a repeated key the last counts.
    ``reject`` is called with frames ``file``, ``line``, ``reason``, ``field``, ``value`` (null if
    the fault is not that of a field) and ``text``.

    Parameters
    ----------
    entries
        A list of each record whose entries are the rows; the text of a rejected one begins with
        its place in the list.
    skip
        Whether a record is left out on purpose; ``skipped`` counts them.
    max_line, block
        Longest line that is taken, and what is read at a time (bytes).
    literal
        Whether lines are Python's spelling of a record (:mod:`literals`) or JSON's.

    ``rows_read`` counts rows met so far, taken, skipped or rejected, ``records`` lines that hold
    one.
    """

    def __init__(
        self,
        original: Original,
        fields: Sequence[JsonField],
        reject: Callable[[pl.DataFrame], None],
        *,
        entries: Entries | None = None,
        skip: Callable[[Mapping[str, Any]], bool] | None = None,
        max_line: int = MAX_LINE,
        literal: bool = False,
        block: int = _BLOCK,
    ) -> None:
        self.original = original
        self.fields = tuple(fields)
        self.headers = {f.name: f.key for f in fields}
        self.rows_read = self.skipped = self.records = 0
        self._reject = reject
        self._entries = entries
        self._skip = skip
        self._max_line, self._literal, self._block = max_line, literal, block

    def __iter__(self) -> Iterator[JsonBatch]:
        """Rows, block by block; those that can't be taken are rejected on the way.

        Raises :class:`SourceError` if the file is empty, unreadable or cut short, is one JSON
        array, or is not text.
        """
        self.rows_read = self.skipped = self.records = 0
        for part in self.parts():
            yield self._batch(part)

    def parts(self) -> Iterator[Records]:
        """Return the records to read."""
        keys = ", ".join(f.key for f in self.fields if f.required)
        expected = f"one JSON object per line{f' with {keys}' if keys else ''}"
        return parsed(
            self.original,
            expected,
            max_line=self._max_line,
            literal=self._literal,
            block=self._block,
        )

    def lines(self, numbers: np.ndarray[Any, Any]) -> Iterator[tuple[int, str]]:
        """Text of the lines with these sorted numbers, in another pass over the file."""
        return lines_at(self.original, numbers, self._block)

    def _batch(self, part: Records) -> JsonBatch:
        import polars as pl

        given, columns, rejected = self._rows(part)
        numbers, positions = columns["line"], columns.get("position")
        faults: _Faults = {}
        rows = given
        if self._entries:
            # An empty entry in its place: the others of the list are no worse for it.
            rows = [entry if isinstance(entry, dict) else {} for entry in given]
            faults = {
                n: ("not_object", None, None)
                for n, entry in enumerate(given)
                if not isinstance(entry, dict)
            }
        parsed = [f.column(rows, faults, part.strict) for f in self.fields]

        def text(row: int) -> str:
            if positions is None or self._entries is None:
                return part.text(numbers[row])
            entry = orjson.dumps(given[row]).decode()
            return f"{self._entries.key}[{positions[row]}]: {entry}"

        rejected += [(numbers[n], text(n), *fault) for n, fault in faults.items()]
        self.rows_read += len(rows) + len(rejected) - len(faults)
        if rejected:
            rejected.sort(key=lambda fault: fault[0])
            names = ("line", "text", "reason", "field", "value")
            schema = {name: pl.Int64 if name == "line" else pl.String for name in names}
            frame = pl.DataFrame(rejected, schema=schema, orient="row")
            self._reject(frame.with_columns(file=pl.lit(self.original.name)))
        types = {name: pl.String if name not in _PLACES else pl.Int64 for name in columns}
        frame = pl.DataFrame(columns, schema=types).with_columns(parsed)
        index = pl.int_range(len(rows), eager=True)
        if faults:
            sound = ~index.is_in(list(faults))
            frame, index = frame.filter(sound), index.filter(sound)
        return JsonBatch(frame, self.headers, index, text)

    def _rows(self, part: Records) -> tuple[list[Any], dict[str, list[Any]], list[tuple[Any, ...]]]:
        """Records or entries, columns of their places, and rejected lines."""
        rows: list[Any] = []
        columns: dict[str, list[Any]] = {"line": []}
        rejected: list[tuple[Any, ...]] = []
        if self._entries:
            columns |= {"position": [], self._entries.owner.name: []}
        elif not self._skip and {*map(type, part.records)} == {dict}:
            self.records += len(part.records)
            places = range(part.first, part.first + len(part.records))
            return part.records, {"line": list(places)}, []
        for number, record in enumerate(part.records, part.first):
            try:
                if isinstance(record, str):
                    raise _FaultError(str(record), None, None)
                if self._skip and self._skip(record):
                    self.skipped += 1
                    self.rows_read += 1
                    continue
                if self._entries:
                    owner, entries = self._entries.of(record)
                    columns["position"] += range(1, len(entries) + 1)
                    columns[self._entries.owner.name] += [owner] * len(entries)
                    columns["line"] += [number] * len(entries)
                    rows += entries
                else:
                    columns["line"].append(number)
                    rows.append(record)
                self.records += 1
            except _FaultError as fault:
                rejected.append((number, part.text(number), *fault.args))
        return rows, columns, rejected
