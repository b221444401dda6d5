"""Search in a graph memory: the neighbours of one query, and of many at once.

Many queries are answered from matrices, and equal one query at a time: scores of all items, with
cosines in single precision, only choose the few items whose exact scores decide, which are then
computed by the formulas of a single query. Path counts are whole numbers, so that the order in
which they are summed is irrelevant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import GraphSettings
from pipelines.graph._path_counts import (
    AddedCounts,
    Codes,
    PathCounts,
    Vector,
    ranges,
    reached_growth,
    spread_into,
    summed,
    user_walks,
)
from pipelines.graph._pathsim import combine

Single = npt.NDArray[np.float32]

#: Evidence for a neighbour: `paths` join it to the query; none does, but to the `user`;
#: or there is only its `embedding` (always so if the query has no edge that a path begins with).
Basis = Literal["paths", "user", "embedding"]


@dataclass(frozen=True, slots=True)
class Parts:
    """Components of the score of a neighbour y of the query x for the user u.

    ``score = alpha * pathsim + (1 - alpha) * user_similarity + embedding_weight * cosine``
    (SimUSER, formula 5 and appendix D); a part that is None counts as 0.
    """

    #: s(x, y), 0-1: paths between the two items over the mean of their paths to themselves.
    pathsim: float
    #: s(u, y), 0-1, by the same counts; None if there is no user or the search is by embedding
    #: alone.
    user_similarity: float | None
    #: Cosine of the two node embeddings, -1 to 1; None if either item has none.
    cosine: float | None


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
    """A query item with the graph and weights to search by."""

    #: The graph.
    base: PathCounts
    growth: AddedCounts
    #: Weights.
    settings: GraphSettings
    #: Code of the query item.
    item: int
    #: Counts from the user, see :func:`~pipelines.graph._path_counts.user_counts`, or None.
    user: Vector | None


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The best neighbours of a query, best first, and what their scores are made of."""

    items: Codes
    score: Vector
    counts: Vector
    pathsim: Vector
    similar: Vector | None
    cosine: Vector | None
    trips: Vector


def search(query: Query, k: int) -> Iterator[Found]:
    """The best neighbours of a query, best first."""
    ranked, x = _ranked(query, k), query.item
    shares = _Shares(query) if ranked.counts.any() else None
    for at, y in enumerate(ranked.items.tolist()):
        similar = None if ranked.similar is None else float(ranked.similar[at])
        cosine = None if ranked.cosine is None else float(ranked.cosine[at])
        joined = bool(ranked.counts[at] > 0)
        basis: Basis = "paths" if joined else "user" if similar else "embedding"
        scale = 2.0 / float(ranked.trips[x] + ranked.trips[y]) if joined else 0.0
        yield Found(
            y,
            float(ranked.score[at]),
            Parts(
                float(ranked.pathsim[at]),
                similar,
                None if cosine is None or np.isnan(cosine) else cosine,
            ),
            basis,
            shares.of(y, scale) if shares is not None and joined else {},
        )


def _ranked(query: Query, k: int) -> _Ranked:
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
    similar = None if by_user is None else by_user[near]
    rounded = _score(settings, pathsim[near], similar, exact)
    # Ids ascend with codes, so a tie that goes to the lower code goes to the lower id.
    order = np.lexsort((near, -rounded))[:k]
    best = near[order]
    return _Ranked(
        best,
        rounded[order],
        counts[best],
        pathsim[best],
        None if similar is None else similar[order],
        None if exact is None else exact[order],
        trips,
    )


def _score(
    settings: GraphSettings, pathsim: Vector, similar: Vector | None, cosine: Vector | None
) -> Vector:
    """Ranking scores of neighbours; NaN counts as 0."""
    total = settings.alpha * pathsim
    if similar is not None:
        total += (1.0 - settings.alpha) * np.nan_to_num(similar)
    if cosine is not None:
        total += settings.embedding_weight * np.nan_to_num(cosine)
    return np.asarray(np.round(total, _DECIMALS) + 0.0)


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
    for reached, ways_there in reached_growth(base, growth, x):
        spread_into(out, reached, ways_there)
    return out


class _Shares:
    """Share of each path in the counts between the query and a neighbour."""

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


#: Bytes that the users' counts of one chunk may take.
_CHUNK_BYTES = 256 * 2**20
#: Query items whose counts are computed together.
_BLOCK_ITEMS = 128
#: Queries whose scores are computed together.
_BLOCK_QUERIES = 256
#: Users whose walks are spread over the items together.
_BLOCK_USERS = 64


