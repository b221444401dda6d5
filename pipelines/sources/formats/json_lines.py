"""JSON lines in bounded memory, with the exact line of every row.

One record per line, plain or gzip. DuckDB's and polars' own readers are fast, but a record they
can't take ends the read or becomes a row of nulls, without its line; they also take ``"5"`` for
the number 5. So lines are found first, in blocks of a few MiB, and DuckDB returns the values of the
declared fields of a block's lines and the JSON types that they had. Types are encoded as one number
per combination: a file has few, and each is checked once. Nothing is done line by line in Python
but for rejected lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from pipelines.downloads import Progress, no_progress
from pipelines.errors import SourceError
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

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import polars as pl
    import pyarrow

__all__ = ["JsonBatch", "JsonField", "JsonLinesReader"]


#: The column that numbers combinations of JSON types.
SHAPE = "_shape"

Kind = Literal["text", "number", "integer", "boolean", "texts", "records", "json"]

#: DuckDB's name of the column's type, and the JSON types that a field may have.
_KINDS: dict[str, tuple[str | list[str], tuple[str, ...]]] = {
    "text": ("VARCHAR", ("VARCHAR",)),
    "number": ("DOUBLE", ("DOUBLE", "UBIGINT", "BIGINT", "HUGEINT", "UHUGEINT")),
    "integer": ("BIGINT", ("UBIGINT", "BIGINT")),
    "boolean": ("BOOLEAN", ("BOOLEAN",)),
    "texts": (["VARCHAR"], ("ARRAY",)),
    "records": ([], ("ARRAY",)),
    "json": ("JSON", ()),
}


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of the record and the column it becomes."""

    #: The record's key, at its top level.
    key: str
    #: The column.
    name: str
    #: ``text``, ``number`` (float64), ``integer`` (int64), ``boolean``, ``texts`` (list of text; an
    #: absent one is empty, a single text a list of one), ``records`` (list of structs; null for an
    #: entry that is no object), or ``json``: the value as JSON text, whatever it is.
    kind: Kind = "text"
    #: Reason code of a row whose field has another type (or, if required, is absent).
    reason: str = "wrong_type"
    #: Whether a record without it, or with null, is rejected.
    required: bool = False
    #: Keys of each of the ``records``, with DuckDB's types; a value of another type is null.
    entry: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """Meaning of a combination of JSON types."""

    #: Why such a record is rejected; None if it isn't.
    reason: str | None
    #: Keys that are there, with another value than null.
    present: frozenset[str] = frozenset()
    #: Keys with a text where a list is expected.
    single: frozenset[str] = frozenset()

    @classmethod
    def of(cls, kinds: Sequence[str | None] | None, fields: Sequence[JsonField]) -> Shape:
        """Judge the types of a record and of its fields, as DuckDB names them."""
        if kinds is None:
            return cls("not_json")
        if kinds[0] != "OBJECT":
            return cls("not_object")
        present, single = set(), set()
        for field, kind in zip(fields, kinds[1:], strict=True):
            if kind is None or kind == "NULL":
                if field.required:
                    return cls(field.reason)
                continue
            present.add(field.key)
            if field.kind == "texts" and kind == "VARCHAR":
                single.add(field.key)
            elif field.kind != "json" and kind not in _KINDS[field.kind][1]:
                return cls(field.reason)
        return cls(None, frozenset(present), frozenset(single))


def types_query(fields: Sequence[JsonField]) -> str:
    """The JSON types of one record, given as a parameter, and of its fields."""
    return f"select {_types(fields, '?')}"


def _types(fields: Sequence[JsonField], record: str) -> str:
    """The JSON types of a record and of its fields; null if it is not JSON."""
    paths = ", ".join(_path(f.key) for f in fields)
    return f"try(json_type({record}, ['$', {paths}]))"


def shape_query(fields: Sequence[JsonField]) -> str:
    """Each line of ``block`` with its values and a number for the types of its fields."""
    types = {f.key: [f.entry] if f.kind == "records" else _KINDS[f.kind][0] for f in fields}
    structure = orjson.dumps(types).decode()
    columns = []
    for field in fields:
        value = f"got[{_text(field.key)}]"
        if field.kind == "texts":
            value = f"coalesce({value}, [])"
        elif field.kind == "json":
            value = f"cast(nullif({value}, 'null') as varchar)"
        columns.append(f'{value} as "{field.name}"')
    return f"""
        with made as (
            select
                line,
                hash({_types(fields, "record")}) as {SHAPE},
                try(json_transform(record, {_text(structure)})) as got
            from block
        )
        select line, {SHAPE}, {", ".join(columns)} from made
    """  # noqa: S608 (fields are declared in code)


def _path(key: str) -> str:
    """The JSON path of a key of the record, as a SQL string.

    >>> print(_path("also_buy"))
    '$."also_buy"'
    """
    return _text(f'$."{key}"')


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
    #: Rejected lines: ``line``, ``reason``, ``text``.
    faults: pl.DataFrame
    #: Lines of the block, taken or not (count).
    lines: int
    #: Bytes of the (unpacked) file up to the end of the block.
    done: int
    _raw: pyarrow.LargeBinaryArray
    _first: int

    def texts(self, mask: pl.Series) -> pl.Series:
        """The frame's rows under the mask as they stand in the file, without the line end."""
        return self.at(self.frame[_LINE].filter(mask))

    def at(self, lines: pl.Series) -> pl.Series:
        """The lines with these numbers as text; bytes that are not UTF-8 are replaced."""
        import polars as pl

        texts = [r.decode("utf-8", "replace").rstrip("\r\n") for r in self.records(lines)]
        return pl.Series("text", texts, dtype=pl.String)

    def records(self, lines: pl.Series) -> list[bytes]:
        """The lines with these numbers."""
        taken: list[bytes] = self._raw.take((lines - self._first).to_arrow()).to_pylist()
        return taken


