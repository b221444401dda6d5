"""Reproducible choices: only ``random()`` of the standard generator, which Python guarantees."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Dice", "stream_seed"]

T = TypeVar("T")


def stream_seed(seed: int, *parts: int | str) -> int:
    """A 64-bit seed of its own for every named stream of choices.

    >>> stream_seed(1, "films") != stream_seed(1, "users") != stream_seed(2, "users")
    True
    """
    text = "/".join(str(p) for p in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Dice:
    """A seeded source of choices for text and structure.

    ``random.Random.random`` gives the same numbers on every Python version; ``choice`` and
    ``shuffle`` do not promise that, so everything here is made of the former.

    Parameters
    ----------
    seed
        The root seed.
    parts
        Names that set this stream apart from others of the same root seed.

    Examples
    --------
    >>> Dice(7, "a").pick("xyz") == Dice(7, "a").pick("xyz")
    True
    """

    def __init__(self, seed: int, *parts: int | str) -> None:
        self.roll = random.Random(stream_seed(seed, *parts)).random  # noqa: S311 (not secrets)

    def below(self, n: int) -> int:
        """A whole number from 0 to ``n`` - 1."""
        return int(self.roll() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """Whether something of this probability (0-1) happens."""
        return self.roll() < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[self.below(len(options))]

    def weighted(self, cumulative: Sequence[float]) -> int:
        """An index, by a cumulative weight table (ascending; the last entry is the total)."""
        point = self.roll() * cumulative[-1]
        low, high = 0, len(cumulative) - 1
        while low < high:
            middle = (low + high) // 2
            if cumulative[middle] > point:
                high = middle
            else:
                low = middle + 1
        return low

    def sample(self, options: Sequence[T], n: int) -> list[T]:
        """Up to ``n`` different options, in random order."""
        pool = list(options)
        out = []
        for _ in range(min(n, len(pool))):
            i = self.below(len(pool))
            pool[i], pool[-1] = pool[-1], pool[i]
            out.append(pool.pop())
        return out

    def exponential(self, mean: float) -> float:
        """A waiting time of the given mean."""
        return -mean * math.log(1.0 - self.roll())

    def skewed(self, n: int, power: float) -> int:
        """An index below ``n``, low ones likelier the larger ``power`` is (1 is uniform)."""
        return int(n * self.roll() ** power)
