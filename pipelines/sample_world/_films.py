"""A film, and the people who make films."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._genres import LEAD_SHARES
from pipelines.sample_world._names import NameBook, Person
from pipelines.sample_world._text import Story, article_last, lexicon

__all__ = ["LAST_YEAR", "Collection", "Credit", "Film", "People", "Role", "keyword_numbers"]

#: No film is younger, so that users who are active in the year after can have seen all.
LAST_YEAR = 2023
_LEADS = tuple(LEAD_SHARES)
#: How unequally work is shared out among people (1: equally).
_FAME = 1.2


@dataclass(frozen=True, slots=True)
class Collection:
    """A series of films."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Role:
    """An actor and the character they play."""

    actor: Person
    character: str


@dataclass(frozen=True, slots=True)
class Credit:
    """A member of the crew."""

    person: Person
    job: str
    department: str


@dataclass(slots=True)
class Film:
    """One film: what MovieLens lists and what TMDB's record of it says.

    ``title`` is in natural order; ``quality`` is in stars above the mean. An empty
    ``overview``, ``cast``, ``release_date``, ``keywords``, no director among ``crew`` and a
    ``runtime`` of ``None`` or 0 are gaps in the record, as at the origin; ``None`` for
    ``tmdb_id`` is a gap in MovieLens' links.
    """

    title: str
    year: int
    genres: tuple[str, ...]
    story: Story
    overview: str
    part: int = 1
    collection: Collection | None = None
    remake: bool = False
    language: str = "en"
    original_title: str = ""
    listed_original: str = ""
    cast: tuple[Role, ...] = ()
    crew: tuple[Credit, ...] = ()
    keywords: tuple[int, ...] = ()
    release_date: str = ""
    runtime: int | None = None
    movie_id: int = 0
    imdb: int = 0
    tmdb_id: int | None = None
    has_record: bool = True
    genres_listed: bool = True
    year_listed: bool = True

    @property
    def movielens_title(self) -> str:
        """Title as MovieLens lists it, article last, with the year in brackets.

        The original title stands in brackets before the year where it differs.
        """
        text = article_last(self.title)
        if self.listed_original:
            text = f"{text} ({self.listed_original})"
        return f"{text} ({self.year})" if self.year_listed else text

    @property
    def imdb_id(self) -> str:
        """IMDb number as MovieLens writes it: seven digits."""
        return f"{self.imdb:07d}"

    @property
    def directors(self) -> list[Person]:
        """The directors in the record."""
        return [c.person for c in self.crew if c.job == "Director"]


class People:
    """Actors and film makers, most of them at home in one genre, a few of them everywhere.

    Parameters
    ----------
    seed
        The generator's seed.
    films
        Size of the catalogue: more films, more people.
    """

    def __init__(self, seed: int, films: int) -> None:
        self._book = NameBook(seed, "people")
        self._sizes = {
            "actor": 80 + int(films * 1.1),
            "director": 24 + int(films * 0.45),
            "crew": 30 + films,
        }
        self._starts: dict[str, int] = {}
        start = 0
        for kind, size in self._sizes.items():
            self._starts[kind] = start
            start += size

    def draw(self, dice: Dice, kind: str, lead: str, female: bool | None = None) -> Person:
        """Somebody of a kind (actor, director, crew), probably at home in the genre ``lead``.

        Parameters
        ----------
        dice
            Where choices come from.
        kind
            One of ``actor``, ``director``, ``crew``.
        lead
            The genre that sets the film's tone.
        female
            Preferred (not forced: the pool is finite) gender of an actor.
        """
        size, start = self._sizes[kind], self._starts[kind]
        for _ in range(6):
            if dice.chance(0.65):
                n = dice.skewed(max(1, size // len(_LEADS)), _FAME) * len(_LEADS) + _LEADS.index(
                    lead
                )
                n = min(n, size - 1)
            else:
                n = dice.skewed(size, _FAME)
            person = self._book.person(start + n)
            if female is None or person.female == female:
                return person
        return person


@cache
def keyword_numbers() -> Mapping[str, int]:
    """The number (from 0) of every keyword of the lexicon."""
    words = lexicon()["genres"].values()
    return {k: n for n, k in enumerate(dict.fromkeys(k for g in words for k in g["keywords"]))}
