"""Intervals over units by a bootstrap, over seeds by Student's t; paired permutation tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
#: Resamples of the bootstrap (count).
RESAMPLES = 1_000
#: Sign flips of the permutation test at most; few pairs are flipped exhaustively (count).
FLIPS = 4_999
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


def interval(value: float, drawn: npt.ArrayLike) -> Figure:
    """A value with the 95 % percentiles of its draws, widened to it; NaN draws are left out."""
    valid = np.asarray(drawn, np.float64)
    valid = valid[~np.isnan(valid)]
    low, high = np.quantile(valid, [0.025, 0.975]) if len(valid) else (value, value)
    return Figure(value, min(float(low), value), max(float(high), value))


def pooled(owner: npt.ArrayLike, columns: list[Floats], of: Callable[[Floats], Floats]) -> Figure:
    """A function of sums over all rows, with a bootstrap interval over their owners.

    ``owner`` is the unit of each row; ``columns`` are summed, each of shape (rows,); ``of`` maps
    sums of shape (columns, draws) to values of shape (draws,).

    >>> mean = pooled([0, 0, 1], [np.array([1.0, 2.0, 6.0]), np.ones(3)], lambda s: s[0] / s[1])
    >>> mean.value
    3.0
    """
    _, place = np.unique(np.asarray(owner), return_inverse=True)
    units = int(place.max()) + 1
    sums = np.stack([np.bincount(place, column, minlength=units) for column in columns])
    drawn = of((user_weights(units, RESAMPLES, 0) @ sums.T).T)
    return interval(float(of(sums.sum(axis=1)[:, None])[0]), drawn)


def pooled_mean(
    owner: npt.ArrayLike, values: Floats, of: Callable[[Floats], Floats] = np.asarray
) -> Figure:
    """A function of the mean over all rows, with a bootstrap interval over their owners.

    >>> pooled_mean([0, 0, 1], np.array([1.0, 2.0, 6.0])).value
    3.0
    """
    return pooled(owner, [values, np.ones(len(values))], lambda s: of(s[0] / s[1]))


@lru_cache(maxsize=16)
def _weights(units: int) -> Any:
    return user_weights(units, RESAMPLES, 0)


def mean_figure(values: npt.ArrayLike) -> Figure | None:
    """Mean of one value per unit with its 95 % interval; NaN is left out, None if all are.

    >>> mean_figure([1.0, 1.0, float("nan")])
    Figure(value=1.0, low=1.0, high=1.0, by_seed=(), seed_low=None, seed_high=None)
    """
    valid = np.asarray(values, np.float64)
    valid = valid[~np.isnan(valid)]
    if not len(valid):
        return None
    mean = mean_with_interval(valid, _weights(len(valid)))
    # Resampled means of equal values differ from theirs in the last bit.
    return Figure(mean.value, min(mean.low, mean.value), max(mean.high, mean.value))


def unit_means(values: pl.DataFrame, names: Sequence[str], unit: str) -> pl.DataFrame:
    """Means of columns by unit, ordered by it: rows of one unit are not independent."""
    means = [pl.col(n).cast(pl.Float64).fill_nan(None).mean() for n in names]
    return values.group_by(unit).agg(means).sort(unit)


def unit_figures(
    values: pl.DataFrame, names: Sequence[str], unit: str
) -> dict[str, Figure | float | None]:
    """Means over units with 95 % intervals, by column."""
    means = unit_means(values, names, unit)
    return {n: mean_figure(means[n].fill_null(np.nan).to_numpy()) for n in names}


def summed(owner: npt.ArrayLike, values: Floats) -> Floats:
    """Sums by owner: exchanged as a whole, they move a pooled figure as their rows do."""
    _, place = np.unique(np.asarray(owner), return_inverse=True)
    return np.asarray(np.bincount(place, values), np.float64)


def paired_permutation(left: Any, right: Any, seed: int = 0) -> float:
    """Probability (two-sided) of a difference as large if the sides of each pair were exchanged.

    ``left`` and ``right`` are values of the same users, of shape (users,); ``seed`` draws the
    flips. 1 where all pairs are equal; NaN for fewer than two pairs.

    >>> paired_permutation([3.0, 4.0, 5.0], [1.0, 2.0, 2.0])  # 2 of 8 flips are as far apart
    0.25
    """
    from scipy import stats

    sides = np.asarray(left, np.float64), np.asarray(right, np.float64)
    if np.array_equal(*sides):
        return 1.0
    if len(sides[0]) < 2:
        return float("nan")

    def difference(a: Any, b: Any, axis: int) -> Any:
        return (a - b).sum(axis=axis)

    test = stats.permutation_test(
        sides,
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=FLIPS,
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)


def false_discovery(ps: Sequence[float]) -> list[float]:
    """The p values after Benjamini and Hochberg's correction for how many were tested; NaN stays.

    >>> false_discovery([0.01, float("nan"), 0.04])
    [0.02, nan, 0.04]
    """
    from scipy import stats

    values = np.array(ps, dtype=np.float64)
    valid = ~np.isnan(values)
    if valid.any():
        values[valid] = stats.false_discovery_control(values[valid])
    return [float(v) for v in values]
