"""Counts of walks from items, as blocks of one sparse matrix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pipelines.graph._index import GraphIndex
from pipelines.graph._schema import Step

__all__ = [
    "Block",
    "Codes",
    "Kept",
    "Vector",
    "Walk",
    "block_numbers",
    "frozen",
    "joined_blocks",
    "ranges",
    "summed",
]

Vector = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]
Walk = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Counts of one walk from items to a node type, as rows of a (shared) sparse matrix.

    Attributes
    ----------
    indices, data
        Columns (with `offset` added) and counts of the matrix it lies in.
    starts, ends
        Where each item's entries begin and end in them.
    offset, width
        First column and number of columns, one per node of the middle type.
    """

    indices: Codes
    data: Vector
    starts: Codes
    ends: Codes
    offset: int
    width: int

    def row(self, item: int) -> tuple[Codes, Vector]:
        """Middle nodes that an item reaches, ascending, and how often."""
        part = slice(self.starts[item], self.ends[item])
        return self.indices[part] - self.offset, self.data[part]

    def value(self, item: int, node: int) -> float:
        """How often one item reaches one node; nodes beyond the width are new: never."""
        if node >= self.width:
            return 0.0
        start, end = self.starts[item], self.ends[item]
        at = start + self.indices[start:end].searchsorted(node + self.offset)
        if at < end and self.indices[at] == node + self.offset:
            return float(self.data[at])
        return 0.0


class Kept:
    """The results used last, up to a number of them; threads may share it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = max(1, capacity)
        self._values: OrderedDict[int, Vector] = OrderedDict()
        self._lock = Lock()

    def get(self, key: int) -> Vector | None:
        """The result kept under a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: int, value: Vector) -> Vector:
        """Keep a result, which nobody may write to from here on, and return it."""
        value.flags.writeable = False
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)
        return value

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._values.clear()


def frozen(values: Vector) -> Vector:
    """The same array, which nobody can write to any more."""
    values.flags.writeable = False
    return values


def ranges(starts: Codes, lengths: Codes) -> Codes:
    """The positions ``starts[i], starts[i] + 1, …`` of every range, one after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - ends + lengths, lengths)


def summed(places: Codes, values: Vector, size: int) -> Vector:
    return np.asarray(np.bincount(places, values, minlength=size), dtype=np.float64)


def joined_blocks(
    index: GraphIndex, walks: Sequence[Walk], rights: Sequence[int]
) -> tuple[sparse.csr_array, tuple[Block, ...], tuple[int, ...]]:
    """The right sides beside each other, where each walk's counts are, and in which block.

    The last is -1 for walks that stand only on the left.

    Walks with equal counts (a source that knows ratings only has `viewed` for each `rated`)
    share one block.
    """
    matrices = [index.walk_matrix(walk) for walk in walks]
    same = [_first_equal(matrices, walks, n) for n in range(len(walks))]
    held = tuple(dict.fromkeys(same[n] for n in rights))
    matrix = sparse.csr_array(sparse.hstack([matrices[n] for n in held], format="csr"))
    matrix.sort_indices()
    offsets = np.concatenate([[0], np.cumsum([matrices[n].shape[1] for n in held])])
    sizes = np.stack([np.diff(matrices[n].indptr) for n in held], axis=1)
    bounds = np.cumsum(sizes, axis=1) + matrix.indptr[:-1, None]
    blocks: dict[int, Block] = {}
    for at, n in enumerate(held):
        starts = bounds[:, at - 1] if at else matrix.indptr[:-1]
        blocks[n] = Block(
            matrix.indices,
            matrix.data,
            np.ascontiguousarray(starts),
            np.ascontiguousarray(bounds[:, at]),
            int(offsets[at]),
            matrices[n].shape[1],
        )
    for n in set(same) - set(held):
        own = matrices[n]
        blocks[n] = Block(own.indices, own.data, own.indptr[:-1], own.indptr[1:], 0, own.shape[1])
    numbers = {n: at for at, n in enumerate(held)}
    return matrix, tuple(blocks[n] for n in same), tuple(numbers.get(n, -1) for n in same)


def block_numbers(blocks: Sequence[Block], held: Sequence[int], columns: int) -> Codes:
    """Number of the block that each column of the right-hand matrix is in."""
    out = np.zeros(columns, dtype=np.intp)
    for block, number in zip(blocks, held, strict=True):
        if number >= 0:
            out[block.offset : block.offset + block.width] = number
    return out


def _first_equal(matrices: Sequence[sparse.csr_array], walks: Sequence[Walk], n: int) -> int:
    for other in range(n):
        a, b = matrices[other], matrices[n]
        if (
            walks[other][-1].tail_type == walks[n][-1].tail_type
            and a.nnz == b.nnz
            and np.array_equal(a.indptr, b.indptr)
            and np.array_equal(a.indices, b.indices)
            and np.array_equal(a.data, b.data)
        ):
            return other
    return n