@dataclass(frozen=True, slots=True)
class Reader:
    """A user (code, or None for the community alone) with the additions visible to it."""

    growth: AddedCounts
    user: int | None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Neighbours of many queries, best first, as arrays of shape (queries, k)."""

    #: Codes in `ids`, -1 where a query has fewer than k neighbours.
    items: Codes
    #: See :class:`Parts`; NaN where there is no neighbour, as in all the other arrays.
    score: Vector
    #: On the memory's scale; NaN for an unrated item.
    rating: Vector
    #: Whether the rating is the user's own, not the mean of everybody else's.
    own: npt.NDArray[np.bool_]
    #: Components of the score; NaN where :class:`Parts` has None.
    pathsim: Vector
    user_similarity: Vector
    cosine: Vector
    #: Item ids by code, ascending.
    ids: pl.Series

    def __len__(self) -> int:
        return len(self.items)

    def item_ids(self) -> list[list[str]]:
        """Ids of each query's neighbours, best first; as many as there are."""
        names = self.ids.gather(np.maximum(self.items, 0).ravel()).to_list()
        width = self.items.shape[1]
        there = (self.items >= 0).sum(axis=1).tolist()
        return [names[n * width : n * width + count] for n, count in enumerate(there)]


class _Users:
    """Path counts of readers to every item, and the part of the scores that they add."""

    def __init__(
        self, base: PathCounts, settings: GraphSettings, readers: Sequence[Reader]
    ) -> None:
        self.readers = readers
        #: Counts from each reader to every item and, last, back to itself.
        self.counts = np.zeros((len(readers), base.items + 1))
        self.part: Single = np.zeros((len(readers), base.items), dtype=np.float32)
        for low in range(0, len(readers), _BLOCK_USERS):
            some = readers[low : low + _BLOCK_USERS]
            walks = [None if r.user is None else user_walks(base, r.growth, r.user) for r in some]
            weights = np.zeros((base.columns, len(some)))
            for at, walk in enumerate(walks):
                if walk is not None:
                    weights[:, at] = walk.weights
            counts = self.counts[low : low + len(some)]
            counts[:, :-1] = (base.matrix @ weights).T
            for row, walk in zip(counts, walks, strict=True):
                if walk is not None:
                    row[-1] = walk.own
                    for items, factor in walk.grown:
                        spread_into(row, items, factor)
            # Readers with additions are searched for one by one, with round trips of their own.
            similar = combine(counts[:, :-1], counts[:, -1:], base.user_item_trips)
            self.part[low : low + len(some)] = (1.0 - settings.alpha) * similar

    def query(self, base: PathCounts, settings: GraphSettings, reader: int, item: int) -> Query:
        """Query of one reader."""
        who = self.readers[reader]
        counts = None if who.user is None else self.counts[reader]
        return Query(base, who.growth, settings, item, counts)


class _Items:
    """Path counts from a block of query items to every item, and their part of the scores."""

    def __init__(self, base: PathCounts, settings: GraphSettings, codes: Codes) -> None:
        self.base, self.settings, self.codes = base, settings, codes
        self.counts = base.counts_of(codes)
        trips = base.item_trips
        #: Items from which no path leads anywhere: their embedding alone answers for them.
        self.lonely = trips[codes] == 0
        similar = combine(self.counts, trips[codes][:, None], trips[None, :])
        self.part: Single = (settings.alpha * similar).astype(np.float32)
        #: Whether cosines count, by query item.
        self.embedded = np.zeros(len(codes), dtype=np.bool_)
        everywhere = False
        if settings.embedding_weight and base.vectors is not None and base.embedded is not None:
            self.embedded = base.embedded[codes]
            everywhere = bool(base.embedded.all())
            self.part += np.float32(settings.embedding_weight) * (
                base.vectors[codes] @ base.vectors.T
            )
        #: Whether nothing but the user's paths can make an item a candidate; None: never so.
        self.excluded: npt.NDArray[np.bool_] | None = None
        if not everywhere:
            self.excluded = self.counts == 0
            if base.embedded is not None:
                self.excluded &= ~(self.embedded[:, None] & base.embedded[None, :])
        self.part[np.arange(len(codes)), codes] = -np.inf

    def near(self, users: _Users, rows: Codes, readers: Codes, k: int) -> tuple[Codes, Codes]:
        """Pairs of a query and an item that may be among its first `k`."""
        lonely = self.lonely[rows]
        by_user = users.part[readers]
        by_user[lonely] = 0.0
        scores = self.part[rows]
        scores += by_user
        if self.excluded is not None:
            reached = users.counts[readers, :-1] > 0
            reached[lonely] = False
            scores[self.excluded[rows] & ~reached] = -np.inf
        bound = _lower_bounds(scores, k)
        query, item = np.nonzero(
            (scores >= bound[:, None] - np.float32(_MARGIN)) & (scores > -np.inf)
        )
        return query, item

    def exact(
        self, users: _Users, rows: Codes, readers: Codes, others: Codes
    ) -> tuple[Vector, Vector, Vector]:
        """Path similarity, the user's and the cosine of pairs, as a single query has them."""
        base, items = self.base, self.codes[rows]
        trips = base.item_trips
        pathsim = combine(self.counts[rows, others], trips[items], trips[others])
        user = combine(
            users.counts[readers, others], users.counts[readers, -1], base.user_item_trips[others]
        )
        alone = np.asarray([reader.user is None for reader in users.readers])
        user[alone[readers] | self.lonely[rows]] = np.nan
        cosine = np.full(len(rows), np.nan)
        known = self.embedded[rows]
        if known.any():
            cosine[known] = base.pair_cosines(items[known], others[known])
        return pathsim, user, cosine


