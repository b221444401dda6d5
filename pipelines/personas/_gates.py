"""Gates on written texts: rules that separate descriptions of people from noise.

Every gate is a rule that a reader would apply, with a bound that was set on model-written and
statistical texts (`benchmarks/personas`). A text has no fault, or is not used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pipelines.personas._lists import load_lists
from pipelines.personas._phrases import DOMAIN_NAMES, genre_phrase
from pipelines.personas._reader import genres_named, read_text

Fault = Literal[
    "empty",
    "unknown_words",
    "repetition",
    "cut",
    "first_or_second_person",
    "name",
    "other_name",
    "age",
    "pronouns",
    "tastes_not_named",
    "tastes_contradicted",
    "years_or_address",
    "improbable",
]
FAULTS: tuple[Fault, ...] = Fault.__args__  # type: ignore[attr-defined]

#: Lowest share of known words; of 1,500 texts that a large model wrote the lowest is 0.94.
_MIN_KNOWN = 0.9
#: Longest sequence of words that may come twice (count), and lowest share of distinct pairs of
#: words in any _WINDOW words in a row.
_REPEATED, _WINDOW, _DISTINCT = 9, 60, 0.72
#: Words from which a sentence that comes twice is a repetition (count).
_SENTENCE = 4
#: Nats per token under the bundled model, of the first _TOKENS tokens.
#: Large model's texts 2.1 to 3.7, statistical ones 3.8 to 5.0, shuffled words 7.0 to 7.6.
_PROBABLE = (1.5, 5.5)

_WORD = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")
_SMALL = re.compile(r"(?<![A-Za-z'’-])[a-z]{2,}(?![A-Za-z'’])")
_QUOTED = re.compile(r"[\"“][^\"”]{0,400}[\"”]")
_I = re.compile(r"(?<![-.\w])(?:I|I'(?:m|ve|d|ll)|me|my|mine|myself|u|we|our|ours|us)(?![-.\w])")
_YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE)
#: A name in the middle of a sentence; not behind what places follow.
_CAPITAL = re.compile(
    r"(?<=[a-z,;] )(?<!\bin )(?<!\bfrom )(?<!\bof )(?<!San )(?<!West )(?<!North )(?<!South )"
    r"([A-Z][a-z]+)(?! [A-Z])\b"
)
_BETWEEN = re.compile(r"(?<=[.!?])\s+")
#: A sentence that ends behind a word or mark that something must follow.
_CUT = re.compile(
    r"(?:[,;:(-]|\b(?:an?|the|and|or|but|nor|than|because|although|whose|which|if|very|their))"
    r" ?[.!?](?:\s|$)",
    re.IGNORECASE,
)
#: A first name that opens a sentence about somebody.
_SOMEBODY = re.compile(
    r"(?:^|[.!?] )([A-Z][a-z]+)(?: [A-Z][a-z]+)?"
    r"(?:,| (?:is|was|has|likes|loves|enjoys|works|hates)\b)"
)
_OPENS = re.compile(r"(?:^|[.!?] )(He|His|Him|She|Her|Hers)\b")
_AGE = re.compile(r"\b(\d{1,3})[- ]years?[- ]old\b|\baged? (\d{1,3})\b|^[^.]{2,60}?, (\d{1,3}),")
_HE, _SHE = (
    re.compile(r"\b(?:he|him|his|himself)\b", re.I),
    re.compile(r"\b(?:she|her|hers|herself)\b", re.I),
)
_TRACES = re.compile(
    r"(?:\b(?:19|20)\d\d\b[ ,;and]{0,6}){3}"  # a list of years
    r"|\b\d+ (?:[A-Z][a-z]+ ){1,3}(?:Street|St\.|Avenue|Ave\.|Road|Rd\.|Lane|Drive|Boulevard)\b"
    r"|\b[A-Z]{2} \d{5}\b|\bwww\.|https?:|\S@\S+\.\w|\b\d{3}-\d{3,4}-\d{4}\b"
)

#: Nats per token of texts: float64 of shape (texts,).
Nats = Callable[[Sequence[str]], Sequence[float]]


@cache
def _known_words() -> frozenset[str]:
    """Whole words of the bundled embedding model's vocabulary: 23,000 frequent English ones."""
    from pipelines.embeddings import bundled_model_folder

    lines = (Path(bundled_model_folder()) / "vocab.txt").read_text("utf-8").split("\n")
    return frozenset(line for line in lines if line.isalpha())


def _known(word: str) -> bool:
    words = _known_words()
    return word in words or any(
        word.endswith(end) and word.removesuffix(end) + more in words
        for end, more in (("s", ""), ("es", ""), ("ing", ""), ("ing", "e"), ("ed", ""), ("d", ""))
    )


@cache
def _first_names() -> frozenset[str]:
    return frozenset(name for names in load_lists().names.values() for name in names)


