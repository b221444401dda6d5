"""Prompts that begin alike, laid out as one row of tokens.

Sorted prompts form a trie: what several begin with stands in the row once, and each token
sees the tokens that it follows in its own prompt, no others. One forward pass over the row,
with the trie as its attention mask and each token's place in its own prompt as its position,
computes what a pass per prompt would.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]

#: A prefix shorter than this is not worth a forward pass of its own (tokens).
MIN_BASE = 32


def sort_key(prompt: Ids) -> bytes:
    """Bytes that order prompts by their tokens, so that those that begin alike are neighbours."""
    return prompt.astype(">i4").tobytes()


def common_prefix(prompt: Ids, other: Ids) -> int:
    """Length of the common prefix of two prompts (tokens).

    >>> common_prefix(np.array([5, 6, 7], np.int32), np.array([5, 6, 8, 9], np.int32))
    2
    """
    size = min(len(prompt), len(other))
    differ = np.flatnonzero(prompt[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring tokens of a row, each behind the one before it.

    `before` holds the parts of the row, ``(start, stop)``, that their prompt begins with.
    """

    start: int
    stop: int
    before: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class PrefixTrie:
    """A row being laid out.

    ``base`` counts the tokens that stand before every prompt and are not in the row, because their
    keys and values are known. ``ids`` holds the token of each place of the row, ``positions`` its
    place in its own prompt, from 0.

    >>> trie = PrefixTrie()
    >>> trie.add(np.array([7, 8, 9], np.int32))
    2
    >>> trie.add(np.array([7, 8, 5, 6], np.int32))
    4
    >>> trie.ids, trie.positions
    ([7, 8, 9, 5, 6], [0, 1, 2, 2, 3])
    >>> trie.mask().astype(int)
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [1, 1, 1, 0, 0],
           [1, 1, 0, 1, 0],
           [1, 1, 0, 1, 1]])
    """

    base: int = 0
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    _runs: list[tuple[int, int, int]] = field(default_factory=list)
    _path: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    _last: Ids = field(default_factory=lambda: np.empty(0, np.int32))
    _tokens_at: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, prompt: Ids) -> int:
        """Lay out a prompt, less the base; return the place of its last token.

        Prompts come in the order of :func:`sort_key` and are longer than the base.
        """
        suffix = prompt[self.base :]
        shared = common_prefix(self._last, suffix)
        start = len(self.ids)
        new = suffix[shared:]
        if len(new):
            before = int(self._path[shared - 1]) if shared else -1
            self._runs.append((start, start + len(new), before))
            self.ids.extend(new.tolist())
            first = self.base + shared
            self.positions.extend(range(first, first + len(new)))
        grown = np.arange(start, start + len(new))
        self._path = np.concatenate([self._path[:shared], grown])
        self._last = suffix
        return int(self._path[-1])

    def path(self) -> npt.NDArray[np.int64]:
        """Places of the tokens of the prompt that was added last, in its order."""
        return self._path

    def append(self, place: int, token: int) -> int:
        """Put one token behind the token at a place; return its own place.

        The same token behind the same place stands in the row once.
        """
        existing = self._tokens_at.get((place, token))
        if existing is not None:
            return existing
        at = len(self.ids)
        self._runs.append((at, at + 1, place))
        self.ids.append(token)
        self.positions.append(self.positions[place] + 1)
        self._tokens_at[(place, token)] = at
        return at

    def runs(self) -> list[Run]:
        """Runs of the row, in order; together they are equivalent to :meth:`mask`.

        >>> trie = PrefixTrie()
        >>> for prompt in ([7, 8, 9], [7, 8, 5, 6]):
        ...     _ = trie.add(np.array(prompt, np.int32))
        >>> [(run.start, run.stop, run.before) for run in trie.runs()]
        [(0, 3, ()), (3, 5, ((0, 2),))]
        """
        runs: list[Run] = []
        for start, stop, behind in self._runs:
            before: tuple[tuple[int, int], ...] = ()
            if behind >= 0:
                parent = runs[bisect_right(runs, behind, key=lambda run: run.start) - 1]
                before = (*parent.before, (parent.start, behind + 1))
            runs.append(Run(start, stop, before))
        return runs

    def mask(self) -> npt.NDArray[np.bool_]:
        """Whether the token of a row sees the token of a column; shape (tokens, tokens)."""
        size = len(self.ids)
        seen = np.zeros((size, size), dtype=np.bool_)
        for start, stop, before in self._runs:
            if before >= 0:
                seen[start:stop, :start] = seen[before, :start]
            seen[start:stop, start:stop] = triangle(stop - start)
        return seen


def triangle(size: int) -> npt.NDArray[np.bool_]:
    """The mask of one run: each token sees itself and those before it."""
    return np.tri(size, dtype=np.bool_)


def adjacent_prefixes(prompts: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Tokens that each prompt begins with in common with the one before it; 0 for the first."""
    return np.array([0, *(common_prefix(a, b) for a, b in pairwise(prompts))], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Row:
    """Prompts ``start`` to ``stop`` (exclusive) of the sorted ones, in one forward pass.

    Their first ``base`` tokens are computed before, once (count; 0: none are).
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

    Prompts that fit share a row. Others that begin with at least :data:`MIN_BASE` tokens in common
    have those computed before as a base, once for all the rows they fill.

    ``prompts`` are token ids in the order of
    :func:`~pipelines.llm.engines.transformers._trie.sort_key`, ``extra`` the tokens to read beyond
    each (count). A row has at most ``row_tokens`` tokens and ``row_reads`` next-token distributions
    (counts); a prompt whose own readings exceed them has a row to itself.
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
