"""JSON lines in bounded memory, with the exact line of every row.

One record per line, plain or gzip. DuckDB's and polars' own readers are fast, but a record they
can't take ends the read or becomes a row of nulls, without its line; they also take ``"5"`` for
the number 5. So lines are found first, in blocks of a few MiB, and DuckDB returns the values of the
declared fields of a block's lines, and whether their JSON types are the publisher's. Nothing is
done line by line in Python but for lines where they are not, and for rejected ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import orjson

from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.sources.formats import values
from pipelines.sources.formats.files import Block, Original
from pipelines.sources.formats.lines import (
    MAX_LINE,
    ahead,
    decoded,
    line_array,
    line_blocks,
    line_starts,
    lines_at,
)
from pipelines.sources.formats.literals import as_json

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import polars as pl
    import pyarrow

__all__ = ["JsonBatch", "JsonField", "JsonLinesReader"]


#: The column that says why a line is not taken as DuckDB reads it: ``not_json``, ``not_object``, or
#: ``odd`` if a value is of another type than the publisher's.
ODD = "_odd"

Kind = Literal[
    "text", "id", "number", "integer", "time", "boolean", "texts", "records", "object", "json"
]

_WHOLE = ("UBIGINT", "BIGINT")
_DIGITS = (*_WHOLE, "HUGEINT", "UHUGEINT")
#: DuckDB's name of the column's type, and the JSON types of which its value is taken as it is.
_KINDS: dict[str, tuple[str | list[str], tuple[str, ...]]] = {
    "text": ("VARCHAR", ("VARCHAR", *_DIGITS)),
    "id": ("VARCHAR", ("VARCHAR", *_DIGITS)),
    "number": ("DOUBLE", ("DOUBLE", *_DIGITS)),
    "integer": ("BIGINT", _WHOLE),
    "time": ("BIGINT", _WHOLE),
    "boolean": ("BOOLEAN", ("BOOLEAN",)),
    "texts": (["VARCHAR"], ("ARRAY",)),
    "records": ([], ("ARRAY",)),
    "object": ("JSON", ("OBJECT",)),
    "json": ("JSON", ("OBJECT", "ARRAY", "VARCHAR", "BOOLEAN", "DOUBLE", *_DIGITS)),
}


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of the record and the column it becomes."""

    #: The record's key, at its top level.
    key: str
    #: The column.
    name: str
    #: ``text``, ``id`` (text), ``number`` (float64), ``integer`` (int64), ``time`` (int64),
    #: ``boolean``, ``texts`` (list of text; an absent one is empty, a single text a list of one,
    #: nested ones are flattened), ``records`` (list of structs; null for an entry that is no
    #: object), ``object`` (as JSON text), or ``json``: the value as JSON text, whatever it is.
    kind: Kind = "text"
    #: Reason code of a row whose field can't be read (or, if required, is absent).
    reason: str = "wrong_type"
    #: Whether a record without it, or with null, is rejected.
    required: bool = False
    #: Keys of each of the ``records``, with DuckDB's types; a value of another type is null.
    entry: Mapping[str, str] | None = None
    #: Units of a ``time`` in a second.
    per_second: int = 1

    def read(self, value: Any) -> Any:
        """The column's value of a value that is written in any of the known ways.

        Raises :class:`values.UnreadableError`.
        """
        result = None if value is None else self._read(value)
        if result is None and self.required:
            raise values.UnreadableError
        return [] if result is None and self.kind == "texts" else result

    def _read(self, value: Any) -> Any:
        kind = self.kind
        if isinstance(value, float) and values.is_missing(value):
            return None
        if kind in ("number", "integer", "boolean", "time") and values.is_missing(value):
            return None
        if kind == "time":
            return values.timestamp(value, self.per_second)
        if kind == "records":
            entries = values.structure(value)
            if isinstance(entries, dict):
                raise values.UnreadableError
            return [self._entry(entry) for entry in entries]
        if kind == "object":
            if isinstance(value, str) and not value.strip():
                return None
            value = values.structure(value)
            if isinstance(value, list):
                raise values.UnreadableError
            return orjson.dumps(value).decode()
        if kind == "json":
            with suppress(values.UnreadableError):
                value = values.structure(value)
            return orjson.dumps(value).decode()
        return _READERS[kind](value)

    def _entry(self, entry: Any) -> dict[str, str | None] | None:
        """An entry of ``records`` as DuckDB gives it; None if it is no object."""
        if not isinstance(entry, dict):
            return None
        fields = {key: entry.get(key) for key in self.entry or ()}
        return {
            key: value
            if value is None or (isinstance(value, str) and (self.entry or {})[key] != "JSON")
            else orjson.dumps(value).decode()
            for key, value in fields.items()
        }


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "text": values.text,
    "id": values.identifier,
    "number": values.number,
    "integer": values.whole_number,
    "boolean": values.boolean,
    "texts": values.texts,
}