class JsonLinesReader:
    """Rows of one file of JSON lines; iterate once per pass.

    Rejected are, by reason: ``blank_line``, ``too_long``, ``invalid_utf8``, ``not_json``
    (unescaped quotes, a record cut short, two on a line), ``not_object``, and the reason of the
    first field whose type is not the declared one.

    Of each record ``fields`` are taken and other keys ignored; of a repeated key the first counts.
    ``reject`` is called with frames ``file``, ``line``, ``reason``, ``text``. 0 ``threads`` of
    DuckDB take every core, ``max_line`` is the longest line that is taken (bytes), ``block`` is for
    tests. ``rows_read`` counts lines met so far, taken or rejected.
    """

    def __init__(
        self,
        original: Original,
        fields: Sequence[JsonField],
        reject: Callable[[pl.DataFrame], None],
        *,
        progress: Progress = no_progress,
        threads: int = 0,
        max_line: int = MAX_LINE,
        block: int = _BLOCK,
    ) -> None:
        self.original = original
        self._max_line = max_line
        self.fields = tuple(fields)
        self.rows_read = 0
        self._reject = reject
        self._progress = progress
        self._threads = threads
        self._block = block
        self._query = shape_query(self.fields)
        self._types = types_query(self.fields)
        self._shapes: dict[int, Shape] = {}

    def __iter__(self) -> Iterator[JsonBatch]:
        """Rows, block by block; those that can't be taken are rejected on the way.

        Raises :class:`SourceError` if the file is empty, unreadable or cut short, is one JSON
        array, or is not text.
        """
        import polars as pl

        self.rows_read = 0
        for batch in ahead(self._batches()):
            self.rows_read += batch.lines
            self._progress(f"reading {self.original.name}", batch.done, self.original.size)
            if batch.faults.height:
                self._reject(batch.faults.with_columns(file=pl.lit(self.original.name)))
            yield batch
        if not self.rows_read:
            raise SourceError(
                "the file is empty", where=self.original.name, hint=f"expected {self.expected}"
            )

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
        texts = pa.LargeStringArray.from_buffers(len(raw), *raw.buffers()[1:])
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
        batch = JsonBatch(read, _no_faults(), len(raw), done, raw, first)
        batch.frame, wrong = self._judge(connection, batch)
        if faults or wrong.height:
            wrong = pl.concat([*faults, wrong]).sort(_LINE)
            batch.faults = wrong.with_columns(text=batch.at(wrong[_LINE]))
        return batch

    def _judge(
        self, connection: duckdb.DuckDBPyConnection, batch: JsonBatch
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows to take, and line and reason of the others."""
        import polars as pl

        frame = batch.frame
        here = frame.group_by(SHAPE).agg(line=pl.col(_LINE).min())
        for shape, line in here.iter_rows():
            if shape not in self._shapes:
                text = str(batch.at(pl.Series([line]))[0])
                found = connection.execute(self._types, [text]).fetchone()
                self._shapes[shape] = Shape.of(found[0] if found else None, self.fields)
        shapes = {shape: self._shapes[shape] for shape in here[SHAPE]}
        reason = pl.lit(None, dtype=pl.String)
        bad = {shape: s.reason for shape, s in shapes.items() if s.reason}
        if bad:
            reason = pl.col(SHAPE).replace_strict(bad, default=None, return_dtype=pl.String)
        for field in self.fields:
            # A number that the column can't hold has become null or infinite.
            having = [shape for shape, s in shapes.items() if field.key in s.present]
            lost = (
                pl.col(field.name).is_null() & pl.col(SHAPE).is_in(having)
                if field.kind == "integer"
                else ~pl.col(field.name).is_finite()
            )
            if field.kind in ("integer", "number") and frame.select(lost.any()).item():
                reason = pl.coalesce(reason, pl.when(lost).then(pl.lit(field.reason)))
        for field in self.fields:
            single = [shape for shape, s in shapes.items() if field.key in s.single]
            if single:
                frame = self._wrapped(frame, batch, field, single)
        judged = frame.select(_LINE, reason=reason)
        wrong = judged.drop_nulls("reason")
        if not wrong.height:
            return frame.drop(SHAPE), wrong
        unread = batch.at(wrong[_LINE]).str.strip_chars() == ""
        wrong = wrong.with_columns(
            reason=pl.when(unread).then(pl.lit("blank_line")).otherwise("reason")
        )
        return frame.filter(judged["reason"].is_null()).drop(SHAPE), wrong

    def _wrapped(
        self, frame: pl.DataFrame, batch: JsonBatch, field: JsonField, shapes: Sequence[int]
    ) -> pl.DataFrame:
        """The frame with lists of one where the record has a text in place of a list."""
        import polars as pl

        at = frame[SHAPE].is_in(shapes)
        lines = frame[_LINE].filter(at)
        found = [orjson.loads(record)[field.key] for record in batch.records(lines)]
        fixed = pl.DataFrame(
            {_LINE: lines, field.name: [[text] if text else [] for text in found]},
            schema={_LINE: pl.Int64, field.name: pl.List(pl.String)},
        )
        return frame.update(fixed, on=_LINE, how="left")


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


def _no_faults() -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(schema={_LINE: pl.Int64, "reason": pl.String, "text": pl.String})
