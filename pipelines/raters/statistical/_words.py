"""What a persona's text says about the marks that it gives, and to what.

People who say how they rate ("comedies get full marks from her", "he finds fault with every book
and gives the lowest marks to all of them") tell more than a taste: they state a rating. The
reader finds statements of marks, whether they are good or bad, and what they are about: genres,
everything else, or everything. It knows no item and is fitted on nothing.

>>> text = "Comedies get full marks from her. She rates all other films low."
>>> said = read_words(text, ("Comedy",))
>>> dict(said.genres), said.others, said.everything
({'Comedy': 2}, -1, 0)
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from pipelines.raters.statistical._reading import genres_named

__all__ = ["Words", "read_words"]

#: What is given, and the verbs of giving it.
_MARK = r"(?:marks?|ratings?|scores?|grades?|stars)"
_RATE = r"(?:rat|scor|grad|mark)(?:es|ed|e|ing|s)?"
_POSSIBLE = r"(?:possible )?"
#: Level 2 is the end of the scale, 1 its better half; in `_LOW` the other way round.
_HIGH: tuple[tuple[int, str], ...] = (
    (2, rf"(?:highest|top|best|full|perfect|maximum|five) {_POSSIBLE}{_MARK}"),
    (2, rf"{_RATE} (?:\w+ ){{0,4}}?(?:at the (?:very )?top|as high(?:ly)? as|to the skies)"),
    (2, r"(?:highest|best|top) (?:ones? )?(?:there (?:is|are)|\w+ has)"),
    (1, rf"(?:high|good|great|excellent|generous|glowing) {_MARK}"),
    (1, rf"{_RATE} (?:\w+ ){{0,4}}?(?:high|highly|kindly|generously)\b"),
    (1, rf"{_MARK} (?:\w+ ){{0,3}}?(?:is|are) (?:always |very )?(?:high|good|generous)\b"),
)
_LOW: tuple[tuple[int, str], ...] = (
    (2, rf"(?:lowest|worst|rock bottom|minimum) {_POSSIBLE}{_MARK}"),
    (2, rf"{_RATE} (?:\w+ ){{0,4}}?at the (?:very )?bottom"),
    (1, rf"(?:low|poor|bad|harsh|terrible|dismal) {_MARK}"),
    (1, rf"{_RATE} (?:\w+ ){{0,4}}?(?:low|poorly|badly|harshly|down)\b"),
    (1, rf"{_RATE} (?:\w+ ){{0,4}}?(?:near|towards?) the bottom\b"),
    (1, rf"{_MARK} (?:\w+ ){{0,3}}?(?:is|are) (?:always |very )?(?:low|poor|bad)\b"),
)
_LEVELS = [(level, re.compile(rf"\b{p}")) for level, p in _HIGH] + [
    (-level, re.compile(rf"\b{p}")) for level, p in _LOW
]
_THING = r"(?:films?|movies?|books?|novels?|games?|titles?|stor(?:y|ies)|ones?|of them|things?)"
#: What is not of the kind that was spoken of.
_OTHERS = re.compile(
    r"\b(?:others?|the rest|else|without|non|instead|"
    r"(?:is|are|was|were|do|does|has|have) (?:not|no)|isn t|aren t|not an?|with no|and no)\b"
)
_EVERYTHING = re.compile(
    rf"\b(?:everything|anything|whatever|exclusively|always|consistently|invariably|"
    rf"without exception|(?:all|every|each|any|no) (?:single )?{_THING}|"
    rf"(?:a|the|each) {_THING} ever)\b"
)
_PRONOUN = re.compile(r"\b(?:it|them|they|these|those|each)\b")
_NEGATED = re.compile(
    r"\b(?:no|not|never|nobody|none|hardly|rarely|seldom|t)\b(?!.*\b(?:more|better|higher) than\b)"
)
#: What would be is not what is.
_UNREAL = re.compile(r"\b(?:would|could|might|should|wishes|less than)\b")
_SENTENCE = re.compile(r"[.;!?\n]")
_CLAUSE = re.compile(
    r",(?! which\b)(?! that\b)|:|\b(?:but|because|since|although|though|while|whereas|however)\b"
)
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Words:
    """What a text states about marks: 2 the best, 1 good, -1 bad, -2 the worst, 0 nothing.

    Attributes
    ----------
    genres
        Genres with their level, in the domain's order.
    others
        Level of what is of none of these genres.
    everything
        Level of whatever nothing more definite is said of.
    """

    genres: tuple[tuple[str, int], ...] = ()
    others: int = 0
    everything: int = 0

    def __bool__(self) -> bool:
        return bool(self.genres or self.others or self.everything)


@lru_cache(maxsize=65_536)
def read_words(text: str, genres: tuple[str, ...], likes: tuple[str, ...] = ()) -> Words:
    """Read one text.

    Parameters
    ----------
    text
        Of a persona.
    genres
        Of its domain.
    likes
        Genres that it is known to like: what praise is about where the text does not say.
    """
    votes: dict[str, list[int]] = defaultdict(list)
    about: tuple[str, ...] = ()
    lowered = text.casefold().replace("\u2019", "'").replace("not only", "")
    # Neither a negation nor the end of a clause.
    lowered = lowered.replace("nothing but", "exclusively")
    for sentence in _SENTENCE.split(lowered):
        for clause in _CLAUSE.split(sentence):
            words = _WORD.findall(clause)
            said = " ".join(words)
            about = _about(words, said, genres, about)
            if _UNREAL.search(said):
                continue
            for level in _levels(said):
                for subject in about:
                    votes[subject].append(level)
    return _settled(votes, genres, likes)


_OTHER, _ALL, _UNNAMED = "\0others", "\0everything", "\0unnamed"


def _about(
    words: list[str], said: str, genres: tuple[str, ...], before: tuple[str, ...]
) -> tuple[str, ...]:
    """What a clause is about: genres, the others, everything, or what the last one was about.

    Where nothing was spoken of yet ("a generous rater"), marks are about nothing in particular:
    that is leniency, which :func:`pipelines.raters.statistical._reading.read_text` reads.
    """
    if _OTHERS.search(said) and not re.search(r"\bno other\b", said):
        named = genres_named(words, genres)
        thing = re.search(rf"\b(?:{_THING}|others?|rest|else|whatever|anything)\b", said)
        if named or thing:
            return (_OTHER,)
        return before
    if _EVERYTHING.search(said):
        return (_ALL,)
    named = genres_named(words, genres)
    if named:
        return named
    if _PRONOUN.search(said):
        return before
    # A new thing that is no genre, such as "films that frighten her".
    return (_UNNAMED,) if re.search(rf"\b{_THING}\b", said) else before


def _levels(said: str) -> list[int]:
    """Levels of the marks that a clause speaks of; at each place the first pattern counts."""
    found: dict[int, int] = {}
    for level, pattern in _LEVELS:
        for match in pattern.finditer(said):
            if any(abs(match.end() - end) < 2 for end in found):
                continue
            negated = _NEGATED.search(said[: match.end()])
            found[match.end()] = -(1 if level > 0 else -1) if negated else level
    return list(found.values())


def _settled(votes: dict[str, list[int]], genres: tuple[str, ...], likes: tuple[str, ...]) -> Words:
    """One level per subject; praise and blame of one genre mean that one and the others."""
    others = list(votes.pop(_OTHER, []))
    everything = list(votes.pop(_ALL, []))
    unnamed = votes.pop(_UNNAMED, [])
    for level in unnamed:
        if level > 0:
            for genre in likes:
                votes.setdefault(genre, []).append(level)
        elif any(v > 0 for levels in votes.values() for v in levels):
            others.append(level)
    for levels in votes.values():
        if any(v > 0 for v in levels) and any(v < 0 for v in levels):
            others += [v for v in levels if v < 0]
            levels[:] = [v for v in levels if v > 0]
    named = tuple((g, level) for g in genres if (level := _one(votes.get(g, []))))
    return Words(named, _one(others), _one(everything))


def _one(levels: list[int]) -> int:
    """The strongest statement of the side that has more of them; 0 for a tie."""
    high = [v for v in levels if v > 0]
    low = [v for v in levels if v < 0]
    if len(high) == len(low):
        return 0
    return max(high) if len(high) > len(low) else min(low)
