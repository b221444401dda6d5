"""Recommenders that know the rater: the ceiling of any policy, and the best list for everybody.

They read the ratings that are expected of each persona before its first recommendation, which no
recommender can see. What lies between the two is what personalisation can earn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from sim.environment import Cast, Catalogue
from sim.recommenders._protocol import Floats, Ints, ScoredRecommender

if TYPE_CHECKING:
    from pipelines.raters import BoundRater
    from sim._release import Release

#: Personas whose expected ratings decide the common list at most (count); the first by id.
_MAX_PERSONAS = 1_000
_NOTHING = np.zeros(0, np.int64), np.zeros(0)


class OracleRecommender(ScoredRecommender):
    """Each persona's items of highest expected rating: the ceiling for a policy.

    The expectation is that before the first recommendation; what a persona's later ratings
    change is not followed.
    """

    name = "oracle"
    note = "The items of each persona's highest expected ratings, which no policy can see."

    def __init__(self, rater: BoundRater) -> None:
        self.rater = rater

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Count items and personas; interactions are not read."""
        del interactions
        self.shape = len(Catalogue.read(release)), len(Cast.read(release))
        self._sweeps: dict[int, np.ndarray] = {}
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.stack([self._of(int(user)) for user in users]).astype(np.float64)

    def _of(self, user: int) -> np.ndarray:
        """Expected ratings of every item, -inf where there is none, of shape (items,)."""
        if user not in self._sweeps:
            expected = self.rater.sweep(user, *_NOTHING)
            self._sweeps[user] = np.where(np.isnan(expected), -np.inf, expected).astype(np.float32)
        return self._sweeps[user]


class CommonListRecommender(ScoredRecommender):
    """The items of the highest mean expected rating over personas, the same for everybody."""

    name = "best common list"
    note = "The items of the highest mean expected rating, the same for everybody."

    def __init__(self, rater: BoundRater) -> None:
        self.rater = rater

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Average the expected ratings of the personas; interactions are not read."""
        del interactions
        self.shape = len(Catalogue.read(release)), len(Cast.read(release))
        total, count = np.zeros(self.shape[0]), np.zeros(self.shape[0])
        for user in range(min(self.shape[1], _MAX_PERSONAS)):
            expected = self.rater.sweep(user, *_NOTHING)
            rated = ~np.isnan(expected)
            total[rated] += expected[rated]
            count += rated
        # An item that few were asked about is not the best one by luck.
        enough = count >= max(1.0, 0.5 * count.max())
        self._mean = np.where(enough, total / np.maximum(count, 1.0), -np.inf)
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.broadcast_to(self._mean, (len(users), len(self._mean)))
