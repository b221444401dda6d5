"""What can be made of stored distributions afterwards."""

from __future__ import annotations

import numpy as np

from pipelines.errors import ConfigError
from pipelines.raters._protocol import Floats

__all__ = ["at_temperature", "total_variation"]


def at_temperature(probabilities: Floats, temperature: float) -> Floats:
    """Distributions sharpened (below 1) or flattened (above 1) as sampling at a temperature does.

    Stored distributions are at temperature 1; this is the only place where another one enters.

    Parameters
    ----------
    probabilities
        Shape (pairs, answers); rows of NaN stay NaN.
    temperature
        At least 0. 0 puts everything on the most probable answer (the lowest of several), 1
        changes nothing.

    Returns
    -------
    Floats
        ``p ** (1 / temperature)``, rows normalised, of the same shape.

    Raises
    ------
    ConfigError
        If the temperature is negative or not a number.

    Examples
    --------
    >>> at_temperature(np.array([[0.8, 0.2]]), 0.5).round(4).tolist()
    [[0.9412, 0.0588]]
    >>> at_temperature(np.array([[0.4, 0.4, 0.2]]), 0).tolist()
    [[1.0, 0.0, 0.0]]
    """
    if not temperature >= 0:
        raise ConfigError("a temperature is at least 0", where=f"{temperature}")
    p = np.asarray(probabilities, dtype=np.float64)
    if temperature == 1 or not p.size:
        return p.copy()
    top = p.max(axis=-1, keepdims=True)
    if temperature == 0:
        first = np.zeros_like(p)
        np.put_along_axis(first, np.argmax(p, axis=-1)[..., None], 1.0, axis=-1)
        return np.where(np.isnan(top), np.nan, first)
    # Relative to the largest, so that no row underflows to nothing.
    shaped = (p / top) ** (1.0 / temperature)
    return np.asarray(shaped / shaped.sum(axis=-1, keepdims=True))


def total_variation(first: Floats, second: Floats) -> Floats:
    """Half the sum of absolute differences, 0-1, over the last axis."""
    return np.asarray(np.abs(first - second).sum(axis=-1) / 2)
