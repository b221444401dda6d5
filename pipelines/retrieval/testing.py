"""Conformance tests for retrievers: inherit, and return yours from ``make``.

>>> from pipelines.retrieval import RecentRetriever
>>> class TestMine(RetrieverContract):
...     def make(self):
...         return RecentRetriever()
>>> TestMine().test_positions_are_of_the_memory_oldest_first_and_padded()
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import polars as pl

from pipelines.retrieval import Floats, Ints, Retriever

__all__ = ["RetrieverContract", "contract_items", "contract_queries"]


def contract_items() -> pl.DataFrame:
    """Twelve items, ordered by id; the last has nothing but its id."""
    return pl.DataFrame(
        {
            "item_id": [f"ml:{n:02d}" for n in range(12)],
            "genres": [["Drama", "War"], ["Comedy"], ["Drama"]] * 3 + [["War"], ["Comedy"], []],
            "actors": [["A", "B"], ["B", "C"], ["D"], []] * 2 + [["A"], ["C"], ["D", "A"], []],
            "directors": [["X"], ["Y"], []] * 3 + [["X"], ["Y"], []],
        }
    )


def contract_queries(seed: int, rows: int, width: int) -> tuple[Ints, Ints, Floats]:
    """Items, memories of distinct items of every length up to `width`, and ratings."""
    rng = np.random.default_rng(seed)
    histories = np.full((rows, width), -1, np.int64)
    for row in range(rows):
        length = row % (width + 1)
        histories[row, :length] = rng.permutation(12)[:length]
    ratings = rng.integers(1, 11, (rows, width)).astype(np.float64)
    return rng.integers(0, 12, rows), histories, ratings


class RetrieverContract(ABC):
    """Conformance tests of :class:`pipelines.retrieval.Retriever` over :func:`contract_items`."""

    @abstractmethod
    def make(self) -> Retriever:
        """The retriever under test, over :func:`contract_items`."""

    def test_it_says_its_name_and_whether_the_query_matters(self) -> None:
        """Both are asked for before anything is selected."""
        retriever = self.make()
        assert isinstance(retriever, Retriever)
        assert isinstance(retriever.name, str)
        assert isinstance(retriever.by_item, bool)

    def test_positions_are_of_the_memory_oldest_first_and_padded(self) -> None:
        """Whole numbers of shape (n, k), ascending, then -1; never a place that is empty."""
        items, histories, ratings = contract_queries(0, 18, 8)
        for k in (1, 3, 8, 11):
            at = self.make().select(items, histories, ratings, k)
            assert at.shape == (18, k)
            assert np.issubdtype(at.dtype, np.integer)
            for row, places in enumerate(at):
                filled = places[places >= 0]
                assert (places[len(filled) :] == -1).all()
                assert (np.diff(filled) > 0).all()
                assert (filled < (histories[row] >= 0).sum()).all()

    def test_a_memory_that_fits_is_picked_whole_or_not_at_all(self) -> None:
        """A retriever that picks anything picks as much as is wanted."""
        items, histories, ratings = contract_queries(1, 18, 8)
        retriever = self.make()
        for k in (2, 8):
            picked = (retriever.select(items, histories, ratings, k) >= 0).sum(axis=1)
            most = np.minimum((histories >= 0).sum(axis=1), k)
            assert (picked == most).all() or (picked == 0).all()

    def test_a_row_does_not_depend_on_its_neighbours(self) -> None:
        """Order and company of a query change nothing, nor does more padding."""
        items, histories, ratings = contract_queries(2, 30, 8)
        retriever = self.make()
        together = retriever.select(items, histories, ratings, 3)
        for row in range(30):
            single = slice(row, row + 1)
            alone = retriever.select(items[single], histories[single], ratings[single], 3)
            assert (alone[0] == together[row]).all()
        wide = np.pad(histories, ((0, 0), (0, 5)), constant_values=-1)
        padded = retriever.select(items, wide, np.pad(ratings, ((0, 0), (0, 5))), 3)
        assert (padded == together).all()

    def test_what_stands_in_the_padding_does_not_matter(self) -> None:
        """Ratings of nothing are not looked at."""
        items, histories, ratings = contract_queries(3, 18, 8)
        retriever = self.make()
        other = np.where(histories >= 0, ratings, np.nan)
        expected = retriever.select(items, histories, ratings, 4)
        assert (retriever.select(items, histories, other, 4) == expected).all()

    def test_nothing_wanted_or_nothing_asked_gives_nothing(self) -> None:
        """No query, no memory and k = 0 are not errors."""
        items, histories, ratings = contract_queries(4, 6, 5)
        retriever = self.make()
        assert retriever.select(items, histories, ratings, 0).shape == (6, 0)
        assert retriever.select(items[:0], histories[:0], ratings[:0], 3).shape == (0, 3)
        empty = retriever.select(items, histories[:, :0], ratings[:, :0], 3)
        assert (empty == -1).all()
        assert empty.shape == (6, 3)
