"""What agents say of items: phrases of the statistical brain, and a check of anybody's texts.

The rating comes first: it decides whether a feeling is one of liking. The reason comes second, from
the effects on the rating that agree with it, and names only genres that the item has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.packaged import packaged_yaml
from pipelines.personas import genre_phrase
from pipelines.raters import EFFECTS
from pipelines.seeding import U64, uniform
from sim.agents._choice import FEATURES, liked_genres
from sim.agents._protocol import Bools, Floats, Ints, Texts
from sim.agents._run import Simulation
from sim.agents._world import AgentWorld
from sim.environment import PersonaTable

#: Ratings on 1-5 from which an item is liked (Agent4Rec, section 3.3), and up to which disliked.
LIKED_FROM, DISLIKED_TO = 4, 2
#: Share of a person's history from which a genre is a usual one.
_USUAL = 0.2
#: Shares of remarks that name no genre, and of genres with the decade of the item.
_WITHOUT_GENRE, _WITH_DECADE = 0.06, 0.6
#: Which question a draw is for.
_PHRASE, _GENRE, _PLAIN, _DECADE = range(10, 14)
_AGREEMENT, _CONFLICT = EFFECTS.index("agreement"), EFFECTS.index("conflict")
_TASTE = EFFECTS.index("taste")


class Remarks:
    """Chooses the statistical brain's phrases, those of ``data/remarks.yaml``.

    ``tastes`` is the share of each person's history that has each genre, of shape (people, genres).
    """

    def __init__(self, world: AgentWorld, tastes: Floats) -> None:
        self._phrases = packaged_yaml("sim.agents", "remarks.yaml")
        personas = PersonaTable.read(world.release).frame[world.people["persona"].to_list()]
        self._likes, self._dislikes = (
            liked_genres(world, personas[side]) > 0 for side in ("likes", "dislikes")
        )
        self._usual = tastes[: len(personas)] >= _USUAL
        self._genres = world.genres > 0
        domain = world.release.domain
        self._nouns = [genre_phrase(name, domain) for name in world.genre_names]
        years = world.catalogue.frame["year"].fill_null(0).to_numpy()
        self._decades = years.astype(np.int64) // 10 * 10

    def feelings(
        self, people: Ints, items: Ints, ratings: Floats, effects: Floats, seeds: U64
    ) -> Texts:
        """A feeling about each rated item; all of shape (n,), ``effects`` (n, effects)."""
        sides = opinion(ratings)
        liked, disliked = (
            table[people] & self._genres[items] for table in (self._likes, self._dislikes)
        )
        # An effect against the rating is a reason only in a phrase that says so.
        agrees = np.where(sides[:, None] > 0, effects, -effects)
        strength = np.where(agrees > 0, agrees, 0.0)
        strength[:, _AGREEMENT] = np.abs(effects[:, _AGREEMENT]) * liked.any(axis=1)
        strength[:, _CONFLICT] = np.abs(effects[:, _CONFLICT]) * disliked.any(axis=1)
        cell = np.where(strength.max(axis=1) > 0, strength.argmax(axis=1), len(EFFECTS))
        # Taste is that for a genre where the persona states one.
        cell = np.where((cell == _TASTE) & (sides > 0) & liked.any(axis=1), _AGREEMENT, cell)
        cell = np.where((cell == _TASTE) & (sides < 0) & disliked.any(axis=1), _CONFLICT, cell)
        has = self._genres[items]
        neutral = np.where(sides[:, None] > 0, has & ~disliked, has)
        neutral = np.where(sides[:, None] < 0, has & ~liked, neutral)
        # Where every genre speaks against the rating, that is what is to be said.
        none = np.asarray(has.any(axis=1) & ~neutral.any(axis=1))
        cell = np.where(none, np.where(sides > 0, _CONFLICT, _AGREEMENT), cell)
        named = np.where((cell == _AGREEMENT)[:, None], liked, neutral)
        named = np.where((cell == _CONFLICT)[:, None], disliked, named)
        out = np.full(len(people), None, object)
        for side, level in (("liked", 1), ("mixed", 0), ("disliked", -1)):
            rows = np.flatnonzero(sides == level)
            phrases = [self._phrases["feelings"][side][name] for name in (*EFFECTS, "any")]
            out[rows] = self._said(phrases, cell[rows], named[rows], items[rows], seeds[rows])
        return out

    def reasons(
        self, people: Ints, items: Ints, watched: Bools, off: Floats, fitted: Floats, seeds: U64
    ) -> Texts:
        """A reason for watching, or not, each item.

        ``off`` are the terms of P(watch) less the person's usual ones, ``fitted`` their weights,
        both of shape (n, features). A term of negative weight is no reason: the phrases say what
        speaks for an item where there is much of it.
        """
        speaks = np.where(watched[:, None], off, -off) * (fitted > 0)
        names = (*FEATURES, "conflict", "agreement", "any")
        cell = np.where(speaks.max(axis=1) > 0, speaks.argmax(axis=1), names.index("any"))
        has = self._genres[items]
        liked, disliked = (table[people] & has for table in (self._likes, self._dislikes))
        usual = self._usual[people] & has
        neutral = np.where(watched[:, None], has & ~disliked, has & ~liked)
        none = np.asarray(has.any(axis=1) & ~neutral.any(axis=1))
        against = np.where(watched, names.index("conflict"), names.index("agreement"))
        cell = np.where(none, against, cell)
        for_genres = np.where(
            watched[:, None], liked | (usual & ~disliked), disliked | (has & ~usual & ~liked)
        )
        named = np.where((cell == FEATURES.index("genres"))[:, None], for_genres, neutral)
        named = np.where(none[:, None], has, named)
        out = np.full(len(people), None, object)
        for side, chosen in (("watched", watched), ("skipped", ~watched)):
            rows = np.flatnonzero(chosen)
            phrases = [self._phrases["reasons"][side].get(name, []) for name in names]
            out[rows] = self._said(phrases, cell[rows], named[rows], items[rows], seeds[rows])
        return out

    def _said(
        self, phrases: list[list[str]], cell: Ints, named: Bools, items: Ints, seeds: U64
    ) -> Texts:
        """A phrase of each row's cell, about one of the genres that may be named."""
        count = named.sum(axis=1)
        rank = (uniform(seeds, items, _GENRE) * count).astype(np.int64)
        genre = np.where(count > 0, (named.cumsum(axis=1) > rank[:, None]).argmax(axis=1), -1)
        genre[uniform(seeds, items, _PLAIN) < _WITHOUT_GENRE] = -1
        decade = np.where(uniform(seeds, items, _DECADE) < _WITH_DECADE, self._decades[items], 0)
        draw = uniform(seeds, items, _PHRASE)
        out = np.full(len(cell), None, object)
        for number, several in enumerate(phrases):
            for with_genre in (False, True):
                fitting = [phrase for phrase in several if ("{genre}" in phrase) == with_genre]
                for row in np.flatnonzero((cell == number) & ((genre >= 0) == with_genre)):
                    noun = self._nouns[genre[row]]
                    if decade[row]:
                        noun = f"{noun} of the {decade[row]}s"
                    out[row] = fitting[int(draw[row] * len(fitting))].replace("{genre}", noun)
        return out