def values_query(fields: Sequence[JsonField]) -> str:
    """Each line of ``block`` with the values of its fields, and why it is to be read by itself."""
    types = {f.key: [f.entry] if f.kind == "records" else _KINDS[f.kind][0] for f in fields}
    columns, odd = [], []
    for place, field in enumerate(fields, start=2):
        value = f"got[{_text(field.key)}]"
        if field.kind == "texts":
            value = f"coalesce({value}, [])"
        elif field.kind in ("json", "object"):
            value = f"cast(nullif({value}, 'null') as varchar)"
        columns.append(f'{value} as "{field.name}"')
        kind = f"coalesce(types[{place}], 'NULL')"
        plain = (*_KINDS[field.kind][1], *(() if field.required else ("NULL",)))
        odd.append(f"{kind} not in ({', '.join(map(_text, plain))})")
        if field.kind in _SPELLED:
            odd.append(_SPELLED[field.kind].format(value=f'"{field.name}"', kind=kind))
    paths = ", ".join(_text(f'$."{f.key}"') for f in fields)
    return f"""
        with made as (
            select
                line,
                try(json_type(record, ['$', {paths}])) as types,
                try(json_transform(record, {_text(orjson.dumps(types).decode())})) as got
            from block
        ),
        named as (select line, types, {", ".join(columns)} from made)
        select
            * exclude (types),
            case
                when types is null then 'not_json'
                when types[1] <> 'OBJECT' then 'not_object'
                when {" or ".join(f"coalesce({one}, false)" for one in odd)} then 'odd'
            end as {ODD}
        from named
    """  # noqa: S608 (fields are declared in code)


#: Values of the right type that may mean something else: a number that the column can't hold, a
#: list or an object as text, NaN.
_SPELLED = {
    "integer": "{value} is null and {kind} <> 'NULL'",
    "time": "{value} is null and {kind} <> 'NULL'",
    "number": "not isfinite({value})",
    "texts": "len(list_filter({value}, lambda x: regexp_matches(x, '^[\\[{{]'))) > 0",
    "json": """regexp_matches({value}, '^(?:"\\s*[\\[{{]|NaN$)')""",
}


def _text(value: str) -> str:
    """A SQL string.

    >>> _text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


_BLOCK = 8 << 20
#: Lines that one DuckDB thread takes at a time, at most; fewer if a block has few, since threads
#: without work spin (on two cores, long lines took twice the CPU time in a single piece).
_PIECE = 4096
_PIECES = 8
_BOM = b"\xef\xbb\xbf"
_ARRAY = re.compile(rb"\s*\[")
#: The column of line numbers, which is not the record's.
_LINE = "line"


@dataclass(slots=True)
class JsonBatch:
    """Some rows of a file, in the order of the file."""

    #: The fields' columns and ``line`` (int64, from 1), without rejected rows.
    frame: pl.DataFrame
    #: Rejected lines: ``line``, ``reason``, ``field``, ``value``.
    faults: pl.DataFrame
    #: Lines of the block, taken or not (count).
    lines: int
    #: Bytes of the (unpacked) file up to the end of the block.
    done: int
    #: Keys of the columns in the record.
    headers: Mapping[str, str]
    _raw: pyarrow.LargeBinaryArray
    #: The lines as JSON, where they are Python literals; else the same.
    _json: pyarrow.LargeBinaryArray
    _first: int

    def texts(self, mask: pl.Series) -> pl.Series:
        """The frame's rows under the mask as they stand in the file, without the line end."""
        return self.at(self.frame[_LINE].filter(mask))

    def at(self, lines: pl.Series) -> pl.Series:
        """The lines with these numbers as text; bytes that are not UTF-8 are replaced."""
        import polars as pl

        raw = self._raw.take((lines - self._first).to_arrow()).to_pylist()
        texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in raw]
        return pl.Series("text", texts, dtype=pl.String)

    def records(self, lines: pl.Series) -> list[bytes]:
        """The lines with these numbers as JSON."""
        taken: list[bytes] = self._json.take((lines - self._first).to_arrow()).to_pylist()
        return taken


