"""Blocks of sound records with plain fields, read in bulk by Arrow: half the work.

Arrow's reader is strict about types and text, but tells neither which line it could not take nor
which line a row came from. So it is asked first, and only where every line is surely one row of
the declared types is its answer taken; the blocks that it refuses are DuckDB's (``_json_lines``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.sources._json_sql import JsonField

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

__all__ = ["bulk_rows", "is_plain"]

#: Bytes that one thread of Arrow takes at a time.
_PIECE = 1 << 20
_OPEN, _CLOSE, _RETURN = ord("{"), ord("}"), ord("\r")


def is_plain(fields: Sequence[JsonField]) -> bool:
    """Whether Arrow can read all of the fields: no lists, nothing that is kept as JSON text."""
    return all(f.kind in ("text", "number", "integer", "boolean") for f in fields)


def bulk_rows(
    body: bytes, starts: np.ndarray[Any, Any], fields: Sequence[JsonField]
) -> pl.DataFrame | None:
    """The rows of a block of lines, or None if any line needs a closer look.

    Parameters
    ----------
    body
        Whole lines of UTF-8.
    starts
        Where each begins, and the end.
    fields
        Plain ones.
    """
    import polars as pl
    import pyarrow as pa
    from pyarrow import json

    if not _objects(body, starts):
        return None
    kinds = {"text": pa.string(), "number": pa.float64(), "integer": pa.int64()}
    schema = pa.schema([(f.key, kinds.get(f.kind, pa.bool_())) for f in fields])
    try:
        table = json.read_json(
            pa.BufferReader(body),
            read_options=json.ReadOptions(
                block_size=max(_PIECE, int((starts[1:] - starts[:-1]).max()))
            ),
            parse_options=json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    # Every line begins an object and ends one, so that as many rows as lines are one of each: a
    # second object on a line would need another line that has none.
    if table.num_rows != len(starts) - 1 or any(
        f.required and table[f.key].null_count for f in fields
    ):
        return None
    frame = pl.DataFrame(table).select(pl.col(f.key).alias(f.name) for f in fields)
    numbers = [pl.col(f.name).is_finite().all() for f in fields if f.kind == "number"]
    return frame if not numbers or all(frame.select(numbers).row(0)) else None


def _objects(body: bytes, starts: np.ndarray[Any, Any]) -> bool:
    """Whether every line begins with ``{`` and ends with ``}``."""
    import numpy as np

    data = np.frombuffer(body, dtype=np.uint8)
    ends = starts[1:] - 1
    if not body.endswith(b"\n"):
        ends[-1] += 1
    last = data[np.maximum(ends - 1, 0)]
    last = np.where(last == _RETURN, data[np.maximum(ends - 2, 0)], last)
    return bool((data[starts[:-1]] == _OPEN).all() and (last == _CLOSE).all())
