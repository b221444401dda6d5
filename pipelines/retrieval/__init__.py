"""Retrieval: which past items a simulated user thinks of when it meets an item.

>>> import numpy as np, polars as pl
>>> items = pl.DataFrame({"item_id": ["ml:1", "ml:2"], "genres": [["Drama"], ["Comedy"]]})
>>> recent = open_retriever("recent", items=items)
>>> recent.select(np.array([0]), np.array([[1, 0]]), np.array([[4.0, 2.0]]), 1).tolist()
[[1]]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ConfigError
from pipelines.graph import GraphIndex, PathSim, load_metapaths
from pipelines.scales import SCALES, RatingScale
from pipelines.seams import RETRIEVERS

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


#: Lower than any score, higher than padding.
_LOWEST = -np.finfo(np.float64).max


@runtime_checkable
class Retriever(Protocol):
    """Picks the past items that matter for a query item.

    ``pipelines.retrieval.testing.RetrieverContract`` is the class that an implementation's tests
    inherit.
    """

    @property
    def name(self) -> str:
        """Name that it was opened by."""

    @property
    def by_item(self) -> bool:
        """True if the choice depends on the query item."""

    def select(self, items: Ints, histories: Ints, ratings: Floats, k: int) -> Ints:
        """Select at most `k` past items for each query.

        Parameters
        ----------
        items
            Item number of each query, of shape (n,).
        histories
            Item numbers of each query's memory, oldest first, -1 padding at the end, of shape
            (n, h).
        ratings
            Their ratings, of shape (n, h); what stands in the padding is arbitrary.
        k
            Limit (count, at least 0).

        Returns
        -------
        Positions in each memory, oldest first, -1 padding at the end, of shape (n, k). Each
        row depends on its own query only.
        """


def latest(histories: Ints, k: int) -> Ints:
    """Positions of the `k` last items of each memory, oldest first.

    >>> latest(np.array([[7, 8, 9], [7, -1, -1]]), 2).tolist()
    [[1, 2], [0, -1]]
    """
    length = (histories >= 0).sum(axis=1)[:, None]
    at = np.arange(k)[None, :] + np.maximum(length - k, 0)
    return np.where(at < length, at, -1)


def newest_best(scores: Floats, histories: Ints, k: int) -> Ints:
    """Positions of the `k` best scores of each memory, as :meth:`Retriever.select` returns them.

    ``scores``, of shape (n, h), are of each remembered item; NaN (unknown) is the lowest. Ties are
    broken by recency.

    >>> newest_best(np.array([[0.5, 0.9, 0.5, 9.0]]), np.array([[3, 1, 4, -1]]), 2).tolist()
    [[1, 2]]
    """
    size = histories.shape[1]
    if size <= k:
        return latest(histories, k)
    filled = histories >= 0
    # Padding never comes before a remembered item.
    ranked = np.where(filled, scores, -np.inf)
    np.copyto(ranked, _LOWEST, where=np.isnan(ranked))
    # Newest first, so that a stable sort leaves the newest of equals in front.
    order = size - 1 - np.argsort(-ranked[:, ::-1], axis=1, kind="stable")[:, :k]
    if filled.all():
        return np.sort(order, axis=1)
    order = np.sort(np.where(filled[np.arange(len(order))[:, None], order], order, size), axis=1)
    return np.where(order < size, order, -1)


class SimilarityRetriever(ABC):
    """Base of retrievers of the items most like the query; ties are broken by recency."""

    by_item = True

    @abstractmethod
    def similarity(self, items: Ints, others: Ints) -> Floats:
        """Similarity of each item and its row of others, of shape (n, h); NaN where unknown."""

    def select(self, items: Ints, histories: Ints, ratings: Floats, k: int) -> Ints:  # noqa: ARG002
        """The `k` most similar; see :class:`pipelines.retrieval.Retriever`."""
        if histories.shape[1] <= k:
            return newest_best(np.zeros(histories.shape), histories, k)
        return newest_best(self.similarity(items, histories), histories, k)


#: Values of vectors that are gathered at once (count): 16 MiB of float32, about the cache.
_GATHERED = 4_000_000


class EmbeddingRetriever(SimilarityRetriever):
    """Selects the items whose text is most like the query's, by cosine.

    ``vectors``, of shape (items, dimension) and any length, hold a row of zeros (or NaN) where
    there is none. An item without a vector comes after all that have one; a query without one gets
    the last items, as all are equally unlike it. Not thread-safe.

    Examples
    --------
    >>> retriever = EmbeddingRetriever(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
    >>> retriever.select(np.array([2]), np.array([[0, 1, 0]]), np.ones((1, 3)), 1).tolist()
    [[1]]
    """

    name = "embedding"

    def __init__(self, vectors: npt.ArrayLike) -> None:
        rows = np.nan_to_num(np.asarray(vectors, dtype=np.float32))
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        self._vectors = rows / np.where(length > 0, length, np.float32(1))
        self._present = length[:, 0] > 0
        self._complete = bool(self._present.all())
        self._room = np.empty((0, rows.shape[1]), np.float32)

    def similarity(self, items: Ints, others: Ints) -> Floats:
        """Cosines of each item and its row of others, of shape (n, h); NaN where unknown."""
        out = np.empty(others.shape)
        most = max(1, min(others.size, _GATHERED // max(1, self._vectors.shape[1])))
        if len(self._room) < max(most, others.shape[1]):
            # Kept: fresh pages for every query would cost more than what is put there.
            self._room = np.empty((max(most, others.shape[1]), self._vectors.shape[1]), np.float32)
        step = max(1, _GATHERED // max(1, others.shape[1] * self._vectors.shape[1]))
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            compared = others[part]
            gathered = self._room[: compared.size]
            self._vectors.take(compared.reshape(-1), axis=0, mode="wrap", out=gathered)
            gathered = gathered.reshape(*compared.shape, -1)
            out[part] = np.vecdot(gathered, self._vectors[items[part], None, :])
        if not self._complete:
            out[~(self._present[others] & self._present[items][:, None])] = np.nan
        return out


def item_vectors(items: pl.DataFrame, embeddings: pl.DataFrame) -> npt.NDArray[np.float32]:
    """Vectors in the order of `items`, zeros where there is none, of shape (items, dimension)."""
    dimension = len(embeddings["vector"][0]) if embeddings.height else 0
    out = np.zeros((items.height, dimension), np.float32)
    rows = (
        items.select("item_id")
        .with_row_index("row")
        .join(embeddings.select("item_id", "vector"), on="item_id", how="inner")
    )
    if rows.height:
        flat = rows["vector"].cast(pl.List(pl.Float32)).explode().to_numpy()
        out[rows["row"].to_numpy()] = flat.reshape(rows.height, dimension)
    return out


#: Main actors (count), and directors or authors of an item that are looked at (count).
_ACTORS, _MAKERS = 2, 2
#: Pairs that are compared at once (count).
_PAIRS = 200_000


@dataclass(frozen=True)
class ItemFeatures:
    """Attributes by which items are compared."""

    #: 0 or 1, of shape (items, genres).
    genres: npt.NDArray[np.float32]
    #: Numbers of the main actors, and of directors or authors, -1 where there is none, each of
    #: shape (items, 2).
    actors: Ints
    makers: Ints
    #: Mean ratings, NaN where unknown, of shape (items,).
    means: Floats
    #: Highest minus lowest rating of their scale.
    reach: float

    @classmethod
    def of(
        cls,
        items: pl.DataFrame,
        item_stats: pl.DataFrame | None = None,
        scale: RatingScale = SCALES["0.5-5"],
    ) -> ItemFeatures:
        """Features of rows of an `items` contract.

        A column of ``genres``, ``actors``, ``directors``, ``authors`` that is not there is a
        feature that no item states. `item_stats` holds training means (``train_mean_rating``) on
        `scale`.
        """
        means = np.full(items.height, np.nan)
        if item_stats is not None:
            means = (
                items.select("item_id")
                .join(
                    item_stats.select("item_id", "train_mean_rating"),
                    on="item_id",
                    how="left",
                    maintain_order="left",
                    validate="1:1",
                )["train_mean_rating"]
                .cast(pl.Float64)
                .fill_null(float("nan"))
                .to_numpy()
            )
        makers = "directors" if "directors" in items.columns else "authors"
        return cls(
            _indicators(_lists(items, "genres")),
            _codes(_lists(items, "actors"), _ACTORS),
            _codes(_lists(items, makers), _MAKERS),
            means,
            scale.high - scale.low,
        )

    def similarity(self, left: Ints, right: Ints) -> Floats:
        """Similarity of items, 0 to 1, NaN where no term is known of both; the two broadcast."""
        left, right = np.broadcast_arrays(left, right)
        genres = self.genres.sum(axis=1)
        shared = np.vecdot(self.genres[left], self.genres[right])
        terms = [_dice(shared, genres[left], genres[right])]
        actors = (self.actors >= 0).sum(axis=1)
        common = _common(self.actors[left], self.actors[right])
        terms.append(_dice(common, actors[left], actors[right]))
        gap = np.abs(self.means[left] - self.means[right])
        terms.append(1.0 - gap / self.reach)
        stated = self.makers[:, 0] >= 0
        same_maker = (_common(self.makers[left], self.makers[right]) > 0).astype(np.float64)
        terms.append(np.where(stated[left] & stated[right], same_maker, np.nan))
        count = sum((~np.isnan(term)).astype(np.float64) for term in terms)
        total = sum(np.nan_to_num(term) for term in terms)
        return np.where(count > 0, total / np.maximum(count, 1.0), np.nan)


class FeatureRetriever(SimilarityRetriever):
    """Selects the items most like the query by :class:`ItemFeatures`, of equal ones the newest."""

    name = "features"

    def __init__(self, features: ItemFeatures) -> None:
        self._features = features

    def similarity(self, items: Ints, others: Ints) -> Floats:
        """Similarity of each item and its row of others, of shape (n, h)."""
        out = np.empty(others.shape)
        step = max(1, _PAIRS // max(1, others.shape[1]))
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            out[part] = self._features.similarity(items[part, None], others[part])
        return out


def _dice(shared: npt.NDArray[np.floating], left: npt.ArrayLike, right: npt.ArrayLike) -> Floats:
    """Sørensen-Dice from set sizes; NaN where either set is empty."""
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    defined = (a > 0) & (b > 0)
    return np.where(defined, 2.0 * shared / np.where(defined, a + b, 1.0), np.nan)


def _common(left: Ints, right: Ints) -> Floats:
    """Number of common values of two rows of distinct numbers; -1 is none."""
    same = (left[..., :, None] == right[..., None, :]) & (left[..., :, None] >= 0)
    return np.asarray(same.sum(axis=(-1, -2)), np.float64)


def _lists(items: pl.DataFrame, column: str) -> pl.Series:
    if column in items.columns:
        return items[column]
    return pl.Series(column, [[]] * items.height, dtype=pl.List(pl.String))


def _indicators(lists: pl.Series) -> npt.NDArray[np.float32]:
    names: Sequence[str] = lists.explode().drop_nulls().unique().sort().to_list()
    column = {name: n for n, name in enumerate(names)}
    out = np.zeros((len(lists), len(names)), np.float32)
    long = pl.DataFrame({"row": np.arange(len(lists)), "name": lists}).explode("name").drop_nulls()
    if long.height:
        columns = long["name"].replace_strict(column, return_dtype=pl.Int64)
        out[long["row"].to_numpy(), columns.to_numpy()] = 1.0
    return out


def _codes(lists: pl.Series, most: int) -> Ints:
    """Numbers of the first distinct names of each list, -1 padding, of shape (items, most)."""
    out = np.full((len(lists), most), -1, np.int64)
    long = (
        pl.DataFrame({"row": np.arange(len(lists)), "name": lists})
        .explode("name")
        .drop_nulls()
        .unique(maintain_order=True)
        .with_columns(place=pl.int_range(pl.len()).over("row"))
        .filter(pl.col("place") < most)
    )
    if long.height:
        number = long["name"].rank("dense").cast(pl.Int64).to_numpy() - 1
        out[long["row"].to_numpy(), long["place"].to_numpy()] = number
    return out


#: Similarities of query items that are kept (bytes): the newest ones.
_KEPT = 128 * 2**20


class GraphRetriever(SimilarityRetriever):
    """Selects the items nearest to the query in the graph, by PathSim; ties are broken by recency.

    PathSim counts paths between two items over all meta-paths of the domain (same genre, same
    director, rated by the same people, …; :mod:`pipelines.graph._pathsim`). Only training
    interactions are edges, so that no held-out rating is used. `codes`, of shape (items,), holds
    the graph's code of each item number, -1 where the graph doesn't know it. Not thread-safe:
    similarities of the last query items are cached.
    """

    name = "graph"

    def __init__(self, paths: PathSim, codes: Ints) -> None:
        self._paths, self._codes = paths, codes
        self._rows: OrderedDict[int, npt.NDArray[np.float32]] = OrderedDict()
        self._most = max(1, _KEPT // (4 * max(1, paths.items)))

    @classmethod
    def of(
        cls,
        items: pl.DataFrame,
        triples: pl.DataFrame | pl.LazyFrame,
        domain: str,
    ) -> GraphRetriever:
        """A retriever over a `graph_triples` table; item n is row n of `items`.

        Raises ConfigError if the domain has no meta-paths, ContractError if no triple fits the
        domain.
        """
        paths = load_metapaths(domain)
        kind = paths.items[0].start_type
        index = GraphIndex.from_triples(triples, domain, nodes={kind: items["item_id"].to_list()})
        numbers = index.codes(kind)
        codes = np.array([numbers.get(item, -1) for item in items["item_id"]], np.int64)
        return cls(PathSim(index, paths), codes)

    def similarity(self, items: Ints, others: Ints) -> Floats:
        """PathSim of each item and its row of others, of shape (n, h); NaN where unknown."""
        out = np.empty(others.shape)
        distinct = np.unique(items)
        for start in range(0, len(distinct), self._most):
            part = distinct[start : start + self._most]
            rows = self._of(part)
            here = np.flatnonzero((items >= part[0]) & (items <= part[-1]))
            at = np.searchsorted(part, items[here])
            out[here] = rows[at[:, None], np.maximum(self._codes[others[here]], 0)]
        unknown = (self._codes[others] < 0) | (self._codes[items] < 0)[:, None]
        return np.where(unknown, np.nan, out)

    def _of(self, items: Ints) -> npt.NDArray[np.float32]:
        """Similarities of some items to every code, of shape (n, codes)."""
        new = np.array([i for i in items.tolist() if i not in self._rows], np.int64)
        if len(new):
            scores = self._paths.similarity(np.maximum(self._codes[new], 0)).astype(np.float32)
            self._rows.update(zip(new.tolist(), scores, strict=True))
        for item in items.tolist():
            self._rows.move_to_end(item)
        rows = np.stack([self._rows[item] for item in items.tolist()])
        while len(self._rows) > self._most:
            self._rows.popitem(last=False)
        return rows


class NoRetriever:
    """Picks nothing: every item is met with an empty memory.

    >>> NoRetriever().select(np.array([3]), np.array([[1, 2]]), np.ones((1, 2)), 2).tolist()
    [[-1, -1]]
    """

    name = "none"
    by_item = False

    def select(self, items: Ints, histories: Ints, ratings: Floats, k: int) -> Ints:  # noqa: ARG002
        """Select no item; see :class:`pipelines.retrieval.Retriever`."""
        return np.full((len(items), k), -1, np.int64)


class RecentRetriever:
    """Picks the last items.

    >>> RecentRetriever().select(np.array([3]), np.array([[1, 2]]), np.ones((1, 2)), 1).tolist()
    [[1]]
    """

    name = "recent"
    by_item = False

    def select(self, items: Ints, histories: Ints, ratings: Floats, k: int) -> Ints:  # noqa: ARG002
        """The last `k`; see :class:`pipelines.retrieval.Retriever`."""
        return latest(histories, k)


def feature_retriever(
    items: pl.DataFrame, item_stats: pl.DataFrame | None, scale: RatingScale
) -> Retriever:
    """Retriever by features; without ``item_stats`` no mean rating is compared."""
    return FeatureRetriever(ItemFeatures.of(items, item_stats, scale))


def embedding_retriever(items: pl.DataFrame, item_embeddings: pl.DataFrame | None) -> Retriever:
    """Retriever by text vectors; ConfigError without any."""
    if item_embeddings is None or not item_embeddings.height:
        raise ConfigError(
            "there are no item embeddings",
            where="retriever 'embedding'",
            hint="give item_embeddings, or use the retriever 'features'",
        )
    return EmbeddingRetriever(item_vectors(items, item_embeddings))


def graph_retriever(items: pl.DataFrame, release: Any) -> Retriever:
    """Retriever by paths in the release's graph; ConfigError without one."""
    if release is None or "graph_triples" not in release:
        raise ConfigError(
            "there is no graph",
            where="retriever 'graph'",
            hint="give a release with the table graph_triples",
        )
    triples = release["graph_triples"].lazy()
    dataset = getattr(release["graph_triples"], "dataset", "movies.graph_triples")
    return GraphRetriever.of(items, triples, dataset.rpartition(".")[0])


def open_retriever(
    name: str,
    *,
    items: pl.DataFrame,
    item_stats: pl.DataFrame | None = None,
    item_embeddings: pl.DataFrame | None = None,
    release: Any = None,
    scale: RatingScale = SCALES["0.5-5"],
) -> Retriever:
    """The retriever of that name over items.

    Parameters
    ----------
    name
        ``none``, ``recent``, ``features``, ``embedding``, ``graph``, or one of your own, whose
        parameters name what it needs of the following.
    items
        The items, ordered by ``item_id``: item n is row n.
    item_stats
        For `features`: training means; without it no mean rating is compared.
    item_embeddings
        For `embedding`: ``item_id`` and ``vector``.
    release
        For `graph`: a release (of ``sim``), or a mapping of table names to frames, with
        ``graph_triples``.
    scale
        Of the means in `item_stats`: that of the domain's interactions.

    Raises
    ------
    ConfigError
        If there is no such retriever (naming the nearest), or what it needs is not given.
    """
    offered = {
        "items": items,
        "item_stats": item_stats,
        "item_embeddings": item_embeddings,
        "release": release,
        "scale": scale,
    }
    opened: Retriever = RETRIEVERS.open(name, offered=offered)
    return opened