class JsonLinesReader:
    """Rows of one file of JSON lines; iterate once per pass.

    Rejected are, by reason: ``blank_line``, ``too_long``, ``invalid_utf8``, ``not_json``
    (unescaped quotes, a record cut short, two on a line), ``not_object``, and the reason of the
    first field that can't be read (:mod:`values`) as the declared kind.

    Of each record ``fields`` are taken and other keys ignored; of a repeated key the first counts.
    ``reject`` is called with frames ``file``, ``line``, ``reason``, ``field``, ``value`` (null if
    the fault is not that of a field) and ``text``. 0 ``threads`` of
    DuckDB take every core, ``max_line`` is the longest line that is taken (bytes), ``block`` is for
    tests. With ``literal``, lines are Python's spelling of a record (:mod:`literals`) or JSON's.
    ``rows_read`` counts lines met so far, taken or rejected, ``rejected`` the latter.
    """

    def __init__(
        self,
        original: Original,
        fields: Sequence[JsonField],
        reject: Callable[[pl.DataFrame], None],
        *,
        threads: int = 0,
        max_line: int = MAX_LINE,
        literal: bool = False,
        block: int = _BLOCK,
    ) -> None:
        self.original = original
        self.rejected = 0
        self._literal = literal
        self._max_line = max_line
        self.fields = tuple(fields)
        self.rows_read = 0
        self._reject = reject
        self._threads = threads
        self._block = block
        self._query = values_query(self.fields)

    def __iter__(self) -> Iterator[JsonBatch]:
        """Rows, block by block; those that can't be taken are rejected on the way.

        Raises :class:`SourceError` if the file is empty, unreadable or cut short, is one JSON
        array, or is not text.
        """
        self.rows_read = self.rejected = 0
        for batch in ahead(self._batches()):
            self.rows_read += batch.lines
            advance(f"reading {self.original.name}", batch.done, self.original.size)
            self.reject(batch, batch.faults)
            yield batch
        if not self.rows_read:
            raise SourceError(
                "the file is empty", where=self.original.name, hint=f"expected {self.expected}"
            )

    def reject(self, batch: JsonBatch, faults: pl.DataFrame) -> None:
        """Reject lines of a batch: ``line``, ``reason``, ``field`` and ``value``."""
        import polars as pl

        self.rejected += faults.height
        if faults.height:
            file, texts = pl.lit(self.original.name), batch.at(faults[_LINE])
            self._reject(faults.with_columns(file=file, text=texts))

    @property
    def expected(self) -> str:
        """Expected form of each line, for messages."""
        keys = ", ".join(f.key for f in self.fields if f.required)
        return f"one JSON object per line{f' with {keys}' if keys else ''}"

    def lines(self, numbers: np.ndarray[Any, Any]) -> Iterator[tuple[int, str]]:
        """Text of the lines with these sorted numbers, in another pass over the file."""
        return lines_at(self.original, numbers, self._block)

    def _batches(self) -> Iterator[JsonBatch]:
        import duckdb

        first = 1
        config: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "1GiB"}
        if self._threads:
            config["threads"] = self._threads
        with duckdb.connect(config=config) as connection:
            for done, raw in ahead(line_blocks(self.original, self._block)):
                body = raw[len(_BOM) :] if first == 1 and raw[: len(_BOM)] == _BOM else raw
                if first == 1 and _ARRAY.match(body):
                    raise SourceError(
                        "the file is one JSON array",
                        where=self.original.name,
                        hint=f"expected {self.expected}; convert it, such as with `jq -c '.[]'`",
                    )
                batch = self._parse(connection, body, first, done)
                first += batch.lines
                yield batch

    def _parse(
        self, connection: duckdb.DuckDBPyConnection, body: Block, first: int, done: int
    ) -> JsonBatch:
        import numpy as np
        import polars as pl
        import pyarrow as pa

        starts = line_starts(body)
        raw = line_array(body, starts)
        made = raw
        if self._literal:
            converted = as_json(bytes(body))
            made = line_array(converted, line_starts(converted))
        texts = pa.LargeStringArray.from_buffers(len(made), *made.buffers()[1:])
        numbers = pa.array(np.arange(first, first + len(raw), dtype=np.int64))
        table = pa.table({_LINE: numbers, "record": texts})
        ascii_only = int(np.frombuffer(body, dtype=np.uint8).max()) < 128
        readable = None if ascii_only else decoded(raw).is_not_null()
        faults = []
        short = np.diff(starts) <= self._max_line
        if not short.all() or not (readable is None or readable.all()):
            taken = short if readable is None else short & readable.to_numpy()
            table = table.filter(pa.array(taken))
            reasons = np.where(short, "invalid_utf8", "too_long")
            wrong = pl.DataFrame({_LINE: pl.Series(numbers), "reason": reasons})
            faults.append(wrong.filter(~taken))
        read = _asked(connection, self._query, table)
        headers = {field.name: field.key for field in self.fields}
        batch = JsonBatch(read, _faults([]), len(raw), done, headers, raw, made, first)
        batch.frame, wrong = self._read_odd(batch)
        if faults or wrong.height:
            batch.faults = pl.concat([*faults, wrong], how="diagonal").sort(_LINE)
        return batch

    def _read_odd(self, batch: JsonBatch) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows to take, odd ones read from their records, and the faults of the others."""
        import polars as pl

        is_odd = batch.frame[ODD].is_not_null()
        frame = batch.frame.drop(ODD)
        if not is_odd.any():
            return frame, _faults([])
        faults: list[_Fault] = []
        rows: list[tuple[Any, ...]] = []
        odd = batch.frame.filter(is_odd).select(_LINE, ODD)
        for line, (number, why) in zip(batch.records(odd[_LINE]), odd.iter_rows(), strict=True):
            record = _record(line, None if why == "odd" else why)
            if record is None:
                faults.append((number, why if line.strip() else "blank_line", None, None))
                continue
            row: list[Any] = [number]
            for field in self.fields:
                value = record.get(field.key)
                try:
                    row.append(field.read(value))
                except values.UnreadableError:
                    faults.append((number, field.reason, field.key, values.shown(value)))
                    break
            else:
                rows.append(tuple(row))
        read = pl.DataFrame(rows, schema=frame.schema, orient="row")
        return pl.concat([frame.filter(~is_odd), read]).sort(_LINE), _faults(faults)


#: Line, reason, key and value of a field.
_Fault: TypeAlias = tuple[int, str | None, str | None, str | None]


def _record(line: bytes, reason: str | None) -> dict[str, Any] | None:
    """The record of a line; None if it is none, for ``reason``."""
    if reason is None:
        record: dict[str, Any] = values.loads(line)
        return record
    # A record cut short is not worth the attempt to read it as a Python literal.
    if reason == "not_json" and line.strip()[:1] + line.strip()[-1:] == b"{}":
        with suppress(ValueError):
            literal = orjson.loads(as_json(line.rstrip(b"\r\n")))
            return literal if isinstance(literal, dict) else None
    return None


def _faults(faults: Sequence[_Fault]) -> pl.DataFrame:
    import polars as pl

    schema = {_LINE: pl.Int64, "reason": pl.String, "field": pl.String, "value": pl.String}
    return pl.DataFrame(faults, schema=schema, orient="row")


def _asked(connection: duckdb.DuckDBPyConnection, query: str, table: pyarrow.Table) -> pl.DataFrame:
    """Results of a query about ``block``, by line."""
    import polars as pl
    import pyarrow as pa

    # DuckDB gives each thread whole record batches.
    size = min(_PIECE, table.num_rows // _PIECES + 1)
    pieces = pa.Table.from_batches(table.to_batches(max_chunksize=size), table.schema)
    connection.register("block", pieces)
    frame = pl.from_arrow(connection.execute(query).to_arrow_table())
    assert isinstance(frame, pl.DataFrame)
    # Threads hand in their pieces as they finish them.
    return frame if frame[_LINE].is_sorted() else frame.sort(_LINE)
