"""Recommenders that know nothing about the person they recommend to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from sim.recommenders._protocol import Floats, Ints, ScoredRecommender

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release

__all__ = ["MeanRatingRecommender", "PopularRecommender", "RandomRecommender"]

#: Ratings at the global mean that every item starts with in the mean-rating baseline (count, set by
#: hand), so that one rating of five stars does not make the best item; LensKit's Bias likewise.
DAMPING = 5.0


class RandomRecommender(ScoredRecommender):
    """Items in a random order, one order per user and seed.

    Parameters
    ----------
    seed
        The order depends on the seed, the user and the item, and on nothing else.
    """

    name = "random"
    note = "Any item, in an order of chance per user."

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, release: Release) -> Self:
        """Count items and personas."""
        self.shape = _shape(release)
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        from pipelines.seeding import uniform

        del seen, ratings
        assert self.shape is not None
        return uniform(self.seed, users[:, None], np.arange(self.shape[0])[None, :])


class PopularRecommender(ScoredRecommender):
    """The items with the most training ratings; the same for everybody."""

    name = "popular"
    note = "The items that people rated most often, the same for everybody."

    def fit(self, release: Release) -> Self:
        """Count the training ratings of every item."""
        self.shape = _shape(release)
        stats = _stats(release)
        self._count = stats["train_ratings"].fill_null(0).to_numpy().astype(np.float64)
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.broadcast_to(self._count, (len(users), len(self._count)))


class MeanRatingRecommender(ScoredRecommender):
    """The items with the best mean training rating; the same for everybody.

    The mean is damped: (sum of ratings + 5 x global mean) / (ratings + 5), so that an item
    without ratings is an average one.
    """

    name = "mean-rating"
    note = "The items that people rated best (damped mean), the same for everybody."

    def fit(self, release: Release) -> Self:
        """Take the mean of every item's training ratings."""
        self.shape = _shape(release)
        stats = _stats(release)
        count = stats["train_ratings"].fill_null(0).to_numpy().astype(np.float64)
        mean = stats["train_mean_rating"].fill_null(0.0).to_numpy().astype(np.float64)
        overall = float((count * mean).sum() / max(count.sum(), 1.0))
        self._mean = (count * mean + DAMPING * overall) / (count + DAMPING)
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.broadcast_to(self._mean, (len(users), len(self._mean)))


def _shape(release: Release) -> tuple[int, int]:
    from sim.environment import Cast, Catalogue

    return len(Catalogue.read(release)), len(Cast.read(release))


def _stats(release: Release) -> pl.DataFrame:
    """Rows of ``item_stats`` in the order of the items; nulls for an item without."""
    from sim.environment import Catalogue

    release.require("item_stats")
    wanted = ["item_id", "train_ratings", "train_mean_rating"]
    return (
        Catalogue.read(release)
        .frame.select("item_id")
        .join(release["item_stats"].polars(wanted), on="item_id", how="left", maintain_order="left")
    )
