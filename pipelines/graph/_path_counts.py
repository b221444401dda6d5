"""Counts of paths of a graph memory: those of the release, and the walks of one user.

With L and R the counts of walks from items to the middle of a path, s(x, y) needs one row of
L·Rᵀ at a time. All right sides stand beside each other in one matrix, so the row, summed over
all paths, is one product of a matrix and a vector; nothing of items × items is ever stored.

What a user does changes that user's row and nothing else: its walks begin with the added edges,
and the items that it acted on are reached over itself (decision 34).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pipelines.graph._index import GraphIndex, half_matrix, round_trips
from pipelines.graph._metapaths import MetaPath, MetaPaths
from pipelines.graph._pathsim import combine
from pipelines.graph._schema import Step

Vector = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]
Walk = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Counts of one walk from items to a node type, as rows of a (shared) sparse matrix."""

    #: Columns (with `offset` added) and counts of the matrix it lies in.
    indices: Codes
    data: Vector
    #: First entry of each item in them, and the end.
    starts: Codes
    ends: Codes
    #: First column and number of columns, one per node of the middle type.
    offset: int
    width: int

    def row(self, item: int) -> tuple[Codes, Vector]:
        """Middle nodes that an item reaches, ascending, and how often."""
        part = slice(self.starts[item], self.ends[item])
        return self.indices[part] - self.offset, self.data[part]

    def value(self, item: int, node: int) -> float:
        """Walks from an item to a node; 0 for new nodes, which lie beyond the width."""
        if node >= self.width:
            return 0.0
        start, end = self.starts[item], self.ends[item]
        at = start + self.indices[start:end].searchsorted(node + self.offset)
        if at < end and self.indices[at] == node + self.offset:
            return float(self.data[at])
        return 0.0


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
        half = matrices[n]
        blocks[n] = Block(
            half.indices, half.data, half.indptr[:-1], half.indptr[1:], 0, half.shape[1]
        )
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


#: A walk whose steps are numbers, see :meth:`PathCounts.encoded`.
Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UserPath:
    """A path from a user, in the form that is fastest to evaluate."""

    #: Its steps from the user to the middle.
    walk: Steps
    #: The walk after the first step, as a number of a walk from items; -1 if the first step leads
    #: elsewhere or there is no further one.
    rest: int
    #: The item's walk, as a number, and its steps.
    right: int
    back: Steps
    #: Whether the item's walk begins with the people who acted on it.
    over_people: bool
    #: Whether any walk of the release begins as the user's does, and whether any item has the walk.
    begins: bool
    ends: bool


