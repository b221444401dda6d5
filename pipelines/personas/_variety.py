"""Measures of repetition within texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

_WORD = re.compile(r"[\w'-]+")
# The town is the one abbreviation of our lists.
_BREAK = re.compile(r"(?<=[.!?])(?<!St\.) +(?=[A-Z0-9])")


@dataclass(frozen=True, slots=True)
class TextVariety:
    """Figures about some texts."""

    #: Texts (count).
    texts: int
    sentences: int
    words: int
    #: Different words, and different pairs of neighbouring words in a text, per word or pair (0 to
    #: 1; J. Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models",
    #: NAACL 2016). Both fall as texts are added: compare equal numbers of texts.
    distinct_1: float
    distinct_2: float
    #: Share of sentences that occur more than once (0 to 1).
    repeated_sentences: float
    #: Texts that equal an earlier one (count).
    duplicates: int


def sentences(text: str) -> list[str]:
    """The sentences of a text; a period, exclamation or question mark ends one.

    >>> sentences("Ann lives in St. Louis. She reads!")
    ['Ann lives in St. Louis.', 'She reads!']
    """
    return _BREAK.split(text.strip()) if text.strip() else []


def text_variety(texts: Iterable[str]) -> TextVariety:
    """Measure the variety of texts.

    Words are compared in lower case, sentences as they stand.

    >>> found = text_variety(["A cat. A dog.", "A cat."])
    >>> found.words, found.distinct_1, found.distinct_2
    (6, 0.5, 0.75)
    >>> round(found.repeated_sentences, 3), found.duplicates
    (0.667, 0)
    """
    whole: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    words: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    word_count = pair_count = 0
    for text in texts:
        whole[text] += 1
        parts.update(sentences(text))
        found = _WORD.findall(text.lower())
        words.update(found)
        pairs.update(pairwise(found))
        word_count += len(found)
        pair_count += max(0, len(found) - 1)
    repeated = sum(n for n in parts.values() if n > 1)
    return TextVariety(
        texts=whole.total(),
        sentences=parts.total(),
        words=word_count,
        distinct_1=len(words) / max(1, word_count),
        distinct_2=len(pairs) / max(1, pair_count),
        repeated_sentences=repeated / max(1, parts.total()),
        duplicates=whole.total() - len(whole),
    )
