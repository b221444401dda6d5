"""Prompts that begin alike, laid out as one row of tokens.

Sorted prompts form a forest: what several begin with stands in the row once, and each token
sees the tokens that it follows in its own prompt, no others. One forward pass over the row,
with the forest as its attention mask and each token's place in its own prompt as its position,
computes what a pass per prompt would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["Forest", "Ids", "adjacent_prefixes", "common_prefix", "sort_key"]

Ids = npt.NDArray[np.int32]


def sort_key(prompt: Ids) -> bytes:
    """Bytes that order prompts by their tokens, so that those that begin alike are neighbours."""
    return prompt.astype(">i4").tobytes()


def common_prefix(one: Ids, other: Ids) -> int:
    """How many tokens two prompts begin with in common (count).

    >>> common_prefix(np.array([5, 6, 7], np.int32), np.array([5, 6, 8, 9], np.int32))
    2
    """
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


@dataclass(slots=True)
class Forest:
    """A row being laid out.

    Parameters
    ----------
    base
        Tokens that stand before every prompt and are not in the row, because their keys and
        values are known (count).

    Attributes
    ----------
    ids
        Token of each place of the row.
    positions
        Place of that token in its own prompt, from 0.

    Examples
    --------
    >>> forest = Forest()
    >>> forest.add(np.array([7, 8, 9], np.int32))
    2
    >>> forest.add(np.array([7, 8, 5, 6], np.int32))
    4
    >>> forest.ids, forest.positions
    ([7, 8, 9, 5, 6], [0, 1, 2, 2, 3])
    >>> forest.mask().astype(int)
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
    _branches: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, prompt: Ids) -> int:
        """Lay out a prompt, less the base; return the place of its last token.

        Prompts come in the order of :func:`sort_key` and are longer than the base.
        """
        rest = prompt[self.base :]
        shared = common_prefix(self._last, rest)
        start = len(self.ids)
        new = rest[shared:]
        if len(new):
            before = int(self._path[shared - 1]) if shared else -1
            self._runs.append((start, start + len(new), before))
            self.ids.extend(new.tolist())
            first = self.base + shared
            self.positions.extend(range(first, first + len(new)))
        grown = np.arange(start, start + len(new))
        self._path = np.concatenate([self._path[:shared], grown])
        self._last = rest
        return int(self._path[-1])

    def path(self) -> npt.NDArray[np.int64]:
        """Places of the tokens of the prompt that was added last, in its order."""
        return self._path

    def branch(self, place: int, token: int) -> int:
        """Put one token behind the token at a place; return its own place.

        The same token behind the same place stands in the row once.
        """
        known = self._branches.get((place, token))
        if known is not None:
            return known
        at = len(self.ids)
        self._runs.append((at, at + 1, place))
        self.ids.append(token)
        self.positions.append(self.positions[place] + 1)
        self._branches[(place, token)] = at
        return at

    def mask(self) -> npt.NDArray[np.bool_]:
        """Whether the token of a row sees the token of a column; shape (tokens, tokens)."""
        size = len(self.ids)
        seen = np.zeros((size, size), dtype=np.bool_)
        for start, stop, before in self._runs:
            if before >= 0:
                seen[start:stop, :start] = seen[before, :start]
            seen[start:stop, start:stop] = _triangle(stop - start)
        return seen


def _triangle(size: int) -> npt.NDArray[np.bool_]:
    return np.tri(size, dtype=np.bool_)


def adjacent_prefixes(prompts: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Tokens that each prompt begins with in common with the one before it; 0 for the first."""
    return np.array([0, *(common_prefix(a, b) for a, b in pairwise(prompts))], dtype=np.int64)
