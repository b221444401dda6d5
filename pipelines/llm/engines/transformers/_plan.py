"""Which prompts share a row, and which prefix is computed before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipelines.llm.engines.transformers._forest import Ids, adjacent_prefixes

__all__ = ["Row", "plan_rows"]

#: A prefix shorter than this is not worth a forward pass of its own (tokens).
MIN_BASE = 32


@dataclass(frozen=True, slots=True)
class Row:
    """Prompts ``start`` to ``stop`` (exclusive) of the sorted ones, in one forward pass.

    Attributes
    ----------
    base
        Tokens they all begin with that are computed before, once (count; 0: nothing is).
    """

    start: int
    stop: int
    base: int


class _Costs:
    """Tokens and readings of a range of sorted prompts, against the limits of a row."""

    def __init__(
        self, prompts: Sequence[Ids], extra: Sequence[int], row_tokens: int, row_reads: int
    ) -> None:
        self.lengths = np.array([len(p) for p in prompts], dtype=np.int64)
        self.near = adjacent_prefixes(prompts)
        more = np.array(extra, dtype=np.int64)
        self._new = np.concatenate([[0], np.cumsum(self.lengths - self.near + more)])
        self._reads = np.concatenate([[0], np.cumsum(more + 1)])
        self._limits = row_tokens, row_reads

    def fits(self, row: Row) -> bool:
        """Whether the range may be one row."""
        # The first prompt of a row has no neighbour in it to share with.
        new = int(self._new[row.stop] - self._new[row.start] + self.near[row.start])
        reads = int(self._reads[row.stop] - self._reads[row.start])
        return new - row.base <= self._limits[0] and reads <= self._limits[1]

    def shared(self, row: Row) -> int:
        """Tokens that all prompts of the range begin with."""
        if row.stop - row.start == 1:
            return int(self.lengths[row.start])
        return int(self.near[row.start + 1 : row.stop].min())


def plan_rows(
    prompts: Sequence[Ids], extra: Sequence[int], *, row_tokens: int, row_reads: int
) -> list[Row]:
    """Rows that hold every prompt once, in order.

    What fits one row goes in one row, where whatever is shared stands once. What doesn't, and
    begins with at least :data:`MIN_BASE` tokens in common, has those computed before as a base,
    once for all the rows it fills.

    Parameters
    ----------
    prompts
        Token ids in the order of :func:`~pipelines.llm.engines.transformers._forest.sort_key`.
    extra
        Tokens to read beyond each prompt (count).
    row_tokens, row_reads
        Most tokens and next-token distributions of a row (counts). A prompt whose own readings
        exceed them has a row to itself.
    """
    costs = _Costs(prompts, extra, row_tokens, row_reads)
    rows: list[Row] = []
    waiting = [Row(0, len(prompts), 0)] if prompts else []
    while waiting:
        row = waiting.pop()
        if costs.fits(row):
            _append(rows, row, costs)
            continue
        shared = costs.shared(row)
        # A prompt's last token is always in the row, where its answer is read.
        base = min(shared, int(costs.lengths[row.start : row.stop].min()) - 1)
        if base - row.base >= MIN_BASE:
            waiting.append(Row(row.start, row.stop, base))
        elif row.stop - row.start == 1:
            rows.append(row)
        else:
            waiting.extend(reversed(_children(row, costs.near, shared)))
    return rows


def _append(rows: list[Row], row: Row, costs: _Costs) -> None:
    """Add a row, to the last one if both have the same base and fit together."""
    if rows and rows[-1].base == row.base:
        both = Row(rows[-1].start, row.stop, row.base)
        if costs.shared(both) >= row.base and costs.fits(both):
            rows[-1] = both
            return
    rows.append(row)


def _children(row: Row, near: npt.NDArray[np.int64], shared: int) -> list[Row]:
    """The range cut where neighbours share no more than all do."""
    inner = np.flatnonzero(near[row.start + 1 : row.stop] <= shared) + row.start + 1
    cuts = [row.start, *inner.tolist(), row.stop]
    return [Row(a, b, row.base) for a, b in pairwise(cuts)]
