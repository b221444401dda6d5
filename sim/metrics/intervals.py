"""Intervals: over users by a bootstrap, over seeds by Student's t."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["RESAMPLES", "Figure", "mean_with_interval", "over_seeds", "user_weights"]

#: Resamples of the bootstrap (count).
RESAMPLES = 1_000
#: Least seeds that an interval over seeds is given for (count).
MIN_SEEDS = 3


@dataclass(frozen=True)
class Figure:
    """A metric with its uncertainty."""

    #: Mean over seeds.
    value: float
    #: 95 % interval over users: percentiles of a bootstrap that draws users with replacement.
    low: float
    high: float
    #: The value of each seed.
    by_seed: tuple[float, ...] = field(default=())
    #: 95 % interval over seeds (Student's t of their mean); None for fewer than three.
    seed_low: float | None = None
    seed_high: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The figure as plain values."""
        return vars(self) | {"by_seed": list(self.by_seed)}


def over_seeds(
    values: Sequence[float], *, min_seeds: int = MIN_SEEDS
) -> tuple[float | None, float | None]:
    """95 % interval of the mean of independent runs (Student's t), None for fewer than `min_seeds`.

    >>> low, high = over_seeds([7.0, 8.0, 9.0])  # 8 ± 4.303 · 1 / sqrt(3)
    >>> round(low, 2), round(high, 2)
    (5.52, 10.48)
    >>> over_seeds([7.0, 8.0])
    (None, None)
    """
    if len(values) < min_seeds:
        return None, None
    from scipy import stats

    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    width = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return mean - width, mean + width


def user_weights(users: int, draws: int, seed: int) -> Any:
    """Number of times that each user is drawn, of shape (draws, users), float64."""
    if not users:
        return np.zeros((draws, 0))
    rng = np.random.default_rng(seed)
    return rng.multinomial(users, np.full(users, 1.0 / users), size=draws).astype(np.float64)


def mean_with_interval(values: Any, weights: Any) -> Figure:
    """Mean over users and its 95 % interval, the percentiles of a bootstrap.

    For a paired comparison give the differences of two recommenders per user. ``values`` are one
    per user, of shape (users,); ``weights`` are those of :func:`user_weights`, of shape (draws,
    users), the same for everything compared.
    """
    draws = weights @ values / len(values)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Figure(float(np.mean(values)), float(low), float(high))
