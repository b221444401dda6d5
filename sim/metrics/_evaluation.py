"""All metrics of what a recommender showed, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.errors import ContractError
from pipelines.scales import RatingScale
from pipelines.study import RESAMPLES, Figure, over_seeds, user_weights
from sim.metrics._lists import (
    Bools,
    Floats,
    Ints,
    average_precision,
    average_reward,
    genre_share,
    incidence,
    reciprocal_rank,
    relevant,
    unlike,
)

#: Figures of :func:`evaluate` in the order of SUBER's table 4, with their names there.
FIGURES: dict[str, str] = {
    "average_reward": "Average reward",
    "map@10": "MAP@10",
    "mrr@10": "MRR@10",
    "personalization@10": "Pers.@10",
    "liked@5": "Liked, top 5",
    "disliked@5": "Disliked, top 5",
    "liked@10": "Liked, top 10",
    "disliked@10": "Disliked, top 10",
}

#: Resamples that are worked on at once: bounds memory at 10,000 users.
_AT_ONCE = 100


@dataclass(frozen=True)
class Played:
    """Items that a recommender showed to every user, with the ratings."""

    #: Recommended items, first to last, of shape (users, k); -1 where a list ends early.
    items: Ints
    #: Their ratings on `scale`, of the same shape; NaN where there is none.
    ratings: Floats
    #: The scale of the ratings.
    scale: RatingScale
    #: Whether an item counts as liked (disliked) by its user; of the same shape. See
    #: :func:`sim.metrics.liked_and_disliked`.
    liked: Bools
    disliked: Bools

    def __post_init__(self) -> None:
        for name in ("ratings", "liked", "disliked"):
            if getattr(self, name).shape != self.items.shape:
                raise ContractError(
                    f"{name} of shape {getattr(self, name).shape} for lists of "
                    f"shape {self.items.shape}",
                    where="Played",
                )

    @property
    def complete(self) -> Bools:
        """Users all of whose recommended items were rated, of shape (users,)."""
        missing = np.isnan(self.ratings) & (self.items >= 0)
        return np.asarray(~missing.any(axis=1))


def evaluate(
    runs: Sequence[Played], *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Figure]:
    """Every figure of `FIGURES` for a recommender, over its seeds.

    The figure of a seed is a mean over users (personalization: over pairs of users), the value
    is the mean over seeds. A bootstrap draws users with replacement, the same users for every
    figure and seed. A user with an item that got no rating is left out of the figures that need
    ratings (average reward, MAP, MRR) of that seed; such users are counted by
    ``~played.complete``, and no rating is ever made up for them.

    ``runs`` are one per seed, all of the same users in the same order.

    Raises ContractError if there is no run or no user, if the runs are of different users, or if no
    user was rated throughout.
    """
    if not runs or not len(runs[0].items):
        raise ContractError("there are no users to evaluate on", where="evaluate")
    users = len(runs[0].items)
    if any(len(run.items) != users for run in runs):
        raise ContractError("the runs are of different users", where="evaluate")
    weights = user_weights(users, resamples, seed)
    out: dict[str, Figure] = {}
    per_user = [_per_user(run) for run in runs]
    for name in FIGURES:
        if name == "personalization@10":
            by_seed, draws = _pairs(runs, weights)
        else:
            by_seed, draws = _means([values[name] for values in per_user], weights)
        low, high = np.nanquantile(draws, [0.025, 0.975]) if users > 1 else (by_seed[0],) * 2
        seed_low, seed_high = over_seeds(by_seed)
        out[name] = Figure(
            float(np.mean(by_seed)), float(low), float(high), tuple(by_seed), seed_low, seed_high
        )
    return out


def _per_user(run: Played) -> dict[str, Floats]:
    complete = run.complete
    if not complete.any():
        raise ContractError("no user's recommendations were all rated", where="evaluate")
    hits = relevant(run.ratings, run.scale)
    rated = {
        "average_reward": average_reward(run.ratings),
        "map@10": average_precision(hits),
        "mrr@10": reciprocal_rank(hits),
    }
    shares = {
        f"{kind}@{k}": genre_share(getattr(run, kind), run.items, k)
        for k in (5, 10)
        for kind in ("liked", "disliked")
    }
    return {k: np.where(complete, v, np.nan) for k, v in rated.items()} | shares


def _means(values: Sequence[Floats], weights: Floats) -> tuple[list[float], Floats]:
    """Means per seed, and of each draw the mean over seeds of the mean over its users."""
    by_seed, draws = [], []
    for row in values:
        present = (~np.isnan(row)).astype(np.float64)
        filled = np.where(present > 0, row, 0.0)
        by_seed.append(float(filled.sum() / present.sum()) if present.any() else float("nan"))
        count = weights @ present
        draws.append((weights @ filled) / np.where(count > 0, count, np.nan))
    return by_seed, np.mean(draws, axis=0)


def _pairs(runs: Sequence[Played], weights: Floats) -> tuple[list[float], Floats]:
    by_seed, draws = [], []
    for run in runs:
        vectors = incidence(run.items)
        by_seed.append(float(unlike(vectors, np.ones((1, len(run.items))))[0]))
        parts = [
            unlike(vectors, weights[start : start + _AT_ONCE])
            for start in range(0, len(weights), _AT_ONCE)
        ]
        draws.append(np.concatenate(parts))
    return by_seed, np.mean(draws, axis=0)
