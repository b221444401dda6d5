"""One query of a graph memory: counts, score, the best, and what each is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.config import GraphSettings
from pipelines.graph._memory_base import Base
from pipelines.graph._memory_blocks import Codes, Vector
from pipelines.graph._memory_growth import Growth
from pipelines.graph._memory_tables import Ratings
from pipelines.graph._memory_types import Basis, Parts
from pipelines.graph._memory_user import spread_into
from pipelines.graph._pathsim import combine

__all__ = ["Found", "Query", "others_mean", "search"]

#: Decimals that scores are ranked and given by, as in the table of similar items.
_DECIMALS = 6
#: Largest difference between the fast score (float32 cosines) and the exact one, with room.
_MARGIN = 1e-5


@dataclass(frozen=True, slots=True)
class Found:
    """A neighbour by code."""

    item: int
    score: float
    parts: Parts
    basis: Basis
    paths: dict[str, float]


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked, and of what.

    Attributes
    ----------
    base, growth
        The graph.
    settings
        Weights.
    item
        Code of the query item.
    user
        Counts from the user, see :func:`~pipelines.graph._memory_user.user_counts`, or None.
    """

    base: Base
    growth: Growth
    settings: GraphSettings
    item: int
    user: Vector | None


def search(query: Query, k: int) -> Iterator[Found]:
    """The best neighbours of a query, best first."""
    base, settings, x = query.base, query.settings, query.item
    trips = _grown(base.item_trips, query.growth.item_trips)
    lonely = trips[x] == 0
    counts = np.zeros(base.items) if lonely else _counts(query)
    pathsim = combine(counts, trips[x], trips)
    scores = settings.alpha * pathsim
    candidates = counts > 0
    by_user: Vector | None = None
    if query.user is not None and not lonely:
        user_trips = _grown(base.user_item_trips, query.growth.user_item_trips)
        by_user = combine(query.user[:-1], query.user[-1], user_trips)
        scores += (1.0 - settings.alpha) * by_user
        candidates |= by_user > 0
    weight = settings.embedding_weight
    cosines = base.cosines(x) if weight else None
    if cosines is not None and base.embedded is not None:
        scores += weight * cosines
        candidates |= base.embedded
    candidates[x] = False
    scores[~candidates] = -np.inf
    near = _near(scores, k)
    exact = base.exact_cosines(x, near) if cosines is not None else None
    total = settings.alpha * pathsim[near]
    if by_user is not None:
        total += (1.0 - settings.alpha) * by_user[near]
    if exact is not None:
        total += weight * np.nan_to_num(exact)
    rounded = np.round(total, _DECIMALS) + 0.0
    # Ids ascend with codes, so a tie that goes to the lower code goes to the lower id.
    order = np.lexsort((near, -rounded))[:k]
    shares = _Shares(query) if counts.any() else None
    for at in order.tolist():
        y = int(near[at])
        similar = None if by_user is None else float(by_user[y])
        cosine = None if exact is None or np.isnan(exact[at]) else float(exact[at])
        if counts[y] > 0:
            basis: Basis = "paths"
        else:
            basis = "user" if similar else "embedding"
        scale = 2.0 / float(trips[x] + trips[y]) if counts[y] > 0 else 0.0
        yield Found(
            y,
            float(rounded[at]),
            Parts(float(pathsim[y]), similar, cosine),
            basis,
            shares.of(y, scale) if shares is not None and counts[y] > 0 else {},
        )


def others_mean(ratings: Ratings, growth: Growth, item: int) -> float | None:
    """Mean of all ratings of an item in the graph, or None."""
    more, further = growth.rated.get(item, (0.0, 0))
    number = int(ratings.counts[item]) + further
    return float(ratings.sums[item] + more) / number if number else None


def _counts(query: Query) -> Vector:
    """Path instances from the query to every item, with what was added."""
    base, growth, x = query.base, query.growth, query.item
    known = base.counts(x)
    if not growth.edges:
        return known
    out = known.copy()
    for left, right in base.item_paths:
        columns = growth.columns[right]
        width = base.blocks[right].width
        # (L + ΔL)·(R + ΔR) - L·R: new walks from x to all that is at their ends ...
        for node, by in growth.rows[left].get(x, {}).items():
            if node < width:
                items, ways = base.column(right, node)
                out[items] += by * ways
            if node in columns:
                spread_into(out, columns[node], by)
        # ... and known walks from x to where something new ends.
        for node in growth.old_nodes[right]:
            ways_there = base.blocks[left].value(x, node)
            if ways_there:
                spread_into(out, columns[node], ways_there)
    return out


class _Shares:
    """How much each path has in the counts between the query and a neighbour."""

    def __init__(self, query: Query) -> None:
        base, x = query.base, query.item
        self._query = query
        self._names = [path.name for path in base.paths.items]
        self._here = base.row(x)
        self._crossed = {}
        for left, right in base.item_paths:
            if left != right:
                block = base.blocks[left]
                nodes, ways = block.row(x)
                dense = np.zeros(block.width)
                dense[nodes] = ways
                self._crossed[left, right] = dense

    def of(self, y: int, scale: float) -> dict[str, float]:
        """Path counts times `scale` by name, largest first."""
        base, growth, x = self._query.base, self._query.growth, self._query.item
        together = base.shared(self._here, y)
        found = []
        for name, (left, right) in zip(self._names, base.item_paths, strict=True):
            if left == right:
                count = float(together[base.held[right]])
            else:
                nodes, ways = base.blocks[right].row(y)
                count = float(np.einsum("i,i", self._crossed[left, right][nodes], ways))
            if growth.edges:
                for node, by in growth.rows[left].get(x, {}).items():
                    count += by * growth.value(right, y, node)
                for node, by in growth.rows[right].get(y, {}).items():
                    count += by * base.blocks[left].value(x, node)
            if count > 0:
                found.append((name, float(count * scale)))
        # Stable: paths with equal shares stay in the order they are declared in.
        return dict(sorted(found, key=lambda pair: -pair[1]))


def _near(scores: Vector, k: int) -> Codes:
    """Codes of all that may be among the first `k`."""
    bound = np.partition(scores, -k)[-k] if len(scores) > k else -np.inf
    return np.flatnonzero((scores >= bound - _MARGIN) & (scores > -np.inf))


def _grown(known: Vector, more: dict[int, float]) -> Vector:
    if not more:
        return known
    out = known.copy()
    spread_into(out, more, 1.0)
    return out
