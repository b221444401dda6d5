"""Uniform numbers for many environments, each from a generator of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Draws"]

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


class Draws:
    """Streams of uniform numbers in [0, 1), one per environment.

    A stream is what its generator's ``random()`` would give call by call, whatever else is drawn
    from the other streams and however many numbers are fetched ahead.

    Parameters
    ----------
    streams
        How many.
    ahead
        Numbers fetched at a time from a generator (count).

    Examples
    --------
    >>> draws = Draws(2, ahead=3)
    >>> draws.seed(0, np.random.default_rng(7)); draws.seed(1, np.random.default_rng(8))
    >>> both = draws.take(np.array([0, 1]), 2)
    >>> alone = np.random.default_rng(7).random(4)
    >>> bool((both[0] == alone[:2]).all() and (draws.take(np.array([0]), 2) == alone[2:]).all())
    True
    """

    def __init__(self, streams: int, ahead: int = 512) -> None:
        self._ahead = ahead
        self._buffer = np.zeros((streams, ahead))
        # Everything is used up: the first take fetches.
        self._at = np.full(streams, ahead, np.int64)
        self._generators: list[np.random.Generator] = [
            np.random.Generator(np.random.PCG64()) for _ in range(streams)
        ]

    def seed(self, stream: int, generator: np.random.Generator) -> None:
        """Start a stream afresh from a generator, which is the stream's from here on."""
        self._generators[stream] = generator
        self._at[stream] = self._ahead

    def generator(self, stream: int) -> np.random.Generator:
        """Whom a stream is drawn from."""
        return self._generators[stream]

    def take(self, streams: _Ints, count: int) -> _Floats:
        """The next `count` (at most `ahead`) numbers of some streams, of shape (n, count)."""
        at = self._at[streams]
        short = at + count > self._ahead
        if short.any():
            for stream in streams[short].tolist():
                self._refill(stream)
            at = self._at[streams]
        self._at[streams] = at + count
        return np.asarray(
            self._buffer[streams[:, None], at[:, None] + np.arange(count)], np.float64
        )

    def _refill(self, stream: int) -> None:
        used = int(self._at[stream])
        left = self._buffer[stream, used:].copy()
        self._buffer[stream, : len(left)] = left
        self._buffer[stream, len(left) :] = self._generators[stream].random(used)
        self._at[stream] = 0

    def state(self) -> dict[str, Any]:
        """Everything that decides the numbers to come, as arrays and plain values."""
        return {
            "buffer": self._buffer.copy(),
            "at": self._at.copy(),
            "generators": [g.bit_generator.state for g in self._generators],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self._buffer[...] = state["buffer"]
        self._at[...] = state["at"]
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.bit_generator.state = saved
