"""Conformance tests for recommenders: inherit, and return yours, fitted, from ``make``.

The release must hold at least three personas and five items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pytest

from pipelines.errors import ConfigError
from sim._release import Release
from sim.recommenders import Recommender

__all__ = ["RecommenderContract"]


class RecommenderContract(ABC):
    """Behaviour required of every :class:`sim.recommenders.Recommender`."""

    @abstractmethod
    def make(self, release: Release) -> Recommender:
        """The recommender under test, fitted on the release."""

    def test_it_says_what_it_is(self, release: Release) -> None:
        """A name for tables and a sentence for people."""
        made = self.make(release)
        assert made.name
        assert made.note.endswith(".")

    def test_equal_fits_give_equal_lists(self, release: Release) -> None:
        """A fit depends on the data and the seed alone."""
        lists = [self.make(release).recommend([0, 1, 2], 5).tolist() for _ in range(2)]
        assert lists[0] == lists[1]

    def test_given_interactions_are_fitted_on(self, release: Release) -> None:
        """Rows of users, items and ratings take the place of the training split."""
        rows = release["interactions"].polars(["user_id", "item_id", "rating"])
        made = self.make(release)
        assert made.fit(release, interactions=rows) is made
        assert made.recommend([0], 3).shape == (1, 3)

    def test_lists_hold_distinct_items_of_the_release(self, release: Release) -> None:
        """As many numbers per user as asked for, none twice."""
        lists = self.make(release).recommend([0, 1, 2], 4)
        assert lists.shape == (3, 4)
        assert lists.dtype == np.int64
        assert ((lists >= 0) & (lists < len(release["items"]))).all()
        assert all(len(set(row)) == 4 for row in lists.tolist())

    def test_seen_items_are_not_recommended(self, release: Release) -> None:
        """The best items are left out once they are seen."""
        made = self.make(release)
        first = made.recommend([0, 1], 2)
        seen = np.array([[first[0, 0], first[0, 1]], [first[1, 0], -1]])
        again = made.recommend([0, 1], 4, seen=seen, ratings=np.where(seen >= 0, 3.0, np.nan))
        assert not set(again[0].tolist()) & set(first[0].tolist())
        assert int(first[1, 0]) not in again[1].tolist()

    def test_when_everything_is_seen_nothing_is_recommended(self, release: Release) -> None:
        """-1 pads a list that nothing is left for."""
        items = len(release["items"])
        seen = np.arange(items - 1)[None, :]
        ratings = np.full(seen.shape, 3.0)
        lists = self.make(release).recommend([0], 3, seen=seen, ratings=ratings)
        assert lists.tolist() == [[items - 1, -1, -1]]

    def test_a_list_does_not_depend_on_who_else_asks(self, release: Release) -> None:
        """A batch is what its users get one by one."""
        made = self.make(release)
        batch = made.recommend([2, 0, 1], 5)
        single = [made.recommend([user], 5)[0].tolist() for user in (2, 0, 1)]
        assert batch.tolist() == single

    def test_the_same_question_has_the_same_answer(self, release: Release) -> None:
        """Repeated calls draw nothing anew."""
        made = self.make(release)
        assert made.recommend([0, 1], 3).tolist() == made.recommend([0, 1], 3).tolist()

    def test_a_shorter_list_is_the_head_of_a_longer_one(self, release: Release) -> None:
        """Places do not depend on k."""
        made = self.make(release)
        assert made.recommend([0], 2).tolist() == made.recommend([0], 5)[:, :2].tolist()

    def test_who_and_what_is_not_there_is_named(self, release: Release) -> None:
        """Unknown users and items, and histories of another shape, are errors of one line."""
        made = self.make(release)
        for users, options in (
            ([10**6], {}),
            ([0], {"seen": [[10**6]]}),
            ([0, 1], {"seen": [[1]]}),
        ):
            with pytest.raises(ConfigError, match=made.name):
                made.recommend(users, 2, **options)
