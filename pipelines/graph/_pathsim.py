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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from pipelines.graph._index import GraphIndex, half_matrix, round_trips
from pipelines.graph._schema import MetaPath, MetaPaths, Step

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
#: Codes of nodes that a user acted on beyond the graph, by step from the user.
Acts: TypeAlias = Mapping[Step, Sequence[int]]
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
        """True if counts come from a dense product (few middle nodes with many walks each)."""
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


class PathSim:
    """Similarity along a domain's meta-paths.

    Paths without an instance take no part.
    """

    def __init__(self, index: GraphIndex, paths: MetaPaths) -> None:
        self.index, self._paths = index, paths
        self.groups = _grouped(index, paths.items)
        self.user_paths = tuple(
            path
            for path in paths.users
            if half_matrix(index, path, "right").nnz and index.step_matrix(path.left[0]).nnz
        )

    @property
    def items(self) -> int:
        """Number of items."""
        return self.index.count(self.index.item_type)

    @property
    def declared(self) -> tuple[MetaPath, ...]:
        """All paths between items, as they are declared."""
        return self._paths.items

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

    def user_similarity(
        self, user: int, items: Codes | None = None, acts: Acts | None = None
    ) -> Floats:
        """s(u, y) of a user and some items (default: every one), of shape (items,), in 0 to 1.

        It is that of a graph that has the user's ``acts`` as edges, too: its walks begin with them,
        and the items that it acted on are reached over itself (decision 34). Codes of new nodes,
        the user's own among them, go on where the graph's end.
        """
        acts, index, chosen = acts or {}, self.index, slice(None) if items is None else items
        counts, user_trips = np.zeros(self.items)[chosen], 0.0
        trips = self.user_round_trips.copy() if acts else self.user_round_trips
        added = np.zeros(self.items)
        for path in self._paths.users:
            right, first = half_matrix(index, path, "right"), index.step_matrix(path.left[0])
            over = self._over_user(path, user, acts)
            begins = bool(first.nnz or acts.get(path.left[0]))
            # A path without an instance takes no part, as in the table.
            if not (begins and (right.nnz or over)):
                continue
            if not (first.nnz and right.nnz):
                trips = trips + round_trips(index, path, "right")
            walks, middle = self._walks(user, path.left, acts), right.shape[1]
            counts += (right if items is None else right[items]) @ walks[:middle]
            # Not a BLAS product, whose threads would wait for each other on a busy machine.
            user_trips += float(np.einsum("i,i", walks, walks))
            for reached, more in over:
                size = min(len(more), len(walks))
                added[reached] += np.einsum("i,i", more[:size], walks[:size])
                trips[reached] += np.einsum("i,i", more, more)
                trips[reached] += 2.0 * (right[reached] @ more[:middle])
        return combine(counts + added[chosen], np.asarray(user_trips), trips[chosen])

    def _walks(self, user: int, steps: Sequence[Step], acts: Acts) -> Floats:
        """Numbers of walks from a user along some steps, by code of their end."""
        here = np.zeros(max(self.index.count("User"), user + 1))
        here[user] = 1.0
        for step in steps:
            matrix = self.index.step_matrix(step)
            rows = np.flatnonzero(here[: matrix.shape[0]])
            there = np.asarray(here[rows] @ matrix[rows], dtype=np.float64)
            codes = np.asarray(acts.get(step, ()), dtype=np.int64)
            ways = here[user] if step.head_type == "User" else 0.0
            if step.tail_type == "User":
                # The step leads back to the user over what it acted on.
                back = np.asarray(acts.get(step.inverse, ()), dtype=np.int64)
                codes, ways = np.array([user]), here[back[back < len(here)]].sum()
            if len(codes) and ways:
                longest = max(len(there), int(codes.max()) + 1)
                there = np.pad(there, (0, longest - len(there)))
                np.add.at(there, codes, ways)
            here = there
        return here

    def _over_user(self, path: MetaPath, user: int, acts: Acts) -> list[tuple[Codes, Floats]]:
        """Walks of items over the user that the graph lacks: items, and numbers by their ends."""
        first, onward = path.right[0], path.right[1:]
        if not acts or first.tail_type != "User":
            return []
        new = np.asarray(acts.get(first.inverse, ()), dtype=np.int64)
        every = self._walks(user, onward, acts)
        more = every.copy()
        before = self._walks(user, onward, {})
        more[: len(before)] -= before
        old = self.index.neighbours(first.inverse, user)
        return [(i, w) for i, w in ((new, every), (old, more)) if len(i) and w.any()]

    def warm(self) -> None:
        """Make every matrix that is made on first use, before threads share this object."""
        for group in self.groups:
            _ = group.dense, group._right_t
        _ = self.round_trips, self.user_round_trips


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
