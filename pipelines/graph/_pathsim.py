"""PathSim over a set of meta-paths (Sun et al. 2011; SimUSER, formula 5).

Counts of path instances are summed over all meta-paths 𝒫 before the ratio is taken:

    s(x, y) = 2·|p_x→y| / (|p_x→x| + |p_y→y|)

|p_x→y| counts instances of every path of 𝒫 from x to y. A path that comes back the way it went
has M = W·Wᵀ and gives a symmetric s between 0 and 1. One that does not (Movie-User-Rating-Movie)
enters as the formula has it, with the instances *from x to y* over those from x to x and from
y to y; s then need be neither symmetric nor at most 1, and nothing is clipped. (In the movie
graph it still is both: every rating is in exactly one rating node, so that path's instances are
as many as those of Movie-User-Movie Rate.)

For a user u the same formula holds with u in the place of x. A path from u to y is walked from
both ends to a node type in the middle; |p_u→u| and |p_y→y| count the walks to the middle and
back. With U and W the counts of walks of one path:

    s(u, y) = 2·Σ U[u]·W[y] / (Σ U[u]·U[u] + Σ W[y]·W[y])

Nothing here forms an items × items matrix: a caller asks for some rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pipelines.graph._index import GraphIndex, half_matrix, round_trips
from pipelines.graph._metapaths import MetaPath, MetaPaths
from pipelines.graph._schema import Step

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
#: A dense product beats the sparse one if it needs less than this many operations per path
#: instance (measured: BLAS makes about a hundred while the sparse product makes one) ...
_DENSE_GAIN = 100
#: ... and if its factors are small (values).
_DENSE_SIZE = 32_000_000


def combine(counts: Floats, start: Floats, end: Floats, out: Floats | None = None) -> Floats:
    """Formula 5: twice the instances between two nodes over those back to each of them.

    ``counts``, ``start`` and ``end`` are |p_x→y|, |p_x→x| and |p_y→y|, of shapes that broadcast
    together; ``out`` must be another array than ``counts``. 0 where nothing leads back to either
    node.

    >>> combine(np.array([2.0, 0.0]), np.array([3.0, 0.0]), np.array([1.0, 0.0])).tolist()
    [1.0, 0.0]
    """
    if out is None:
        out = np.empty(np.broadcast_shapes(np.shape(counts), np.shape(start), np.shape(end)))
    np.add(start, end, out=out)
    np.divide(counts, out, out=out, where=out > 0)
    return np.multiply(out, 2.0, out=out)


@dataclass(frozen=True)
class _Group:
    """Meta-paths whose counts are the same because their matrices are."""

    paths: tuple[MetaPath, ...]
    left: sparse.csr_array
    right: sparse.csr_array

    @cached_property
    def dense(self) -> bool:
        """Whether counts come from a dense product (few middle nodes with many walks each)."""
        items, middle = self.right.shape
        if max(items, self.left.shape[0]) * middle > _DENSE_SIZE:
            return False
        instances = float(
            np.asarray(self.left.sum(axis=0)).ravel() @ np.asarray(self.right.sum(axis=0)).ravel()
        )
        return bool(self.left.shape[0] * items * middle < _DENSE_GAIN * instances)

    @cached_property
    def _right_t(self) -> sparse.csr_array | Floats:
        if self.dense:
            return np.ascontiguousarray(self.right.toarray().T)
        return sparse.csr_array(self.right.T)

    def counts(self, rows: Codes, out: Floats) -> None:
        """Path instances from each of `rows` to every item, into `out` (rows, items)."""
        left = self.left[rows]
        if self.dense:
            np.matmul(left.toarray(), self._right_t, out=out)
        else:
            (left @ self._right_t).toarray(out=out)

    def warm(self) -> None:
        """Make what the first call would make, before threads share it."""
        _ = self.dense, self._right_t


class PathSim:
    """Similarity along a domain's meta-paths.

    Paths without an instance take no part.
    """

    def __init__(self, index: GraphIndex, paths: MetaPaths) -> None:
        self.index = index
        self.groups = _grouped(index, paths.items)
        self.user_paths = tuple(
            path
            for path in paths.users
            if half_matrix(index, path, "right").nnz and _first(index, path).nnz
        )

    @property
    def items(self) -> int:
        """Number of items."""
        return self.index.count(self.index.item_type)

    @property
    def paths(self) -> tuple[MetaPath, ...]:
        """Item paths that have an instance, grouped by equal counts."""
        return tuple(path for group in self.groups for path in group.paths)

    @cached_property
    def round_trips(self) -> Floats:
        """|p_x→x| over all item paths, of shape (items,), whole numbers."""
        out = np.zeros(self.items)
        for group in self.groups:
            out += len(group.paths) * round_trips(self.index, group.paths[0])
        return out

    @cached_property
    def user_round_trips(self) -> Floats:
        """|p_y→y| over all user paths, of shape (items,), whole numbers."""
        out = np.zeros(self.items)
        for path in self.user_paths:
            out += round_trips(self.index, path, "right")
        return out

    def group_counts(self, rows: Codes, out: Floats | None = None) -> Floats:
        """Path instances from some items to every item, by group of paths.

        Of shape (groups, rows, items), whole numbers; each counts once, whatever the number of
        paths in its group.
        """
        if out is None:
            out = np.empty((len(self.groups), len(rows), self.items))
        for group, block in zip(self.groups, out, strict=True):
            group.counts(rows, block)
        return out

    def counts(self, rows: Codes) -> Floats:
        """|p_x→y| over all item paths, of shape (rows, items), whole numbers."""
        return self.total(self.group_counts(rows))

    def total(self, by_group: Floats, out: Floats | None = None) -> Floats:
        """Counts of all paths from :meth:`group_counts`, of shape (rows, items)."""
        sizes = np.array([len(group.paths) for group in self.groups], dtype=np.float64)
        return np.asarray(np.einsum("g,gri->ri", sizes, by_group, out=out))

    def similarity(self, rows: Codes) -> Floats:
        """s(x, y) of some items and every item, of shape (rows, items)."""
        trips = self.round_trips
        return combine(self.counts(rows), trips[rows][:, None], trips[None, :])

    def user_similarity(self, user: int) -> Floats:
        """s(u, y) of a user and every item, of shape (items,), in 0 to 1."""
        counts, user_trips = np.zeros(self.items), 0.0
        for path in self.user_paths:
            walks = _walks_from(self.index, user, path.left)
            counts += (half_matrix(self.index, path, "right") @ walks.T).toarray().ravel()
            user_trips += float(walks.data @ walks.data)
        return combine(counts, np.asarray(user_trips), self.user_round_trips)

    def warm(self) -> None:
        """Make every matrix that is made on first use, before threads share this object."""
        for group in self.groups:
            group.warm()
        _ = self.round_trips


def _walks_from(index: GraphIndex, start: int, steps: Sequence[Step]) -> sparse.csr_array:
    """Counts of walks from one node, of shape (1, ends): never a users × users matrix."""
    row = index.step_matrix(steps[0])[[start], :]
    for step in steps[1:]:
        row = row @ index.step_matrix(step)
    return sparse.csr_array(row)


def _first(index: GraphIndex, path: MetaPath) -> sparse.csr_array:
    return index.step_matrix(path.left[0])


def _grouped(index: GraphIndex, paths: Sequence[MetaPath]) -> tuple[_Group, ...]:
    groups: list[_Group] = []
    for path in paths:
        left = half_matrix(index, path)
        right = left if path.symmetric else half_matrix(index, path, "right")
        if not (left.nnz and right.nnz):
            continue
        for number, group in enumerate(groups):
            if _same(left, group.left) and _same(right, group.right):
                groups[number] = _Group((*group.paths, path), group.left, group.right)
                break
        else:
            groups.append(_Group((path,), left, right))
    return tuple(groups)


def _same(a: sparse.csr_array, b: sparse.csr_array) -> bool:
    if a is b:
        return True
    return bool(
        a.shape == b.shape
        and a.nnz == b.nnz
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.data, b.data)
    )
