"""Paired tests: exact or sampled sign flips, and the correction for how many were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["FLIPS", "false_discovery", "paired_permutation"]

#: Sign flips of the permutation test at most; few pairs are flipped exhaustively (count).
FLIPS = 4_999


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

    found = stats.permutation_test(
        sides,
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=FLIPS,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def false_discovery(ps: Sequence[float]) -> list[float]:
    """The p values after Benjamini and Hochberg's correction for how many were tested; NaN stays.

    >>> false_discovery([0.01, float("nan"), 0.04])
    [0.02, nan, 0.04]
    """
    from scipy import stats

    values = np.array(ps, dtype=np.float64)
    known = ~np.isnan(values)
    if known.any():
        values[known] = stats.false_discovery_control(values[known])
    return [float(v) for v in values]
