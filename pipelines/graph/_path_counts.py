"""Counts of paths of a graph memory: the shared base, and what one user added to it.

With L and R the counts of walks from items to the middle of a path, s(x, y) needs one row of
L·Rᵀ at a time. All right sides stand beside each other in one matrix, so the row, summed over
all paths, is one product of a matrix and a vector; nothing of items × items is ever stored.

Additions are kept as differences to the shared base, so that a memory of one simulated user
holds that user's own edges and nothing else. An edge changes the counts of a walk W from items
by (walks that end where it begins) × (walks that begin where it ends); only those entries are
touched, which makes the cost of adding the degree of its ends and not the size of the graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pipelines.graph._index import GraphIndex, round_trips
from pipelines.graph._metapaths import MetaPath, MetaPaths
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


class CountCache:
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
        """Store a result as read-only, and return it."""
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
    """The same array, made read-only."""
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


#: A walk whose steps are numbers, see :meth:`PathCounts.encoded`.
Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Position of an edge type in a walk from items."""

    #: Number of the walk.
    walk: int
    #: Whether it is walked against its direction there.
    backward: bool
    #: The steps from it back to the start.
    back: Steps
    #: The steps after it.
    onward: Steps


@dataclass(frozen=True, slots=True)
class UserPath:
    """A path from a user, in the form that is fastest to evaluate."""

    #: Its steps from the user to the middle.
    walk: Steps
    #: The walk after the first step, as a number of a walk from items; -1 if the first step leads
    #: elsewhere or there is no further one.
    rest: int
    #: The item's walk, as a number.
    right: int


