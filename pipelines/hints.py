"""Hints for unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["first_line", "nearest"]


def nearest(wanted: object, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """The hint of an error about an unknown name: the nearest known one, or all of them.

    From a likeness of ``cutoff`` on (0-1) a name is near.

    >>> nearest("greddy", ("none", "greedy"))
    'did you mean greedy?'
    >>> nearest("x", ("none", "greedy"))
    'one of none, greedy'
    """
    names = list(known)
    near = difflib.get_close_matches(str(wanted), names, n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}"


def first_line(error: object, max_chars: int = 200) -> str:
    r"""The first line of a library's error, or its type where it has no text.

    >>> first_line(ValueError("no such file\nTraceback ..."))
    'no such file'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:max_chars]
