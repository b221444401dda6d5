"""Randomness that belongs to a row, not to a run.

A draw is a hash of (seed, row, purpose), so it is the same whatever the batch size, the order
of rows or the number of workers. The mixer is SplitMix64's finaliser (Steele, Lea and Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014); it is not cryptographic.

>>> import numpy as np
>>> whole = uniform(7, np.arange(4), 1)
>>> bool((whole[2:] == uniform(7, np.arange(2, 4), 1)).all())
True
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["U64", "combine", "hash_ids", "hash_text", "uniform"]

U64: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


def _finalise(value: Any) -> Any:
    """Mix an array, or a number: of numbers Python's are faster, as NumPy's calls cost more."""
    if isinstance(value, int) or value.ndim == 0:
        number = (int(value) + _GOLDEN) & _MASK
        number = ((number ^ (number >> 30)) * _FIRST) & _MASK
        number = ((number ^ (number >> 27)) * _SECOND) & _MASK
        return number ^ (number >> 31)
    value = value + _GOLDEN
    value = (value ^ (value >> 30)) * _FIRST
    value = (value ^ (value >> 27)) * _SECOND
    return value ^ (value >> 31)


def combine(*keys: int | npt.ArrayLike) -> U64:
    """Hash of the keys, in order; arrays broadcast against each other.

    Keys are integers from 0 to 2^64 - 1, or arrays of them. The result is an array of uint64
    (0-dimensional if every key is a number).
    """
    state: Any = 0
    for key in keys:
        value = key if isinstance(key, int) else np.asarray(key).astype(np.uint64)
        state = _finalise(state ^ _finalise(value))
    return np.asarray(state, np.uint64)


def uniform(*keys: int | npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), one per (broadcast) combination of keys."""
    # 53 bits are what a double holds; the shift keeps 1.0 out of reach.
    return np.asarray((combine(*keys) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def hash_text(text: str) -> int:
    """A stable 64-bit number for a text (BLAKE2b), the same on every machine and version.

    >>> hash_text("ml:862") == hash_text("ml:862") != hash_text("ml:863")
    True
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def hash_ids(ids: Iterable[str]) -> U64:
    """`hash_text` of every id, as an array of shape (n,)."""
    return np.fromiter((hash_text(i) for i in ids), dtype=np.uint64)
