"""Retrievers that look at the order of a memory only."""

from __future__ import annotations

import numpy as np

from pipelines.retrieval._protocol import Floats, Ints, latest


class NoRetriever:
    """Picks nothing: every item is met with an empty memory.

    >>> NoRetriever().select(np.array([3]), np.array([[1, 2]]), np.ones((1, 2)), 2).tolist()
    [[-1, -1]]
    """

    name = "none"
    by_item = False

    def select(self, items: Ints, histories: Ints, ratings: Floats, k: int) -> Ints:  # noqa: ARG002
        """Nothing; see :class:`pipelines.retrieval.Retriever`."""
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