def _lower_bounds(scores: Single, k: int) -> Single:
    """A bound by row that at least `k` values reach (-inf if there are fewer).

    The k-th largest of the maxima of disjoint parts: much cheaper than the k-th largest of all.
    """
    rows, items = scores.shape
    parts = max(128, 8 * k)
    folds = items // parts
    if folds > 1:
        head = scores[:, : folds * parts].reshape(rows, folds, parts).max(axis=1)
        scores = np.concatenate([head, scores[:, folds * parts :]], axis=1)
        items = scores.shape[1]
    if items < k:
        return np.full(rows, -np.inf, dtype=np.float32)
    return np.asarray(np.partition(scores, items - k, axis=1)[:, items - k])


class _Answers:
    """Neighbours by query, as they are found."""

    def __init__(self, queries: int, k: int) -> None:
        self.items = np.full((queries, k), -1, dtype=np.intp)
        #: Score, path similarity, user similarity and cosine.
        self.values = np.full((4, queries, k), np.nan)

    def put(self, queries: Codes, items: Codes, values: tuple[Vector, ...], k: int) -> None:
        """Add candidates of some queries, all those of one query in one call."""
        order = np.lexsort((items, -values[0], queries))
        queries = queries[order]
        rank = np.arange(len(order)) - np.searchsorted(queries, queries)
        best = rank < k
        at = queries[best], rank[best]
        self.items[at] = items[order][best]
        for into, value in zip(self.values, values, strict=True):
            into[at] = value[order][best]


def search_many(
    base: PathCounts,
    settings: GraphSettings,
    readers: Sequence[Reader],
    reader_of: Codes,
    items: Codes,
    k: int,
) -> tuple[Codes, npt.NDArray[np.float64]]:
    """The best k neighbours of every query, equal to those of :func:`search`.

    ``readers`` are distinct; ``reader_of`` and ``items`` are, per query, the number of the reader
    and the code of the query item. Returns codes of neighbours, of shape (queries, k), -1 where
    there are fewer; and score, path similarity, user similarity and cosine, of shape (4, queries,
    k), NaN where there is none.
    """
    answers = _Answers(len(items), k)
    size = max(1, _CHUNK_BYTES // (8 * max(1, base.items)))
    for low in range(0, len(readers), size):
        users = _Users(base, settings, readers[low : low + size])
        queries = np.flatnonzero((reader_of >= low) & (reader_of < low + size))
        with_additions = np.asarray([bool(r.growth.edges) for r in users.readers])
        alone = with_additions[reader_of[queries] - low]
        for query in queries[alone].tolist():
            asked = users.query(base, settings, int(reader_of[query]) - low, int(items[query]))
            found = _ranked(asked, k)
            there = len(found.items)
            answers.items[query, :there] = found.items
            values = (found.score, found.pathsim, found.similar, found.cosine)
            for into, value in zip(answers.values, values, strict=True):
                into[query, :there] = np.nan if value is None else value
        queries = queries[~alone]
        queries = queries[np.argsort(items[queries], kind="stable")]
        distinct, rows = np.unique(items[queries], return_inverse=True)
        for first in range(0, len(distinct), _BLOCK_ITEMS):
            block = _Items(base, settings, distinct[first : first + _BLOCK_ITEMS])
            start, end = np.searchsorted(rows, [first, first + _BLOCK_ITEMS])
            for at in range(int(start), int(end), _BLOCK_QUERIES):
                some = slice(at, min(at + _BLOCK_QUERIES, int(end)))
                row, reader = rows[some] - first, reader_of[queries[some]] - low
                query, others = block.near(users, row, reader, k)
                parts = block.exact(users, row[query], reader[query], others)
                score = _score(settings, *parts)
                answers.put(queries[some][query], others, (score, *parts), k)
    return answers.items, answers.values


def user_similarities(
    base: PathCounts, readers: Sequence[Reader], reader_of: Codes, items: Codes
) -> Vector:
    """s(u, x) of pairs of a reader and an item, of shape (pairs,), 0 without a user.

    Costs the entries of the items' rows, not the size of the graph.
    """
    out = np.zeros(len(items))
    order = np.argsort(reader_of, kind="stable")
    bounds = np.searchsorted(reader_of[order], np.arange(len(readers) + 1))
    starts, sizes = base.matrix.indptr[:-1], np.diff(base.matrix.indptr)
    for number, reader in enumerate(readers):
        at = order[bounds[number] : bounds[number + 1]]
        if reader.user is None or not len(at):
            continue
        walks, codes = user_walks(base, reader.growth, reader.user), items[at]
        entries = ranges(starts[codes], sizes[codes])
        products = base.matrix.data[entries] * walks.weights[base.matrix.indices[entries]]
        counts = summed(np.repeat(np.arange(len(codes)), sizes[codes]), products, len(codes))
        more = reader.growth.user_item_trips
        trips = base.user_item_trips[codes]
        if reader.growth.edges:
            for place, code in enumerate(codes.tolist()):
                counts[place] += sum(by.get(code, 0.0) * factor for by, factor in walks.grown)
                trips[place] += more.get(code, 0.0)
        out[at] = combine(counts, np.asarray(walks.own), trips)
    return out
