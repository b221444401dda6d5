"""Opening a retriever by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import ConfigError
from pipelines.retrieval._protocol import Floats, Ints, Retriever, latest
from pipelines.scales import SCALES, RatingScale
from pipelines.seams import RETRIEVERS

if TYPE_CHECKING:
    import polars as pl


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
    from pipelines.retrieval._features import FeatureRetriever, ItemFeatures

    return FeatureRetriever(ItemFeatures.of(items, item_stats, scale))


def embedding_retriever(items: pl.DataFrame, item_embeddings: pl.DataFrame | None) -> Retriever:
    """Retriever by text vectors; ConfigError without any."""
    from pipelines.retrieval._embedding import EmbeddingRetriever, item_vectors

    if item_embeddings is None or not item_embeddings.height:
        raise ConfigError(
            "there are no item embeddings",
            where="retriever 'embedding'",
            hint="give item_embeddings, or use the retriever 'features'",
        )
    return EmbeddingRetriever(item_vectors(items, item_embeddings))


def graph_retriever(items: pl.DataFrame, release: Any) -> Retriever:
    """Retriever by paths in the release's graph; ConfigError without one."""
    from pipelines.retrieval._graph import GraphRetriever

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
