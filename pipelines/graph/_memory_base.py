"""The shared, read-only part of a graph memory: counts of paths, ready to be queried by row.

With L and R the counts of walks from items to the middle of a path, s(x, y) needs one row of
L·Rᵀ at a time. All right sides stand beside each other in one matrix, so the row, summed over
all paths, is one product of a matrix and a vector; nothing of items × items is ever stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.graph._index import GraphIndex, round_trips
from pipelines.graph._memory_blocks import (
    Codes,
    Kept,
    Vector,
    Walk,
    block_numbers,
    frozen,
    joined_blocks,
    ranges,
    summed,
)
from pipelines.graph._metapaths import MetaPath, MetaPaths
from pipelines.graph._schema import Step

__all__ = ["Base", "Place", "Steps", "UserPath"]

#: A walk whose steps are numbers, see :meth:`Base.encoded`.
Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an edge type stands in a walk from items.

    Attributes
    ----------
    walk
        Number of the walk.
    backward
        Whether it is walked against its direction there.
    back
        The steps from it back to the start.
    onward
        The steps after it.
    """

    walk: int
    backward: bool
    back: Steps
    onward: Steps


@dataclass(frozen=True, slots=True)
class UserPath:
    """A path from a user, in the form that is fastest to evaluate.

    Attributes
    ----------
    walk
        Its steps from the user to the middle.
    rest
        The walk after the first step, as a number of a walk from items; -1 if the first step
        leads elsewhere or there is no further one.
    right
        The item's walk, as a number.
    """

    walk: Steps
    rest: int
    right: int