def opinion(ratings: Floats) -> Ints:
    """1 where a rating on 1-5 is a like, -1 where it is a dislike, else 0.

    >>> opinion(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).tolist()
    [-1, -1, 0, 1, 1]
    """
    return np.where(ratings >= LIKED_FROM, 1, np.where(ratings <= DISLIKED_TO, -1, 0))


#: Verdicts in texts of anybody, outside a negation.
_NOT = r"(?<!\bnot )(?<!\bnever )(?<!n't )(?<!\bfar from )"
_BAD = re.compile(
    _NOT + r"\b(?:dislike[ds]?|hate[ds]?|loathed?|regret(?:ted)?|bored me"
    r"|(?:was|is|so|too) (?:boring|dull)|waste of (?:my )?time|left me cold"
    r"|disappoint(?:ed|ing|ment)|poorly made|terrible|awful"
    r"|(?:did not|didn't|do not|don't) (?:like|enjoy|please|care for)|not (?:to )?my taste)\b",
    re.IGNORECASE,
)
_GOOD = re.compile(
    _NOT + r"\b(?:I (?:really |very much |quite |just )?(?:liked?|loved?|enjoy(?:ed)?)"
    r" (?:it|this|every)\b|just my taste|my favou?rite|excellent|wonderful|a treat\b)",
    re.IGNORECASE,
)
_FOND = re.compile(
    r"\b(?:lik(?:e|es|ed)|lov(?:e|es|ed)|enjoy(?:s|ed)?|fond of|fan of|favou?rite)\b", re.IGNORECASE
)
_TURN = re.compile(
    r"\b(?:no|not|but|although|though|despite|instead|unlike|rather|other|lacks?|without|if)\b|n't",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"\b(he|she) (?:\w+ ){0,2}?(?:(?:dis)?likes?d?|loved?s?|enjoy(?:s|ed)?|prefers?|avoids?"
    r"|rate[sd]|watche[sd])\b",
    re.IGNORECASE,
)
_PRONOUN = {"he": "male", "she": "female"}


