"""Rating scales and the one function that converts between them.

Scales are intervals; conversion is linear between their ends, so that the lowest rating of
one is the lowest of the other. MovieLens' half stars (0.5-5) therefore meet 1-10 exactly
(4.5 stars are 9), and a star rating enters the graph after conversion to 1-5.

>>> rescale(4.5, SCALES["0.5-5"], SCALES["1-10"])
9.0
>>> float(to_answers([0.5, 3.5, 5.0], SCALES["0.5-5"], SCALES["1-5"])[1])
4.0
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError

__all__ = ["SCALES", "RatingScale", "coarser", "rescale", "scale_named", "to_answers"]


@dataclass(frozen=True)
class RatingScale:
    """A rating scale."""

    #: Such as ``1-10``; as stored in the ``scale`` column of tables.
    name: str
    #: Lowest and highest rating.
    low: float
    high: float
    #: Distance between neighbouring ratings.
    step: float = 1.0
    #: Spellings of the answers if not in digits, ascending.
    words: tuple[str, ...] = ()

    @cached_property
    def answers(self) -> npt.NDArray[np.float64]:
        """Every rating of the scale, ascending, of shape (number of answers,)."""
        count = round((self.high - self.low) / self.step) + 1
        return self.low + self.step * np.arange(count, dtype=np.float64)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Spellings of the answers, ascending: the options of a model's choice.

        >>> SCALES["0.5-5"].texts[:3], SCALES["one-ten"].texts[-1]
        (('0.5', '1', '1.5'), 'ten')
        """
        return self.words or tuple(f"{answer:g}" for answer in self.answers)

    def text_of(self, rating: float) -> str:
        """Spelling of the answer nearest to a rating on this scale (a tie goes up).

        >>> SCALES["one-ten"].text_of(7.4)
        'seven'
        """
        nearest = float(to_answers([rating], self, self)[0])
        return self.texts[round((nearest - self.low) / self.step)]

    def __len__(self) -> int:
        return len(self.answers)

    def covers(self, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each value lies between the scale's ends."""
        values = np.asarray(values, dtype=np.float64)
        return np.asarray((values >= self.low) & (values <= self.high))


_ONE_TO_TEN = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

#: The scales by name. ``0.5-5`` is MovieLens'; the others are those that raters answer on.
SCALES: dict[str, RatingScale] = {
    scale.name: scale
    for scale in (
        RatingScale("0.5-5", 0.5, 5.0, 0.5),
        RatingScale("1-5", 1.0, 5.0),
        RatingScale("1-10", 1.0, 10.0),
        RatingScale("0-9", 0.0, 9.0),
        RatingScale("one-ten", 1.0, 10.0, words=_ONE_TO_TEN),
        RatingScale("0-100", 0.0, 100.0),
    )
}


def scale_named(name: str) -> RatingScale:
    """The scale of that name.

    Raises ConfigError if there is none.
    """
    if name not in SCALES:
        raise ConfigError("unknown rating scale", where=name, hint=f"one of {', '.join(SCALES)}")
    return SCALES[name]


def coarser(first: RatingScale, second: RatingScale) -> RatingScale:
    """The scale with fewer answers, on which ratings of both can be compared (a tie: the first).

    On the finer one, the answers between those of the other would be taken for a difference.

    >>> coarser(SCALES["1-10"], SCALES["1-5"]).name, coarser(SCALES["1-10"], SCALES["0.5-5"]).name
    ('1-5', '1-10')
    """
    return second if len(second) < len(first) else first


@overload
def rescale(value: float, source: RatingScale, target: RatingScale) -> float: ...
@overload
def rescale(value: Any, source: RatingScale, target: RatingScale) -> Any: ...
def rescale(value: Any, source: RatingScale, target: RatingScale) -> Any:
    """Ratings on `target` that stand where `value` stands on `source`.

    Parameters
    ----------
    value
        A number, a NumPy array or a polars expression or series.
    source, target
        The scale of `value` and the wanted one.

    Returns
    -------
    The same kind of thing as `value`, not rounded and not clipped.
    """
    if source == target:
        return value
    factor = (target.high - target.low) / (source.high - source.low)
    return (value - source.low) * factor + target.low


def to_answers(
    values: npt.ArrayLike, source: RatingScale, target: RatingScale
) -> npt.NDArray[np.float64]:
    """The answer of `target` nearest to each rating (a tie goes up), of the same shape.

    Ratings outside `source` are clipped to the ends of `target`.
    """
    exact = rescale(np.asarray(values, dtype=np.float64), source, target)
    # The small term keeps a tie a tie: 0.1 + 0.2 style errors must not send it down.
    steps = np.floor((exact - target.low) / target.step + 0.5 + 1e-9)
    return np.asarray(target.low + target.step * np.clip(steps, 0, len(target) - 1))