class Base:
    """Path counts of a graph, immutable and shared by every copy of a memory.

    Parameters
    ----------
    index
        The graph.
    paths
        Meta-paths to count.
    vectors
        Unit node embeddings of shape (items, dimension), float32, zero where an item has
        none; or None.
    cache_bytes
        How much may be kept of rows that were computed (bytes).
    """

    def __init__(
        self,
        index: GraphIndex,
        paths: MetaPaths,
        vectors: npt.NDArray[np.float32] | None,
        cache_bytes: int,
    ) -> None:
        self.index = index
        self.paths = paths
        self.items = index.count(index.item_type)
        self.vectors = vectors
        self.embedded: npt.NDArray[np.bool_] | None = (
            None if vectors is None else np.asarray(vectors.any(axis=1))
        )
        self.walks: tuple[Walk, ...] = _walks(paths, index.item_type)
        number = {walk: n for n, walk in enumerate(self.walks)}
        #: Left and right walk of every item path, as numbers.
        self.item_paths = tuple((number[p.left], number[p.right]) for p in paths.items)
        self.edge_numbers = {edge: n for n, edge in enumerate(index.schema.edges)}
        self.user_paths = tuple(
            UserPath(self.encoded(p.left), number.get(p.left[1:], -1), number[p.right])
            for p in paths.users
        )
        self.matrix, self.blocks, self.held = joined_blocks(index, self.walks, self._right_sides())
        self.columns = self.matrix.shape[1]
        self._block_of = block_numbers(self.blocks, self.held, self.columns)
        self.item_trips: Vector = _total(index, paths.items, self.items)
        self.user_item_trips: Vector = _total(index, paths.users, self.items, "right")
        self._twice, self._crossed = self._weights()
        self._by_column = self.matrix.tocsc()
        self._column_sizes = np.diff(self._by_column.indptr)
        capacity = max(8, cache_bytes // (8 * max(1, self.items)))
        self._rows: Kept = Kept(capacity // 2)
        self._cosines: Kept = Kept(capacity // 4)
        self.users: Kept = Kept(capacity // 4)
        self._list_places()

    def counts(self, item: int) -> Vector:
        """Path instances from an item to every item, over all paths; of shape (items,)."""
        found = self._rows.get(item)
        if found is None:
            weights = np.zeros(self.columns)
            start, end = self.matrix.indptr[item], self.matrix.indptr[item + 1]
            columns = self.matrix.indices[start:end]
            weights[columns] = self.matrix.data[start:end] * self._twice[columns]
            for left, right in self._crossed:
                nodes, values = self.blocks[left].row(item)
                weights[self.blocks[right].offset + nodes] += values
            found = self._rows.put(item, self.spread(weights))
        return found

    def spread(self, weights: Vector) -> Vector:
        """The product of the matrix with weights of its columns; of shape (items,)."""
        columns = np.flatnonzero(weights)
        touched = int(self._column_sizes[columns].sum())
        # Gathering costs several passes over what it touches, the product one over everything.
        if touched * 8 < self.matrix.nnz:
            by = self._by_column
            at = ranges(by.indptr[columns], self._column_sizes[columns])
            values = by.data[at] * np.repeat(weights[columns], self._column_sizes[columns])
            return summed(by.indices[at], values, self.items)
        return np.asarray(self.matrix @ weights)

    def column(self, walk: int, node: int) -> tuple[Codes, Vector]:
        """Items that reach a node along a right-hand walk, and how often."""
        at = self.blocks[walk].offset + node
        part = slice(self._by_column.indptr[at], self._by_column.indptr[at + 1])
        return self._by_column.indices[part], self._by_column.data[part]

    def sum_rows(self, walk: int, items: Codes) -> Vector:
        """Sum of the rows of some items along a walk; of shape (middle nodes,)."""
        block = self.blocks[walk]
        starts = block.starts[items]
        at = ranges(starts, block.ends[items] - starts)
        return summed(block.indices[at] - block.offset, block.data[at], block.width)

    def cosines(self, item: int) -> Vector | None:
        """Cosine of an item's embedding with every item's; None if it has none."""
        if self.vectors is None or self.embedded is None or not self.embedded[item]:
            return None
        found = self._cosines.get(item)
        if found is None:
            # Not a BLAS product: its threads wait for each other when the machine is busy.
            cosines = np.einsum("ij,j->i", self.vectors, self.vectors[item])
            found = self._cosines.put(item, np.clip(cosines.astype(np.float64), -1.0, 1.0))
        return found

    def exact_cosines(self, item: int, others: Codes) -> Vector:
        """Cosines of an item's embedding with some others', NaN where one has none.

        Each depends on its two vectors only, unlike those of a matrix product.
        """
        assert self.vectors is not None
        assert self.embedded is not None
        here = self.vectors[item].astype(np.float64)
        out = np.einsum("j,ij->i", here, self.vectors[others].astype(np.float64))
        np.clip(out, -1.0, 1.0, out=out)
        out[~self.embedded[others]] = np.nan
        return np.asarray(out)

    def row(self, item: int) -> Vector:
        """An item's row of the right-hand matrix, dense, of shape (columns,)."""
        out = np.zeros(self.columns)
        part = slice(self.matrix.indptr[item], self.matrix.indptr[item + 1])
        out[self.matrix.indices[part]] = self.matrix.data[part]
        return out

    def shared(self, row: Vector, item: int) -> Vector:
        """Product of a dense row with an item's, by block; of shape (blocks,)."""
        part = slice(self.matrix.indptr[item], self.matrix.indptr[item + 1])
        columns = self.matrix.indices[part]
        return summed(
            self._block_of[columns],
            row[columns] * self.matrix.data[part],
            max(self.held) + 1,
        )

    def forget(self) -> None:
        """Drop all results that were kept."""
        for kept in (self._rows, self._cosines, self.users):
            kept.forget()

    def encoded(self, walk: Walk) -> Steps:
        """A walk as numbers: twice that of the edge type, and one more against its direction."""
        return tuple(2 * self.edge_numbers[step.edge] + step.backward for step in walk)

    def neighbours(self, step: int, node: int) -> Codes:
        """Nodes that an encoded step leads to from a node, ascending; none if it is new."""
        known = self._adjacency[step]
        if known is None:
            edge = self.index.schema.edges[step >> 1]
            there = Step(edge.head_type, edge.relation, edge.tail_type, edge, False)
            matrix = self.index.step_matrix(there.inverse if step & 1 else there)
            known = self._adjacency[step] = (matrix.indptr, matrix.indices)
        indptr, indices = known
        if node + 1 >= len(indptr):
            return indices[:0]
        return indices[indptr[node] : indptr[node + 1]]

    def _list_places(self) -> None:
        """Where each edge type stands in the walks, and what a walk's count enters."""
        edges = self.index.schema.edges
        self._adjacency: list[tuple[Codes, Codes] | None] = [None] * (2 * len(edges))
        self.places: tuple[list[Place], ...] = tuple([] for _ in edges)
        for number, walk in enumerate(self.walks):
            steps = self.encoded(walk)
            for at, step in enumerate(steps):
                back = tuple(s ^ 1 for s in reversed(steps[:at]))
                self.places[step >> 1].append(Place(number, bool(step & 1), back, steps[at + 1 :]))
        count = range(len(self.walks))
        #: By walk: symmetric item paths and user paths in whose round trips its square is.
        self.item_squares = [self.item_paths.count((n, n)) for n in count]
        self.user_squares = [sum(p.right == n for p in self.user_paths) for n in count]
        #: By walk: for each of its middle nodes, whether walks that meet it there reach the node.
        self.met = [self._reached(n) for n in count]
        #: By walk: the other side of each item path that is not symmetric.
        self.crossed_with = [
            [b for a, b in self._crossed if a == n] + [a for a, b in self._crossed if b == n]
            for n in count
        ]

    def _reached(self, right: int) -> npt.NDArray[np.bool_]:
        out = np.zeros(self.blocks[right].width, dtype=np.bool_)
        for left in {a for a, b in self.item_paths if b == right}:
            block = self.blocks[left]
            if self.held[left] >= 0:
                sizes = self._column_sizes[block.offset : block.offset + block.width]
                out |= sizes > 0
            else:
                out[block.indices] = True
        return out

    def _right_sides(self) -> tuple[int, ...]:
        """Walks that stand on the right of a path, those of one history beside each other."""
        order = sorted(
            (path for path in self.user_paths if path.rest == path.right),
            key=lambda path: path.walk[0],
        )
        rights = [p.right for p in order] + [right for _, right in self.item_paths]
        rights += [p.right for p in self.user_paths]
        return tuple(dict.fromkeys(rights))

    def _weights(self) -> tuple[Vector, list[tuple[int, int]]]:
        """How many symmetric paths each column stands for, and the other paths."""
        twice = np.zeros(self.columns)
        crossed = []
        for left, right in self.item_paths:
            if left == right:
                block = self.blocks[right]
                twice[block.offset : block.offset + block.width] += 1.0
            else:
                crossed.append((left, right))
        return twice, crossed


def _walks(paths: MetaPaths, item_type: str) -> tuple[Walk, ...]:
    """Every distinct walk from items that a path needs."""
    found: list[Walk] = []
    for path in paths.items:
        found += [path.left, path.right]
    for path in paths.users:
        found.append(path.right)
        if len(path.left) > 1 and path.left[0].tail_type == item_type:
            found.append(path.left[1:])
    return tuple(dict.fromkeys(found))


def _total(index: GraphIndex, paths: Iterable[MetaPath], size: int, side: str = "left") -> Vector:
    total = np.zeros(size)
    for path in paths:
        total += round_trips(index, path, side)
    return frozen(total)