class PathCounts:
    """Path counts of a graph, immutable and shared by every copy of a memory.

    ``vectors`` are unit node embeddings of shape (items, dimension), float32, zero where an item
    has none.
    """

    def __init__(
        self,
        index: GraphIndex,
        paths: MetaPaths,
        vectors: npt.NDArray[np.float32] | None,
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
            UserPath(
                self.encoded(p.left),
                number.get(p.left[1:], -1),
                number[p.right],
                self.encoded(p.right),
                p.right[0].tail_type == "User",
                bool(index.step_matrix(p.left[0]).nnz),
                bool(half_matrix(index, p, "right").nnz),
            )
            for p in paths.users
        )
        self.matrix, self.blocks, self.held = joined_blocks(index, self.walks, self._right_sides())
        self.columns = self.matrix.shape[1]
        self._block_of = block_numbers(self.blocks, self.held, self.columns)
        self.item_trips: Vector = _total(index, paths.items, self.items)
        taking_part = [
            path
            for path, steps in zip(paths.users, self.user_paths, strict=True)
            if steps.begins and steps.ends
        ]
        #: Over the user paths that have an instance in the release.
        self.user_item_trips: Vector = _total(index, taking_part, self.items, "right")
        self._twice, self._crossed = self._weights()
        self._by_column = self.matrix.tocsc()
        self._adjacency: dict[int, tuple[Codes, Codes]] = {}

    def counts_of(self, items: Codes) -> Vector:
        """Path instances from some items to every item, over all paths; (rows, items)."""
        rows = self.matrix[items]
        weights = sparse.csr_array(
            (rows.data * self._twice[rows.indices], rows.indices, rows.indptr), shape=rows.shape
        )
        for left, right in self._crossed:
            # The left side's counts, where the columns of the right side are.
            block, offset = self.blocks[left], self.blocks[right].offset
            starts, lengths = block.starts[items], block.ends[items] - block.starts[items]
            at = ranges(starts, lengths)
            columns = block.indices[at] - block.offset + offset
            ends = np.concatenate([[0], np.cumsum(lengths)])
            weights = weights + sparse.csr_array((block.data[at], columns, ends), shape=rows.shape)
        return np.asarray((weights @ self._by_column.T).toarray(), dtype=np.float64)

    def sum_rows(self, walk: int, items: Codes) -> Vector:
        """Sum of the rows of some items along a walk; of shape (middle nodes,)."""
        block = self.blocks[walk]
        starts = block.starts[items]
        at = ranges(starts, block.ends[items] - starts)
        return summed(block.indices[at] - block.offset, block.data[at], block.width)

    def pair_cosines(self, items: Codes, others: Codes) -> Vector:
        """Cosines of pairs of items, NaN where either has no embedding; of shape (pairs,)."""
        assert self.vectors is not None
        assert self.embedded is not None
        left, right = self.vectors[items], self.vectors[others]
        out = np.einsum("ij,ij->i", left.astype(np.float64), right.astype(np.float64))
        np.clip(out, -1.0, 1.0, out=out)
        out[~(self.embedded[items] & self.embedded[others])] = np.nan
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
            self._block_of[columns], row[columns] * self.matrix.data[part], max(self.held) + 1
        )

    def encoded(self, walk: Walk) -> Steps:
        """A walk as numbers: twice that of the edge type, and one more against its direction."""
        return tuple(2 * self.edge_numbers[step.edge] + step.backward for step in walk)

    def neighbours(self, step: int, node: int) -> Codes:
        """Nodes that an encoded step leads to from a node, ascending; none if it is new."""
        cached = self._adjacency.get(step)
        if cached is None:
            edge = self.index.schema.edges[step >> 1]
            forward = Step(edge.head_type, edge.relation, edge.tail_type, edge, False)
            matrix = self.index.step_matrix(forward.inverse if step & 1 else forward)
            cached = self._adjacency[step] = (matrix.indptr, matrix.indices)
        indptr, indices = cached
        if node + 1 >= len(indptr):
            return indices[:0]
        return indices[indptr[node] : indptr[node + 1]]

    def walk(self, starts: Iterable[int], steps: Steps) -> dict[int, float]:
        """Number of walks along some steps from some nodes, by end."""
        ends: dict[int, float] = {}
        for start in starts:
            ends[start] = ends.get(start, 0.0) + 1.0
        for step in steps:
            onward: dict[int, float] = {}
            for node, ways in ends.items():
                for end in self.neighbours(step, node).tolist():
                    onward[end] = onward.get(end, 0.0) + ways
            ends = onward
        return ends

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
        """Symmetric paths per column (count), and the asymmetric paths."""
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
    walks: list[Walk] = []
    for path in paths.items:
        walks += [path.left, path.right]
    for path in paths.users:
        walks.append(path.right)
        if len(path.left) > 1 and path.left[0].tail_type == item_type:
            walks.append(path.left[1:])
    return tuple(dict.fromkeys(walks))


def _total(index: GraphIndex, paths: Iterable[MetaPath], size: int, side: str = "left") -> Vector:
    total = np.zeros(size)
    for path in paths:
        total += round_trips(index, path, side)
    total.flags.writeable = False
    return total


@dataclass(slots=True)
class Acts:
    """What one user did beyond the release."""

    #: Codes of the nodes that were acted on, by encoded step.
    ends: dict[int, list[int]] = field(default_factory=dict)
    #: Latest rating by item code, on the memory's scale.
    ratings: dict[int, float] = field(default_factory=dict)

    def copy(self) -> Acts:
        """The same acts; what is added to one does not reach the other."""
        ends = {step: list(nodes) for step, nodes in self.ends.items()}
        return Acts(ends, dict(self.ratings))


def holds(codes: Codes, code: int) -> bool:
    """Whether ascending codes have one."""
    at = codes.searchsorted(code)
    return bool(at < len(codes) and codes[at] == code)


