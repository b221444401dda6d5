"""Perturbation of ratings and shaping of rewards (SUBER, sections 3.3 and 4.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.scales import RatingScale

__all__ = ["PERTURBATIONS", "perturb", "shape"]

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]

#: Names of the perturbations.
PERTURBATIONS = ("none", "greedy", "gaussian")


def perturb(
    ratings: _Floats, draw: _Floats, kind: str, strength: float, scale: RatingScale
) -> _Floats:
    """Ratings as they are stored: ``none``, ``greedy`` or ``gaussian``, on the scale.

    ``greedy``: one step of the scale up with probability q/2 and one down with q/2; ``gaussian``:
    normal noise of standard deviation σ is added and the sum rounded to an answer. `draw` are
    uniform numbers in [0, 1), one per rating; `strength` is q (a probability) or σ (in units of the
    scale).

    Examples
    --------
    >>> from pipelines.scales import SCALES
    >>> draw = np.array([0.1, 0.3, 0.9])
    >>> perturb(np.array([5.0, 1.0, 5.0]), draw, "greedy", 0.5, SCALES["1-5"]).tolist()
    [4.0, 1.0, 5.0]
    """
    if kind == "none":
        return ratings
    if kind == "greedy":
        change = np.where(draw < strength / 2, -1.0, np.where(draw >= 1 - strength / 2, 1.0, 0.0))
        moved = ratings + scale.step * change
    else:
        from scipy.special import ndtri

        # A draw of exactly 0 would be infinitely far below.
        moved = ratings + strength * ndtri(np.maximum(draw, np.finfo(np.float64).tiny))
    steps = np.floor((moved - scale.low) / scale.step + 0.5)
    return np.asarray(scale.low + scale.step * np.clip(steps, 0, len(scale) - 1), np.float64)


def shape(ratings: _Floats, times: _Ints, since: _Ints, q: float, low: float) -> _Floats:
    """Rewards of items that were met before: ``max(low, floor(r * q ** (n / dt)))``.

    SUBER, equation 2, whose lowest rating is 1. n is how often user and item met before (`times`),
    dt the steps since they last met (`since`, at least 1 where n is), q from 0 to 1 (1 changes
    nothing). On a first meeting n is 0 and a whole rating stays what it is.

    Examples
    --------
    >>> r, n, dt = np.array([8.0, 8.0, 8.0]), np.array([0, 1, 3]), np.array([0, 1, 2])
    >>> shape(r, n, dt, 0.5, 1.0).tolist()
    [8.0, 4.0, 2.0]
    """
    power = np.where(times > 0, times / np.maximum(since, 1), 0.0)
    # The small term keeps what is whole but for rounding whole: 10 * 0.7 is 7.
    shaped = np.floor(ratings * np.power(q, power) + 1e-9)
    return np.asarray(np.where(times > 0, np.maximum(low, shaped), ratings), np.float64)
