"""Rows on their way into the store: one frame type, one order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipelines.errors import ContractError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

__all__ = ["RowGroups", "check_order", "to_polars"]


class RowGroups:
    """Frames of any size in, frames of equal size out, each in one piece of memory.

    Parameters
    ----------
    size
        Rows of each frame that comes out (count).

    Attributes
    ----------
    waiting
        Rows that are held back (count).
    """

    def __init__(self, size: int) -> None:
        self.waiting = 0
        self._size = size
        self._held: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Take rows; the whole frames that there are now."""
        start = 0
        while start < frame.height:
            piece = frame.slice(start, self._size - self.waiting)
            self._held.append(piece)
            self.waiting += piece.height
            start += piece.height
            if self.waiting == self._size:
                yield self.rest()
        if self._held and frame.height > self._size:
            # A slice keeps the whole frame that it was cut from in memory.
            self._held = [_copy(self._held[0])]

    def rest(self) -> pl.DataFrame:
        """The rows held back; there must be some."""
        import polars as pl

        held, self._held, self.waiting = self._held, [], 0
        return pl.concat(held, rechunk=True)


def _copy(frame: pl.DataFrame) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    table = frame.to_arrow()
    return pl.DataFrame(table.take(np.arange(table.num_rows)))


def to_polars(rows: pl.DataFrame | pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Rows as a polars frame, without a copy where that is possible."""
    import polars as pl

    if isinstance(rows, pl.DataFrame):
        return rows
    frame = pl.from_arrow(rows)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(f"a table is needed, not {type(rows).__name__}")
    return frame


def check_order(
    last: pl.DataFrame | None, frame: pl.DataFrame, order: Sequence[str], dataset: str
) -> pl.DataFrame:
    """Check that rows strictly ascend by ``order``; nulls come first, text by its UTF-8 bytes.

    Parameters
    ----------
    last
        What this function returned for the rows before, or None if these are the first.
    frame
        At least one row.
    order
        Columns that strictly ascend, the most significant first.
    dataset
        The table that errors name.

    Returns
    -------
    pl.DataFrame
        The last row's order columns.

    Raises
    ------
    ContractError
        Two rows have the same key, or rows are out of order; with the first such pair.
    """
    import polars as pl

    keys = frame.select(order)
    if last is not None:
        keys = pl.concat([last, keys])
    ascends, same = pl.lit(False), pl.lit(True)
    for column in reversed(order):
        value, before = pl.col(column), pl.col(column).shift(1)
        above = (value > before).fill_null(value.is_not_null() & before.is_null())
        equal = value.eq_missing(before)
        ascends, same = above | (equal & ascends), same & equal
    # The first row has no predecessor.
    wrong = keys.select(ascends=ascends, same=same).with_row_index().slice(1)
    wrong = wrong.filter(~pl.col("ascends"))
    if wrong.height:
        at, same_key = wrong["index"][0], wrong["same"][0]
        pair = [
            {name: str(value)[:200] for name, value in row.items()}
            for row in keys.slice(at - 1, 2).to_dicts()
        ]
        raise ContractError(
            f"{int(wrong['same'].sum())} rows share a key ({', '.join(order)})"
            if same_key
            else f"rows are out of order: {pair[1]} comes after {pair[0]}",
            where=dataset,
            hint=None if same_key else f"append rows sorted by {', '.join(order)}",
            details={"rows": pair, "columns": list(order)},
        )
    # Built anew: a slice would keep the whole frame in memory.
    return pl.DataFrame(keys.tail(1).to_dicts(), schema=keys.schema)
