"""The distribution of a perturbed rating; `sim.environment` draws from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from pipelines.scales import RatingScale

__all__ = ["STRENGTH", "kernel"]

#: q of greedy noise (probability) and the standard deviation of Gaussian noise (answers).
STRENGTH = {"none": 0.0, "greedy": 0.3, "gaussian": 1.0}


def kernel(name: str, scale: RatingScale, strength: float | None = None) -> npt.NDArray[np.float64]:
    """Probability of each answer after the noise, by answer before it.

    Parameters
    ----------
    name
        ``none``; ``greedy``: one answer up or down with probability q/2 each (SUBER, section
        4.1); ``gaussian``: a normal number is added and the sum rounded. What falls off the
        scale is put at its end.
    scale
        Whose answers.
    strength
        q (0-1), or the standard deviation in answers; default :data:`STRENGTH`.

    Returns
    -------
    Shape (answers, answers), rows sum to 1.

    Raises
    ------
    ConfigError
        If there is no such noise or strength.

    >>> from pipelines.scales import SCALES
    >>> kernel("greedy", SCALES["1-5"], 0.5)[0].tolist()
    [0.75, 0.25, 0.0, 0.0, 0.0]
    """
    if name not in STRENGTH:
        raise ConfigError("unknown perturbation", where=name, hint=f"one of {', '.join(STRENGTH)}")
    strength = STRENGTH[name] if strength is None else strength
    count = len(scale)
    if strength < 0 or (name == "greedy" and strength > 1):
        raise ConfigError("no such strength of noise", where=f"{name} {strength}")
    if name == "none" or strength == 0:
        return np.eye(count)
    if name == "greedy":
        steps = np.array([strength / 2, 1 - strength, strength / 2])
        out = np.zeros((count, count))
        for step, share in zip((-1, 0, 1), steps, strict=True):
            to = np.clip(np.arange(count) + step, 0, count - 1)
            out[np.arange(count), to] += share
        return out
    from scipy.stats import norm

    # Borders between answers; all that lies beyond the outer ones is at the ends.
    border = np.arange(count - 1) + 0.5
    with np.errstate(over="ignore"):
        below = norm.cdf((border[None, :] - np.arange(count)[:, None]) / strength)
    padded = np.concatenate([np.zeros((count, 1)), below, np.ones((count, 1))], axis=1)
    return np.asarray(np.diff(padded, axis=1))