@cache
def _named(genre: str, domain: str) -> re.Pattern[str]:
    spelled = sorted({re.escape(genre.lower()), re.escape(genre_phrase(genre, domain).lower())})
    return re.compile(rf"\b(?:{'|'.join(spelled)})s?\b", re.IGNORECASE)


def genres_named(text: str, known: Sequence[str], domain: str) -> set[str]:
    """Genres that a text names, of those that are known."""
    return {genre for genre in known if _named(genre, domain).search(text)}


def fault_of(
    text: str,
    *,
    rating: float | None,
    genres: Sequence[str],
    known: Sequence[str],
    gender: str | None,
    domain: str = "movies",
) -> str | None:
    """How a text contradicts its rating, item or persona; None if it does not.

    ``genres`` are those of the item, ``known`` all there are. Only a plain
    contradiction counts: a sentence with a negation or a contrast is not judged by its genres.

    >>> facts = {"genres": ["Comedy"], "known": ["Comedy", "Horror"], "gender": "male"}
    >>> fault_of("I disliked it in spite of its genres.", rating=4, **facts)
    'dislike of what is rated 4 or 5'
    >>> fault_of("I love horror films.", rating=5, **facts)
    'a liked genre that the item lacks'
    """
    if rating is not None:
        if rating >= LIKED_FROM and _BAD.search(text):
            return "dislike of what is rated 4 or 5"
        if rating <= DISLIKED_TO and _GOOD.search(text) and not _BAD.search(text):
            return "liking of what is rated 1 or 2"
    for sentence in re.split(r"(?<=[.!?]) ", text):
        if _FOND.search(sentence) and not _TURN.search(sentence):
            named = genres_named(sentence, known, domain)
            if named and named.isdisjoint(genres):
                return "a liked genre that the item lacks"
    said = {_PRONOUN[m.group(1).lower()] for m in _SAYS.finditer(text)}
    if gender in _PRONOUN.values() and said and gender not in said:
        return "another gender's pronoun"
    return None


@dataclass(frozen=True)
class RemarkReport:
    """Texts about items in a run, and what is wrong with them."""

    #: Watched items with a feeling (count), and the share of them that has the most frequent text.
    feelings: int
    most_frequent: float
    #: Texts that contradict their rating, item or persona.
    faults: pl.DataFrame

    def as_json(self) -> dict[str, Any]:
        """The figures, and the first contradictions as examples."""
        return {
            "feelings": self.feelings,
            "most_frequent": round(self.most_frequent, 6),
            "contradictions": self.faults.height,
            "examples": self.faults.head(3).to_dicts(),
        }


def remark_report(run: Simulation, world: AgentWorld) -> RemarkReport:
    """Check every feeling and reason of a run against rating, item and persona."""
    cast = PersonaTable.read(world.release).frame
    owners = run.table("agents").select("agent", "persona_id").collect()
    owners = owners.join(cast.select("persona_id", "gender"), on="persona_id", how="left")
    genres = dict(world.catalogue.frame.select("item_id", "genres").iter_rows())
    faults: list[dict[str, Any]] = []
    texts: Counter[str] = Counter()
    for frame in run.batches("views"):
        texts.update(frame["feeling"].drop_nulls().to_list())
        rows = frame.join(owners, on="agent", maintain_order="left")
        for row in rows.iter_rows(named=True):
            genre_names = genres[row["item_id"]] or []
            # A reason comes before the rating.
            for name, rating in (("reason", None), ("feeling", row["rating"])):
                if row[name] is None:
                    continue
                fault = fault_of(
                    row[name],
                    rating=rating,
                    genres=genre_names,
                    known=world.genre_names,
                    gender=row["gender"],
                    domain=world.release.domain,
                )
                if fault is not None:
                    faults.append({n: row[n] for n in _PLACE} | {"text": row[name], "fault": fault})
    number = texts.total()
    share = max(texts.values(), default=0) / max(number, 1)
    return RemarkReport(number, share, pl.DataFrame(faults, schema=_FAULTS))


_PLACE = ("agent", "view", "position", "item_id", "rating")
_FAULTS: dict[str, Any] = {
    **dict.fromkeys(("agent", "view", "position"), pl.Int64),
    "item_id": pl.String,
    "rating": pl.Int64,
    **dict.fromkeys(("text", "fault"), pl.String),
}
