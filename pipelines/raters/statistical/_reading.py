"""What a persona's text says about its taste: genres liked and disliked, generosity, harshness.

A lexicon with negation, in any domain: the genre words are the domain's genres, with plurals and
common other names. Within a clause a cue (`loves`, `can't stand`) colours the genres that follow
it; genres before the first cue (`horror bores her`) take that one's colour.

>>> text = "She adores comedies but can't stand horror. A harsh critic."
>>> said = read_text(text, ("Comedy", "Horror"))
>>> said.likes, said.dislikes, said.leniency
(('Comedy',), ('Horror',), -1.0)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Reading", "genres_named", "read_text"]


def _words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


#: Words of liking and disliking; `*` stands for any ending.
_LIKING = (
    "love* adore* enjoy* like likes liked liking prefer* favour* favor* fan fans fond keen crave* "
    "cherish* devour* relish* appreciate* passion* enthusias* drawn addicted obsessed treasure* "
    "weakness delight* eager hooked happy thrilled wants picks chooses"
)
_DISLIKING = (
    "hate* dislike* detest* loathe* despise* avoid* bore* boring shun* skip skips skipped refuse* "
    "abhor* averse aversion allergic tire tired annoy* irritat* scorn* wary squeamish"
)
#: Several words with one colour: +1 or -1.
_PHRASES = {
    "can t stand": -1,
    "cannot stand": -1,
    "can not stand": -1,
    "couldn t stand": -1,
    "can t bear": -1,
    "cannot bear": -1,
    "can t abide": -1,
    "no patience for": -1,
    "no patience with": -1,
    "no time for": -1,
    "no interest in": -1,
    "no use for": -1,
    "stay away from": -1,
    "stays away from": -1,
    "steer clear of": -1,
    "steers clear of": -1,
    "keep away from": -1,
    "keeps away from": -1,
    "turned off by": -1,
    "put off by": -1,
    "sick of": -1,
    "leaves cold": -1,
    "never cared for": -1,
    "can t get enough": 1,
    "cannot get enough": 1,
    "never miss": 1,
    "never misses": 1,
    "soft spot for": 1,
    "never tires of": 1,
    "never tire of": 1,
    "nothing beats": 1,
    "looks forward to": 1,
    "big on": 1,
    "care for": 1,
    "cares for": 1,
    "interested in": 1,
}
_NEGATORS = _words(
    "not no never hardly rarely seldom barely scarcely without neither nor t isn wasn"
)
_EXCEPTIONS = _words("except excluding")
#: Words that name a genre only beside a word for the thing itself: `family films`, not `family`.
_AMBIGUOUS = _words(
    "family children war history music adventure crime casual sports sport racing art arts "
    "cooking business health religion science travel nature design reference home law computers "
    "technology medical education fiction short biography"
)
_THINGS = _words(
    "film films movie movies picture pictures cinema book books novel novels story stories read "
    "reads reading tale tales game games title titles show shows series flick flicks genre "
    "literature"
)
#: Other names of genres (lower case), for those of the domain whose name contains the key.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "sci fi": ("science fiction", "sf", "space opera"),
    "science fiction": ("sci fi", "scifi", "sf", "space opera"),
    "romance": (
        "romantic",
        "romances",
        "love story",
        "love stories",
        "rom com",
        "romcom",
        "romcoms",
    ),
    "comedy": ("comedies", "comic", "funny", "rom com", "romcom", "romcoms"),
    "horror": ("scary", "slasher", "slashers", "horrors"),
    "thriller": ("thrillers", "suspense"),
    "documentary": ("documentaries", "docs"),
    "animation": ("animated", "cartoon", "cartoons", "anime"),
    "children": ("kids", "children s"),
    "mystery": ("mysteries", "whodunit", "whodunits"),
    "rpg": ("role playing", "rpgs"),
    "film noir": ("noir", "noirs"),
    "musical": ("musicals",),
    "biography": ("biographies", "memoir", "memoirs"),
    "history": ("historical",),
    "massively multiplayer": ("mmo", "mmos", "mmorpg", "mmorpgs"),
    "crime": ("gangster", "detective"),
    "war": ("wartime",),
    "sports": ("sport",),
    "simulation": ("simulations", "simulator", "simulators", "sims"),
    "strategy": ("strategies",),
}
_GENEROUS = (
    r"generous(?:ly)?|lenient(?:ly)?|easy to please|easily (?:pleased|impressed|satisfied)|"
    r"forgiving|(?:high|top) (?:marks|ratings|scores)|five stars|soft (?:critic|touch|grader)|"
    r"kind (?:critic|reviewer|rater)|(?:rates|scores|grades) (?:highly|kindly|high)"
)
_HARSH = (
    r"harsh(?:ly)?|strict(?:ly)?|picky|demanding|(?:hard|difficult|tough) to (?:please|impress)|"
    r"tough (?:critic|crowd|grader|audience)|(?:very|highly|sharply|overly) critical|"
    r"rarely (?:impressed|satisfied|pleased)|high standards|fussy|stingy|nitpick\w*|"
    r"exacting|merciless(?:ly)?|hypercritical|(?:low|poor) (?:marks|ratings|scores)|"
    r"unforgiving|choosy|(?:rates|scores|grades) (?:low|strictly|severely)|severe (?:critic|judge)"
)
_MANNER = re.compile(rf"\b(?:(?P<harsh>{_HARSH})|(?P<generous>{_GENEROUS}))\b")
#: Generosity in other matters is not about ratings.
_ELSEWHERE = re.compile(r"\b(?:parents?|father|mother|boss|diet|schedule|job|employer|regime)\b")
_NEGATED = re.compile(
    r"(?:\b(?:not|never|hardly|far from|no|isn t|without being)\b)(?: \w+){0,2} $"
)
_CLAUSE = re.compile(r"[.;!?:\n]|\b(?:but|although|though|while|whereas|however|yet|despite)\b")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Reading:
    """What a text says.

    Attributes
    ----------
    likes, dislikes
        Genres of the domain, in its order; a genre that is both is in neither.
    leniency
        1 for a generous rater, -1 for a harsh one, 0 if nothing (or both) is said.
    """

    likes: tuple[str, ...]
    dislikes: tuple[str, ...]
    leniency: float


@lru_cache(maxsize=65_536)
def read_text(text: str, genres: tuple[str, ...]) -> Reading:
    """Read one text with the genres of its domain."""
    lexicon = _lexicon(genres)
    votes = dict.fromkeys(genres, 0)
    manner = 0.0
    lowered = text.casefold().replace("\u2019", "'").replace("not only", "")
    for clause in _CLAUSE.split(lowered):
        words = _WORD.findall(clause)
        for genre, sign in _coloured(words, lexicon):
            votes[genre] += sign
        manner += _manner(" ".join(words))
    return Reading(
        tuple(g for g in genres if votes[g] > 0),
        tuple(g for g in genres if votes[g] < 0),
        float((manner > 0) - (manner < 0)),
    )


def genres_named(words: list[str], genres: tuple[str, ...]) -> tuple[str, ...]:
    """Genres that a clause names, in the domain's order.

    >>> genres_named("animated films and comedies".split(), ("Animation", "Comedy", "War"))
    ('Animation', 'Comedy')
    """
    lexicon, place, named = _lexicon(genres), 0, set()
    while place < len(words):
        found, length = lexicon.at(words, place)
        named.update(found)
        place += max(length, 1)
    return tuple(g for g in genres if g in named)


def _coloured(words: list[str], lexicon: _Lexicon) -> Iterable[tuple[str, int]]:
    """Genres of a clause with the colour of their cue; those without one are left out."""
    colour: int | None = None
    waiting: list[str] = []
    negated, place = 0, 0
    while place < len(words):
        length, sign = _phrase(words, place)
        if not length:
            length, sign = 1, _cue(words[place])
        if sign is not None:
            if negated and place - negated <= 3:
                # What is not liked is disliked; what is not disliked is only endured.
                sign = -1 if sign > 0 else 0
            colour, negated = sign, 0
            yield from ((genre, sign) for genre in waiting if sign)
            waiting.clear()
            place += length
            continue
        if words[place] in _NEGATORS:
            negated = place + 1
        elif words[place] in _EXCEPTIONS and colour:
            colour = -colour
        found, length = lexicon.at(words, place)
        for genre in found:
            if colour is None:
                waiting.append(genre)
            elif colour:
                yield genre, colour
        place += max(length, 1)


def _phrase(words: list[str], place: int) -> tuple[int, int | None]:
    for length in (4, 3, 2):
        sign = _PHRASES.get(" ".join(words[place : place + length]))
        if sign is not None and place + length <= len(words):
            return length, sign
    return 0, None


def _cue(word: str) -> int | None:
    if _LIKES.fullmatch(word):
        return 1
    return -1 if _DISLIKES.fullmatch(word) else None


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile("|".join(w.replace("*", r"\w*") for w in words.split()))


_LIKES, _DISLIKES = _pattern(_LIKING), _pattern(_DISLIKING)


def _manner(clause: str) -> float:
    total = 0.0
    if _ELSEWHERE.search(clause):
        return total
    for match in _MANNER.finditer(clause):
        sign = 1.0 if match["generous"] else -1.0
        total += -sign if _NEGATED.search(clause[: match.start()]) else sign
    return total


class _Lexicon:
    """Names of genres as sequences of words."""

    def __init__(self, genres: tuple[str, ...]) -> None:
        self._names: dict[tuple[str, ...], list[str]] = {}
        for genre in genres:
            for name in _names_of(genre):
                self._names.setdefault(name, []).append(genre)
        self._longest = max((len(n) for n in self._names), default=0)

    def at(self, words: list[str], place: int) -> tuple[list[str], int]:
        """Genres named from `place` on, by the longest name, and the words it takes."""
        for length in range(min(self._longest, len(words) - place), 0, -1):
            name = tuple(words[place : place + length])
            if name in self._names:
                if length == 1 and name[0] in _AMBIGUOUS:
                    known = self._names[name] if _beside_thing(words, place + 1) else []
                    return known, length
                return self._names[name], length
        return [], 0


def _beside_thing(words: list[str], after: int) -> bool:
    """Whether a word for the thing comes soon: also at the end of a list of genres."""
    return not _THINGS.isdisjoint(words[after : after + 6])


@lru_cache(maxsize=64)
def _lexicon(genres: tuple[str, ...]) -> _Lexicon:
    return _Lexicon(genres)


def _names_of(genre: str) -> set[tuple[str, ...]]:
    name = " ".join(_WORD.findall(genre.casefold().replace("\u2019", "'").replace("'s", "")))
    if not name:
        return set()
    names = {name, *_OTHER_NAMES.get(name, ())}
    names |= {n[:-1] + "ies" if n.endswith("y") else n + "s" for n in (name,) if n[-1] != "s"}
    # A compound is known by each of its parts: `Mystery & Thriller`, `Science Fiction, Fantasy`.
    for part in re.split(r"\s*(?:&|,|/|\band\b)\s*", genre.casefold()):
        words = _WORD.findall(part)
        if words and part != genre.casefold():
            whole = " ".join(words)
            names |= {whole, whole + "s", *_OTHER_NAMES.get(whole, ())}
    return {tuple(n.split()) for n in names}
