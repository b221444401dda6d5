"""Search in a graph memory: the neighbours of many queries at once.

Scores of all items, with cosines in single precision, only choose the few items whose exact scores
decide. Path counts are whole numbers, so that the order in which they are summed is irrelevant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import GraphSettings
from pipelines.graph._path_counts import (
    Acts,
    Codes,
    PathCounts,
    Vector,
    ranges,
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


def path_shares(base: PathCounts, item: int, others: Sequence[int]) -> list[dict[str, float]]:
    """Share of each path in s(item, other), by name, largest first, for each of the others."""
    here = base.row(item)
    crossed = {}
    for left, right in base.item_paths:
        if left != right:
            nodes, ways = base.blocks[left].row(item)
            crossed[left, right] = np.zeros(base.blocks[left].width)
            crossed[left, right][nodes] = ways
    out = []
    for other in others:
        together = base.shared(here, other)
        scale = 2.0 / float(base.item_trips[item] + base.item_trips[other] or 1.0)
        shares = []
        for path, (left, right) in zip(base.paths.items, base.item_paths, strict=True):
            if left == right:
                count = float(together[base.held[right]])
            else:
                nodes, ways = base.blocks[right].row(other)
                count = float(np.einsum("i,i", crossed[left, right][nodes], ways))
            if count > 0:
                shares.append((path.name, count * scale))
        # Stable: paths with equal shares stay in the order they are declared in.
        out.append(dict(sorted(shares, key=lambda pair: -pair[1])))
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
    """A user and what it did beyond the release."""

    #: Code, or None for the community alone.
    user: int | None
    acts: Acts | None


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
        counts = (self.items >= 0).sum(axis=1).tolist()
        return [names[n * width : n * width + count] for n, count in enumerate(counts)]


class _Users:
    """Similarity of readers to every item, and the part of the scores that it adds."""

    def __init__(
        self, base: PathCounts, settings: GraphSettings, readers: Sequence[Reader]
    ) -> None:
        self.alone = np.asarray([reader.user is None for reader in readers])
        #: Of shape (readers, items), 0 to 1; 0 for the community alone.
        self.similarity = np.zeros((len(readers), base.items))
        for low in range(0, len(readers), _BLOCK_USERS):
            some = readers[low : low + _BLOCK_USERS]
            walks = {
                at: user_walks(base, reader.user, reader.acts)
                for at, reader in enumerate(some)
                if reader.user is not None
            }
            if not walks:
                continue
            weights = np.stack([each.weights for each in walks.values()], axis=1)
            counts = np.asarray((base.matrix @ weights).T)
            for at, row, each in zip(walks, counts, walks.values(), strict=True):
                self.similarity[low + at] = each.similarity(row)
        self.part: Single = ((1.0 - settings.alpha) * self.similarity).astype(np.float32)


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
            reached = users.similarity[readers] > 0
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
        """Path similarity, the user's and the cosine of pairs."""
        base, items = self.base, self.codes[rows]
        trips = base.item_trips
        pathsim = combine(self.counts[rows, others], trips[items], trips[others])
        user = users.similarity[readers, others]
        user[users.alone[readers] | self.lonely[rows]] = np.nan
        cosine = np.full(len(rows), np.nan)
        embedded = self.embedded[rows]
        if embedded.any():
            cosine[embedded] = base.pair_cosines(items[embedded], others[embedded])
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
    """The best k neighbours of every query.

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
        walks, codes = user_walks(base, reader.user, reader.acts), items[at]
        entries = ranges(starts[codes], sizes[codes])
        products = base.matrix.data[entries] * walks.weights[base.matrix.indices[entries]]
        counts = summed(np.repeat(np.arange(len(codes)), sizes[codes]), products, len(codes))
        for place, code in enumerate(codes.tolist() if walks.over_acts else ()):
            counts[place] += walks.over_acts.get(code, 0.0)
        out[at] = combine(counts, np.asarray(walks.round_trips), walks.item_trips[codes])
    return out
