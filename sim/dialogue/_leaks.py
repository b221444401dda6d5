"""Leaks: replies of customers that give away a product, an id, an index or a score."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

#: Words of a title that identify a product together (count).
_RUN = 3
_WORD = re.compile(r"[^\W_]+")
#: Words that carry no meaning of their own; runs of a title go over them.
_FILLERS = frozenset(
    _WORD.findall(
        "a an and any are as at be but by for from i in is it its like looking me more my need no "
        "not of on one or prefer so some something that the their them these this to too want we "
        "what which with without would you your"
    )
)
_DIGIT = "one|two|three|four|five|six|seven|eight|nine"
_TEEN = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
#: A number in digits or words; a price is none.
_NUMBER = (
    r"(?<![$€£.\d])(?:\d+(?:\.\d+)?"
    rf"|(?:{_TENS})(?:[- ](?:{_DIGIT}))?|{_TEEN}|{_DIGIT}|zero|(?:one |a )?hundred)\b"
)
_JOIN = r"(?:\s*[:=#]\s*|\s+(?:(?:number|no\.?|nr\.?|is|was|of|at|with|about|around|only)\s+)*)"
_INDEX = re.compile(
    rf"\b(?:products?|items?|index|position|recommendation)"
    rf"(?:\s*[#:]\s*|\s+(?:(?:number|no\.?|nr\.?)\s*)?){_NUMBER}(?!\s*%)"
    rf"|(?<![\w&])#\s*\d+\b",
    re.IGNORECASE,
)
_SCORE = re.compile(
    rf"{_NUMBER}[- ]*(?:points?\b|pts\b|(?:out of|/)\s*(?:100|10|a hundred|ten)\b)"
    rf"|\b(?:scor(?:e[sd]?|ing)|regrets?)\b{_JOIN}(?:it\s+|an?\s+)?{_NUMBER}(?!\s*%)",
    re.IGNORECASE,
)
_ID = r"(?:ids?|asin|sku)"


class LeakDetector:
    """Finds what a customer's reply must not give away about a choice set.

    A *title* is given away by three or more of its words in a row, fillers left out, that stand in
    no other title of the set. Words that the agent itself `said` (its question, the title that it
    recommends) are no leak of a title. An *id* counts wherever it stands if it has a letter and a
    digit or is a number of five digits or more; any other only behind a word for it (`id 12`). An
    *index* or a *score* counts where it is named as such (`product 3`, `82 points`, `70 out of
    100`); prices, sizes and shares do not.

    Examples
    --------
    >>> leaks = LeakDetector(["Oral-B Pro 1000 Brush", "Foxy Curls Contour Creme"], ["B07X", "8"])
    >>> leaks.find("The Foxy Curls Contour one."), leaks.find("Product 2, I gave it 82 points.")
    ('title', 'index')
    >>> leaks.find("One with 2 heads, under $20.")
    >>> leaks.find("Yes, foxy curls contour!", said=["Do you like Foxy Curls Contour Creme?"])
    """

    def __init__(self, titles: Sequence[str], item_ids: Sequence[str] = ()) -> None:
        counted = Counter(run for title in titles for run in set(_runs(title)))
        self._runs = frozenset(run for run, times in counted.items() if times == 1)
        folded = {_folded(item) for item in item_ids}
        plain = {item for item in folded if not _unmistakable(item)}
        self._ids = _either(folded - plain)
        self._named_ids = _either(plain, rf"\b{_ID}\b\W*(?:(?:is|number|no)\W+)?")

    def find(self, text: str, *, said: Iterable[str] = ()) -> str | None:
        """Kind of the first leak: ``index``, ``score``, ``id``, ``title``; None without one.

        ``text`` is the customer's reply, ``said`` the agent's texts in the dialogue.
        """
        folded = _folded(text)
        for kind, pattern in (
            ("index", _INDEX),
            ("score", _SCORE),
            ("id", self._ids),
            ("id", self._named_ids),
        ):
            if pattern is not None and pattern.search(folded):
                return kind
        runs = self._runs.intersection(_runs(text))
        if runs and not runs <= {run for earlier in said for run in _runs(earlier)}:
            return "title"
        return None


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = [word for word in _WORD.findall(_folded(text)) if word not in _FILLERS]
    return zip(*(words[start:] for start in range(_RUN)), strict=False)


def _unmistakable(item: str) -> bool:
    """True if a text can be nothing but an id."""
    digits = sum(c.isdigit() for c in item)
    return (digits > 0 and any(c.isalpha() for c in item)) or digits >= 5


def _either(items: Iterable[str], before: str = "") -> re.Pattern[str] | None:
    listed = sorted((re.escape(item) for item in items if item), key=len, reverse=True)
    return re.compile(rf"{before}(?<!\w)(?:{'|'.join(listed)})(?!\w)") if listed else None
