"""Blocks of sound records, read in bulk by Arrow: half the work.

Arrow's reader is strict about types and text, but tells neither which line it could not take nor
which line a row came from. So it is asked first, and only where every line is surely one row of
the declared types is its answer taken; the blocks that it refuses are DuckDB's (``_json_lines``).
Values that are kept as JSON text are DuckDB's in any case: Arrow has no such column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.sources._json_sql import JsonField
from pipelines.sources._original import Block

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow

__all__ = ["bulk_rows"]

#: Bytes that one thread of Arrow takes at a time.
_PIECE = 2 << 20
_OPEN, _CLOSE, _RETURN = ord("{"), ord("}"), ord("\r")


def bulk_rows(
    body: Block, starts: np.ndarray[Any, Any], fields: Sequence[JsonField]
) -> pl.DataFrame | None:
    """The rows of a block of lines, or None if any line needs a closer look.

    Parameters
    ----------
    body
        Whole lines of UTF-8.
    starts
        Where each begins, and the end.
    fields
        What to take; those kept as JSON text are left out of the rows.
    """
    import polars as pl
    import pyarrow as pa
    from pyarrow import json

    if not _objects(body, starts):
        return None
    taken = [f for f in fields if f.kind != "json"]
    try:
        table = json.read_json(
            pa.BufferReader(pa.py_buffer(body)),
            read_options=json.ReadOptions(
                block_size=max(_PIECE, int((starts[1:] - starts[:-1]).max()))
            ),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema([(f.key, _arrow_type(f)) for f in taken]),
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    # Every line begins an object and ends one, so that as many rows as lines are one of each: a
    # second object on a line would need another line that has none.
    if table.num_rows != len(starts) - 1 or any(
        f.required and table[f.key].null_count for f in taken
    ):
        return None
    frame = pl.DataFrame(table).select(_column(f) for f in taken)
    numbers = [pl.col(f.name).is_finite().all() for f in taken if f.kind == "number"]
    return frame if not numbers or all(frame.select(numbers).row(0)) else None


def _arrow_type(field: JsonField) -> pyarrow.DataType:
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "number": pa.float64(),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
        "texts": pa.list_(pa.string()),
    }
    return types[field.kind]


def _column(field: JsonField) -> pl.Expr:
    import polars as pl

    value = pl.col(field.key).alias(field.name)
    return value.fill_null([]) if field.kind == "texts" else value


def _objects(body: Block, starts: np.ndarray[Any, Any]) -> bool:
    """Whether every line begins with ``{`` and ends with ``}``."""
    import numpy as np

    data = np.frombuffer(body, dtype=np.uint8)
    ends = starts[1:] - 1
    if data[-1] != ord("\n"):
        ends[-1] += 1
    last = data[np.maximum(ends - 1, 0)]
    last = np.where(last == _RETURN, data[np.maximum(ends - 2, 0)], last)
    return bool((data[starts[:-1]] == _OPEN).all() and (last == _CLOSE).all())
