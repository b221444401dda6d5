"""Stars and tone of a recommendation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.dialogue._world import Ints

#: Opening sentences by tone: regret 0, at most 5, at most 20, more.
TONES = (
    "This is exactly what I was looking for.",
    "This is very close to what I wanted.",
    "This is not quite what I had in mind.",
    "I am disappointed, this is not for me.",
)
_LIMITS = np.array([0.0, 5.0, 20.0])
_TONE_OF = {text: n for n, text in enumerate(TONES)}


def stars_of(score: npt.ArrayLike, best: npt.ArrayLike) -> Ints:
    """Stars ⌊5 · score / best + 1/2⌋ from 0 to 5, half up (BIEL, section 4).

    >>> stars_of([56, 72, 50], [80, 80, 100]).tolist()
    [4, 5, 3]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 5.0 * np.asarray(score, np.float64) / np.asarray(best, np.float64)
    return np.floor(np.nan_to_num(share, posinf=0.0) + 0.5).astype(np.int64)


def tone_of(regret: npt.ArrayLike) -> Ints:
    """Tone by regret, an index of `TONES`.

    >>> tone_of([0, 5, 5.1, 20.5]).tolist()
    [0, 1, 2, 3]
    """
    return np.searchsorted(_LIMITS, np.asarray(regret, np.float64), side="left").astype(np.int64)


def tone_of_text(text: str | None) -> int:
    """Tone of a feedback that opens with one of `TONES`; -1 for any other."""
    first, dot, _ = (text or "").partition(".")
    return _TONE_OF.get(first + dot, -1)