@dataclass(frozen=True, slots=True)
class UserWalks:
    """Walks of one user to the middle of all user paths."""

    #: Per column of the right-hand matrix, of shape (columns,): the counts from the user to an item
    #: are the product of the item's row with it.
    weights: Vector
    #: Path instances from the user back to itself.
    round_trips: float
    #: Path instances from each item back to it, of shape (items,).
    item_trips: Vector
    #: Path instances from the user over added edges, by item code.
    over_acts: dict[int, float]

    def similarity(self, counts: Vector) -> Vector:
        """s(u, y) of the user and every item, of shape (items,), 0 to 1.

        ``counts``, which are changed, are the product of the matrix with the weights.
        """
        for item, more in self.over_acts.items():
            counts[item] += more
        return combine(counts, np.asarray(self.round_trips), self.item_trips)


def user_walks(base: PathCounts, user: int, acts: Acts | None) -> UserWalks:
    """Walks of a user, as in a graph that has the user's acts, too."""
    weights = np.zeros(base.columns)
    back = 0.0
    trips = base.user_item_trips.copy() if acts else base.user_item_trips
    over_acts: dict[int, float] = {}
    sums: dict[tuple[int, bytes], Vector] = {}
    for path, declared in zip(base.user_paths, base.paths.users, strict=True):
        over = _over_user(base, path, user, acts) if acts and path.over_people else {}
        begins = path.begins or bool(acts and path.walk[0] in acts.ends)
        # A path without an instance takes no part, as in the table.
        if not (begins and (path.ends or over)):
            continue
        if not (path.begins and path.ends):
            trips += round_trips(base.index, declared, "right")
        counts, new = _ends(base, path, user, acts, sums)
        # Not a BLAS product, whose threads would wait for each other on a busy machine.
        back += float(np.einsum("i,i", counts, counts)) + sum(n * n for n in new.values())
        block = base.blocks[path.right]
        weights[block.offset : block.offset + block.width] += counts
        for (item, node), ways in over.items():
            reached = float(counts[node]) if node < len(counts) else new.get(node, 0.0)
            over_acts[item] = over_acts.get(item, 0.0) + ways * reached
            trips[item] += ways * (2.0 * block.value(item, node) + ways)
    return UserWalks(weights, back, trips, over_acts)


def _ends(
    base: PathCounts,
    path: UserPath,
    user: int,
    acts: Acts | None,
    sums: dict[tuple[int, bytes], Vector],
) -> tuple[Vector, dict[int, float]]:
    """Numbers of walks from a user to the middle of a path: nodes of the release, new nodes."""
    first = base.neighbours(path.walk[0], user)
    added = acts.ends.get(path.walk[0], []) if acts else []
    if path.rest >= 0:
        history = np.concatenate([first, np.asarray(added, dtype=first.dtype)])
        # `viewed` often is `rated` under another name: the same history over the same block.
        key = (id(base.blocks[path.rest]), history.tobytes())
        if key not in sums:
            sums[key] = base.sum_rows(path.rest, history)
        out = sums[key]
    else:
        out = np.zeros(base.blocks[path.right].width)
        for node, ways in base.walk([*first.tolist(), *added], path.walk[1:]).items():
            if node < len(out):
                out[node] += ways
    new: dict[int, float] = {}
    if acts and len(path.walk) == 1:
        new = {node: 1.0 for node in added if node >= len(out)}
    if acts and len(path.walk) == 2:
        # The second step leads back to the user over what it acted on.
        back = {*acts.ends.get(path.walk[1] ^ 1, [])}
        ways = float(len(back.intersection(first.tolist()) | back.intersection(added)))
        if ways and user < len(out):
            out = out.copy()
            out[user] += ways
        elif ways:
            new[user] = ways
    return out, new


def _over_user(
    base: PathCounts, path: UserPath, user: int, acts: Acts
) -> dict[tuple[int, int], float]:
    """Walks over the user that the release lacks, by item and node in the middle."""
    step, onward = path.back[0] ^ 1, path.back[1:]
    added = acts.ends.get(step, [])
    if not onward:
        return {(item, user): 1.0 for item in added}
    out: dict[tuple[int, int], float] = {}
    for items, starts in (
        (added, base.neighbours(onward[0], user).tolist()),
        ([*base.neighbours(step, user).tolist(), *added], acts.ends.get(onward[0], [])),
    ):
        for node, ways in base.walk(starts, onward[1:]).items() if items else ():
            for item in items:
                out[item, node] = out.get((item, node), 0.0) + ways
    return out