def text_faults(
    text: str, row: Mapping[str, Any], genres: Sequence[str] = (), *, plain: bool = False
) -> list[Fault]:
    """Faults of a text by rules that need no model.

    ``row`` has stated attributes of the person: any of `name`, `age` (years), `gender`, `likes` and
    `dislikes`; what is missing or null is not compared. ``genres`` are those of the domain, for the
    two rules on tastes. With ``plain`` the text states its tastes in sentences that the rule-based
    reader reads, as a sentence plan does: what it does not find was taken back elsewhere in the
    text.

    Examples
    --------
    >>> row = {"name": "Ann Lee", "age": 30, "gender": "female"}
    >>> text_faults("Ann Lee, 30, is a nurse. She reads in the garden after work.", row)
    []
    >>> text_faults("I want you to tell me what u have in world, Dude.", row)
    ['first_or_second_person', 'name']
    """
    faults: list[Fault] = []
    words = [w.lower() for w in _WORD.findall(text)]
    if len(words) < 8:
        faults.append("empty")
    small = _SMALL.findall(text)
    if small and sum(map(_known, small)) < _MIN_KNOWN * len(small):
        faults.append("unknown_words")
    sentences = [s for s in _BETWEEN.split(text.strip()) if s]
    spoken = [s.lower().strip(" .!?") for s in sentences if len(s.split()) >= _SENTENCE]
    if _repeats(words) or len({*spoken}) < len(spoken):
        faults.append("repetition")
    if _CUT.search(text):
        faults.append("cut")
    unquoted = _QUOTED.sub("", text)
    # A single "if you ask him" does not address the reader.
    if _I.search(unquoted) or _YOU.match(unquoted) or len(_YOU.findall(unquoted)) > 2:
        faults.append("first_or_second_person")
    faults += _person_faults(text, row)
    if genres and row.get("likes"):
        stated = {*row["likes"], *(row.get("dislikes") or ())}
        low, domain = text.lower(), row.get("domain") or "movies"
        for genre in stated.difference(genres_named(text, tuple(genres))):
            if genre_phrase(genre, domain).lower() not in low:
                faults.append("tastes_not_named")
                break
        read = read_text(text, tuple(genres))
        likes, dislikes = {*row["likes"]}, {*(row.get("dislikes") or ())}
        inverted = {*read.likes} & dislikes or {*read.dislikes} & likes
        if inverted or (plain and not (likes <= {*read.likes} and dislikes <= {*read.dislikes})):
            faults.append("tastes_contradicted")
    if _TRACES.search(text):
        faults.append("years_or_address")
    return faults


def _repeats(words: Sequence[str]) -> bool:
    """Return True if words loop: a long sequence twice, or few distinct pairs in a window."""
    seen: Counter[tuple[str, ...]] = Counter(
        tuple(words[n : n + _REPEATED + 1]) for n in range(len(words) - _REPEATED)
    )
    if seen and max(seen.values()) > 1:
        return True
    pairs = list(pairwise(words))
    for start in range(0, max(1, len(pairs) - _WINDOW + 1), _WINDOW // 2):
        window = pairs[start : start + _WINDOW]
        if len(window) >= _WINDOW // 4 and len(set(window)) < _DISTINCT * len(window):
            return True
    return any(a == b == c for a, b, c in zip(words, words[1:], words[2:], strict=False))


def _person_faults(text: str, row: Mapping[str, Any]) -> list[Fault]:
    faults: list[Fault] = []
    name, age, gender = row.get("name"), row.get("age"), row.get("gender")
    if name:
        name_words = set(str(name).split())
        if str(name).split()[0] not in text:
            faults.append("name")
        named = {*_CAPITAL.findall(text), *_SOMEBODY.findall(text)}
        if any(w in _first_names() and w not in name_words for w in named):
            faults.append("other_name")
    if age is not None:
        first = _AGE.search(text[:200])
        if first and int(next(g for g in first.groups() if g)) != int(age):
            faults.append("age")
    if gender in ("female", "male"):
        he, she = len(_HE.findall(text)), len(_SHE.findall(text))
        own_count, other = (she, he) if gender == "female" else (he, she)
        strange = {"female": {"He", "His", "Him"}, "male": {"She", "Her", "Hers"}}[gender]
        if other > own_count or strange.intersection(_OPENS.findall(text)):
            faults.append("pronouns")
    return faults


def _genres(row: Mapping[str, Any]) -> Sequence[str]:
    return load_lists(row["domain"]).genres if row.get("domain") in DOMAIN_NAMES else ()


class TextGates:
    """The rules, and the probability under the bundled model where one is given.

    ``nats`` returns nats per token of texts under the bundled model
    (:class:`pipelines.llm.models.TextScorer`); None leaves out the gate `improbable`. ``plain`` is
    that of :func:`text_faults`.
    """

    def __init__(self, nats: Nats | None = None, *, plain: bool = False) -> None:
        self._nats, self._plain = nats, plain

    @property
    def names(self) -> list[str]:
        """Gates in use."""
        return [f for f in FAULTS if f != "improbable" or self._nats is not None]

    def __call__(
        self, texts: Sequence[str], rows: Sequence[Mapping[str, Any]]
    ) -> list[list[Fault]]:
        """Faults of each text; the model is asked about texts that pass the rules only."""
        by_text = [
            text_faults(text, row, _genres(row), plain=self._plain)
            for text, row in zip(texts, rows, strict=True)
        ]
        passed = [n for n, faults in enumerate(by_text) if not faults]
        if self._nats is not None and passed:
            low, high = _PROBABLE
            for n, nats in zip(passed, self._nats([texts[n] for n in passed]), strict=True):
                if not low <= nats <= high:
                    by_text[n].append("improbable")
        return by_text