class PathCounts:
    """Path counts of a graph, immutable and shared by every copy of a memory.

    ``vectors`` are unit node embeddings of shape (items, dimension), float32, zero where an item
    has none; ``cache_bytes`` bounds what is kept of rows that were computed.
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
        self._rows: CountCache = CountCache(capacity // 2)
        self._cosines: CountCache = CountCache(capacity // 4)
        self.users: CountCache = CountCache(capacity // 4)
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

    def counts_of(self, items: Codes) -> Vector:
        """:meth:`counts` of several items at once, of shape (rows, items)."""
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
        return self.pair_cosines(np.broadcast_to(np.intp(item), others.shape), others)

    def pair_cosines(self, items: Codes, others: Codes) -> Vector:
        """Cosines of pairs of items, NaN where either has no embedding; of shape (pairs,)."""
        assert self.vectors is not None
        assert self.embedded is not None
        here, there = self.vectors[items], self.vectors[others]
        out = np.einsum("ij,ij->i", here.astype(np.float64), there.astype(np.float64))
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
        """Index the positions of each edge type in the walks, and the counts that a walk enters."""
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


#: Differences of one walk's counts: by item, then node; and by node, then item.
_Rows = dict[int, dict[int, float]]


class AddedCounts:
    """Additions to a base. Cloned by the first of several owners who adds again.

    Attributes
    ----------
    nodes
        Codes of new nodes by type and id; they go on where the base's end.
    rows, columns
        Differences per walk of ``base.walks``.
    old_nodes
        Keys of `columns` that walks of the base reach, too.
    item_trips, user_item_trips
        Differences of the round trips, by item.
    ratings
        By user, then item: on the memory's scale.
    rated
        By item: sum and number of ratings added.
    edges
        Number of edges added, inverses not counted.
    """

    def __init__(self, base: PathCounts) -> None:
        walks = range(len(base.walks))
        self.base = base
        self.nodes: dict[str, dict[str, int]] = {}
        self.rows: list[_Rows] = [{} for _ in walks]
        self.columns: list[_Rows] = [{} for _ in walks]
        self.old_nodes: list[set[int]] = [set() for _ in walks]
        self.item_trips: dict[int, float] = {}
        self.user_item_trips: dict[int, float] = {}
        self.ratings: dict[int, dict[int, float]] = {}
        self.rated: dict[int, tuple[float, int]] = {}
        self.edges = 0
        self._next: dict[int, dict[int, list[int]]] = {}
        self._seen: set[tuple[int, int, int]] = set()

    def clone(self) -> AddedCounts:
        """A copy that shares nothing but the base."""
        other = AddedCounts(self.base)
        other.nodes = {kind: dict(codes) for kind, codes in self.nodes.items()}
        other.rows = [_clone(rows) for rows in self.rows]
        other.columns = [_clone(columns) for columns in self.columns]
        other.old_nodes = [set(nodes) for nodes in self.old_nodes]
        other.item_trips = dict(self.item_trips)
        other.user_item_trips = dict(self.user_item_trips)
        other.ratings = {user: dict(given) for user, given in self.ratings.items()}
        other.rated = dict(self.rated)
        other.edges = self.edges
        other._next = {
            step: {node: list(ends) for node, ends in lists.items()}
            for step, lists in self._next.items()
        }
        other._seen = set(self._seen)
        return other

    def code(self, kind: str, name: str) -> int | None:
        """Code of a node of the base or added, or None."""
        code = self.base.index.codes(kind).get(name)
        return code if code is not None else self.nodes.get(kind, {}).get(name)

    def new_node(self, kind: str, name: str) -> int:
        """Code of a node, which is made if there is none."""
        code = self.code(kind, name)
        if code is None:
            added = self.nodes.setdefault(kind, {})
            code = added[name] = self.base.index.count(kind) + len(added)
        return code

    def add(self, edge: int, head: int, tail: int) -> bool:
        """Add an edge of a type (its number) and its inverse; False if it was there before."""
        key = (edge, head, tail)
        forward, backward = 2 * edge, 2 * edge + 1
        if key in self._seen or _holds(self.base.neighbours(forward, head), tail):
            return False
        # The walks up to the edge must not use it yet, those after it may: so each new
        # instance of a walk that takes the edge more than once is counted at one place.
        places = self.base.places[edge]
        before = [self.walk(tail if p.backward else head, p.back) for p in places]
        self._seen.add(key)
        self._next.setdefault(forward, {}).setdefault(head, []).append(tail)
        self._next.setdefault(backward, {}).setdefault(tail, []).append(head)
        for place, items in zip(places, before, strict=True):
            after = self.walk(head if place.backward else tail, place.onward)
            for item, ways in items.items():
                for node, onward in after.items():
                    self._change(place.walk, item, node, ways * onward)
        self.edges += 1
        return True

    def rate(self, user: int, item: int, rating: float, before: float | None) -> None:
        """Keep a rating, in the place of an earlier one of the same user."""
        self.ratings.setdefault(user, {})[item] = rating
        total, count = self.rated.get(item, (0.0, 0))
        change = (rating, 1) if before is None else (rating - before, 0)
        self.rated[item] = (total + change[0], count + change[1])

    def added(self) -> list[tuple[int, int, int]]:
        """Every added edge: number of its type, head and tail, ordered."""
        return sorted(self._seen)

    def reached(self, step: int, node: int) -> Codes:
        """Nodes that a step leads to from a node, in the base and added."""
        known = self.base.neighbours(step, node)
        added = self._next.get(step, {}).get(node)
        if not added:
            return known
        return np.concatenate([known, np.asarray(added, dtype=known.dtype)])

    def walk(self, start: int, steps: Steps) -> dict[int, float]:
        """Number of walks along some steps from a node, by end."""
        ends = {start: 1.0}
        for step in steps:
            onward: dict[int, float] = {}
            for node, ways in ends.items():
                for end in self._ends(step, node):
                    onward[end] = onward.get(end, 0.0) + ways
            ends = onward
        return ends

    def value(self, walk: int, item: int, node: int) -> float:
        """Walks from an item to a node now."""
        added = self.rows[walk].get(item)
        return self.base.blocks[walk].value(item, node) + (added.get(node, 0.0) if added else 0.0)

    def _ends(self, step: int, node: int) -> Iterator[int]:
        yield from self.base.neighbours(step, node).tolist()
        yield from self._next.get(step, {}).get(node, ())

    def _change(self, walk: int, item: int, node: int, by: float) -> None:
        """Change one count, and the round trips that it is part of."""
        base = self.base
        old = self.value(walk, item, node)
        square = by * (2.0 * old + by)
        own = square * base.item_squares[walk]
        for other in base.crossed_with[walk]:
            own += by * self.value(other, item, node)
        if own:
            self.item_trips[item] = self.item_trips.get(item, 0.0) + own
        if base.user_squares[walk]:
            more = square * base.user_squares[walk]
            self.user_item_trips[item] = self.user_item_trips.get(item, 0.0) + more
        row = self.rows[walk].setdefault(item, {})
        row[node] = row.get(node, 0.0) + by
        met = base.met[walk]
        if node < len(met) and met[node]:
            self.old_nodes[walk].add(node)
        column = self.columns[walk].setdefault(node, {})
        column[item] = column.get(item, 0.0) + by


def _clone(rows: _Rows) -> _Rows:
    return {key: dict(row) for key, row in rows.items()}


def _holds(codes: Codes, code: int) -> bool:
    at = codes.searchsorted(code)
    return bool(at < len(codes) and codes[at] == code)


#: From this many entries on, NumPy is faster than a loop.
_MANY = 24


@dataclass(frozen=True, slots=True)
class UserWalks:
    """Walks of one user to the middle of all user paths."""

    #: Per column of the right-hand matrix, of shape (columns,): the counts from the user to an item
    #: are the product of the item's row with it.
    weights: Vector
    #: Path instances from the user back to itself.
    own: float
    #: Contributions of additions to the counts: counts by item, and their factor.
    grown: list[tuple[dict[int, float], float]]


def user_walks(base: PathCounts, growth: AddedCounts, user: int) -> UserWalks:
    """Walks of a user, with additions."""
    weights = np.zeros(base.columns)
    own = 0.0
    grown: list[tuple[dict[int, float], float]] = []
    sums: dict[tuple[int, bytes], Vector] = {}
    for path in base.user_paths:
        known, new = _profile(base, growth, path, user, sums)
        # Not a BLAS product, whose threads would wait for each other on a busy machine.
        own += float(np.einsum("i,i", known, known)) + sum(value * value for value in new.values())
        block = base.blocks[path.right]
        weights[block.offset : block.offset + block.width] += known
        for node, items in growth.columns[path.right].items():
            weight = float(known[node]) if node < len(known) else new.get(node, 0.0)
            if weight:
                grown.append((items, weight))
    return UserWalks(weights, own, grown)


def user_counts(base: PathCounts, growth: AddedCounts, user: int) -> Vector:
    """Path instances from a user to every item and, last, back to the user: (items + 1,) counts."""
    walks = user_walks(base, growth, user)
    out = np.empty(base.items + 1)
    out[:-1] = base.spread(walks.weights)
    out[-1] = walks.own
    for items, weight in walks.grown:
        spread_into(out, items, weight)
    return out


def reached_growth(
    base: PathCounts, growth: AddedCounts, item: int
) -> Iterator[tuple[dict[int, float], float]]:
    """Counts by other item that known walks of an item meet in additions, and their factor."""
    for left, right in base.item_paths:
        for node in growth.old_nodes[right]:
            ways_there = base.blocks[left].value(item, node)
            if ways_there:
                yield growth.columns[right][node], ways_there


def spread_into(out: Vector, entries: dict[int, float], factor: float) -> None:
    """Add `factor` times each entry to the element it is for."""
    if len(entries) < _MANY:
        for at, value in entries.items():
            out[at] += factor * value
    else:
        at_all = np.fromiter(entries.keys(), np.intp, len(entries))
        out[at_all] += factor * np.fromiter(entries.values(), np.float64, len(entries))


def _profile(
    base: PathCounts,
    growth: AddedCounts,
    path: UserPath,
    user: int,
    sums: dict[tuple[int, bytes], Vector],
) -> tuple[Vector, dict[int, float]]:
    """Walks from a user to the middle of a path: to nodes of the base, and to new ones."""
    width = base.blocks[path.right].width
    new: dict[int, float] = {}
    if path.rest < 0:
        out = np.zeros(width)
        for node, ways in growth.walk(user, path.walk).items():
            _put(out, new, node, ways)
        return out, new
    history: Codes = growth.reached(path.walk[0], user)
    # `viewed` often is `rated` under another name: the same history over the same block.
    key = (id(base.blocks[path.rest]), history.tobytes())
    if key not in sums:
        sums[key] = base.sum_rows(path.rest, history)
    rows = growth.rows[path.rest]
    if not rows:
        return sums[key], new
    out = sums[key].copy()
    for item in history.tolist():
        for node, ways in rows.get(item, {}).items():
            _put(out, new, node, ways)
    return out, new


def _put(out: Vector, new: dict[int, float], node: int, ways: float) -> None:
    if node < len(out):
        out[node] += ways
    else:
        new[node] = new.get(node, 0.0) + ways
