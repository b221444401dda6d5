"""Protocol of retrievers, and selection of the best of a memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

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
        """Whether what is picked depends on the query item."""

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
