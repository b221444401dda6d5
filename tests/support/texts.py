"""Sentences of descriptions, and how much these repeat each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

# The town is the one abbreviation of our lists.
_BREAK = re.compile(r"(?<=[.!?])(?<!St\.) +(?=[A-Z0-9])")


def sentences(text: str) -> list[str]:
    """The sentences of a text; a period, exclamation or question mark ends one."""
    return _BREAK.split(text.strip()) if text.strip() else []


def repeated_sentences(texts: Sequence[str]) -> float:
    """Share of sentences that occur more than once."""
    counts = Counter(s for text in texts for s in sentences(text))
    return sum(n for n in counts.values() if n > 1) / counts.total()


def distinct_pairs(texts: Sequence[str]) -> float:
    """Different pairs of neighbouring words per pair."""
    pairs = [p for text in texts for p in pairwise(re.findall(r"[\w'-]+", text.lower()))]
    return len(set(pairs)) / len(pairs)
