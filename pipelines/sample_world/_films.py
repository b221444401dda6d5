"""The catalogue: films one after the other, with series, remakes and gaps in the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from typing import Any

from pipelines.progress import advance
from pipelines.sample_world._text import (
    Dice,
    Person,
    PersonNames,
    Story,
    article_last,
    lexicon,
    table,
)

_TABLES = table("tables")
#: MovieLens' genres in its (alphabetical) order.
GENRES: tuple[str, ...] = tuple(_TABLES["genres"])
#: MovieLens' placeholder for an empty list.
NO_GENRES = "(no genres listed)"
#: No film is younger, so that users who are active in the year after can have seen all.
_FIRST_YEAR, LAST_YEAR = 1925, 2023
_REMAKE_EVERY, _ATTEMPTS = 150, 200
Genres = tuple[str, ...]
#: An actor and their character; a member of the crew, their job and department.
Role = tuple[Person, str]
Credit = tuple[Person, str, str]


@dataclass(slots=True)
class Film:
    """A film with its TMDB record and the gaps in it: empty fields, no director, a runtime of 0.

    ``title`` is in natural order; ``tmdb_id`` is ``None`` where MovieLens has no link.
    """

    title: str
    year: int
    genres: Genres
    story: Story
    part: int
    overview: str
    cast: tuple[Role, ...]
    crew: tuple[Credit, ...]
    release_date: str
    runtime: int | None
    keywords: tuple[str, ...]
    original_title: str
    listed_original: str = ""
    language: str = "en"
    collection: dict[str, Any] | None = None
    remake: bool = False
    movie_id: int = 0
    imdb_id: str = ""
    tmdb_id: int | None = None
    has_record: bool = True
    genres_listed: bool = True
    year_listed: bool = True

    @property
    def movielens_title(self) -> str:
        """Title as MovieLens lists it: article last, original title and year in brackets."""
        original = f" ({self.listed_original})" if self.listed_original else ""
        year = f" ({self.year})" if self.year_listed else ""
        return article_last(self.title) + original + year

    @property
    def directors(self) -> list[Person]:
        """The directors in the record."""
        return [person for person, job, _ in self.crew if job == "Director"]


@cache
def keyword_numbers() -> Mapping[str, int]:
    """The number (from 0) of every keyword of the lexicon."""
    words = lexicon()["genres"].values()
    return {k: n for n, k in enumerate(dict.fromkeys(k for g in words for k in g["keywords"]))}


def foreign_title(dice: Dice, name: str) -> tuple[str, dict[str, Any]]:
    """Draw a title of two concepts, or of ``name``: in English, and the fields of the original."""
    words = table("foreign")
    language = dice.weighted(words["languages"])
    if language != "ja" and dice.chance(0.35):
        named = dice.pick(words["named"])
        english, original = (named[k].format(name=name) for k in ("en", language))
    else:
        first, second = dice.sample(list(words["nouns"].values()), 2)
        english = f"The {first['en']} of the {second['en']}"
        original = f"{first[language][0]} {second[language][1]}"
    listed = article_last(original, words["articles"])
    if language == "ja":
        (thing, read), (owner, owner_read) = first["ja"], second["ja"]
        original, listed = f"{owner}の{thing}", f"{owner_read.capitalize()} no {read}"
    return english, {"language": language, "original_title": original, "listed_original": listed}


def draw_films(seed: int, count: int) -> list[Film]:
    """Draw the catalogue, by MovieLens id."""
    maker = _Maker(seed, count)
    films: list[Film] = []
    next_remake, next_report = _REMAKE_EVERY // 2, 0
    while len(films) < count:
        if len(films) >= next_remake:
            next_remake += _REMAKE_EVERY
            films += maker.remake(films)
        else:
            films += maker.series(count - len(films))
        if len(films) >= next_report:
            advance("sample films", len(films), count)
            next_report += 500
    # Older films have the lower MovieLens ids, by and large.
    dice, movie_id = Dice(seed, "ids"), 0
    age = [film.year + 12 * dice.roll() for film in films]
    tmdb = dice.sample(range(count), count)
    by_age = sorted(range(count), key=age.__getitem__)
    for position, i in enumerate(by_age):
        film = films[i]
        film.movie_id = movie_id = movie_id + 1 + dice.below(3)
        film.imdb_id = f"{10_000 + position * 9 + dice.below(9):07d}"
        # Some films aren't linked to TMDB; of those that are, some have no record there.
        linked, recorded = not dice.chance(0.015), not dice.chance(0.025)
        film.tmdb_id = 100 + tmdb[i] * 4 + dice.below(4) if linked else None
        film.has_record = linked and recorded
        film.genres_listed = not dice.chance(0.006)
    return [films[i] for i in by_age]


class _Maker:
    """Makes films; no two share title and year, or a story line."""

    def __init__(self, seed: int, count: int) -> None:
        self._dice = Dice(seed, "films")
        self._characters = PersonNames(seed, "characters")
        self._people = PersonNames(seed, "people")
        actors, directors = 80 + int(count * 1.1), 24 + int(count * 0.45)
        #: Number of the first person of a kind, and how many there are.
        self._pools = {"actor": (0, actors), "director": (actors, directors)}
        self._pools["crew"] = (actors + directors, 30 + count)
        self._taken: set[str] = set()
        self._collections = 0

    def remake(self, films: Sequence[Film]) -> list[Film]:
        """The same title and story decades later by other people; nothing if none suits."""
        for _ in range(50):
            old = self._dice.pick(films)
            plain = not (old.collection or old.listed_original or old.remake)
            key = f"{old.title}/remade"
            year = old.year + self._dice.between(12, 40)
            if plain and year <= LAST_YEAR and key not in self._taken:
                self._taken.add(key)
                return [replace(self._film(old.story, old.genres, old.title, year), remake=True)]
        return []

    def series(self, room: int) -> list[Film]:
        """A film, or the films of a series, at most ``room`` of them."""
        dice = self._dice
        lead = dice.weighted(_TABLES["leads"])
        companions, drawn = _TABLES["companions"][lead], {lead}
        for _ in range(dice.weighted(_TABLES["companion_counts"])):
            drawn.add(companions[min(int(dice.exponential(2.0)), len(companions) - 1)])
        genres = tuple(sorted(drawn))
        flavours = [g for g in genres if g not in (lead, "IMAX")]
        story = Story.draw(dice, lead, flavours, self._characters)
        several = lead not in ("Documentary", "Film-Noir") and dice.chance(0.065)
        parts = min(room, 2 + min(3, int(dice.exponential(0.9)))) if several else 1
        year = self._year(lead, parts)
        if parts == 1 and lead in _TABLES["foreign_leads"] and dice.chance(0.2):
            english, foreign = foreign_title(dice, story.hero.name)
            if english not in self._taken:
                self._taken.add(english)
                return [replace(self._film(story, genres, english, year), **foreign)]
        films = [self._film(story, genres, self._new(self._titles(story)), year)]
        if parts == 1:
            return films
        self._collections += 1
        name, style = films[0].title, dice.below(3)
        for part in range(2, parts + 1):
            year += dice.between(1, 4)
            text = f"{name} {('II', 'III', 'IV', 'V')[part - 2] if style == 0 else part}"
            if style == 2:
                text = f"{text}: {dice.pick(lexicon()['title']['subtitles'])}"
            self._taken.add(text)
            films.append(self._film(story, genres, text, year, films))
        series = {"id": 1_000 + 3 * self._collections, "name": f"{name} Collection"}
        for film in films:
            film.collection = series | {"poster_path": None, "backdrop_path": None}
        return films

    def _year(self, lead: str, parts: int) -> int:
        if lead == "Film-Noir":
            return self._dice.between(1940, 1959)
        age = self._dice.exponential(11) + self._dice.exponential(11)
        age += 20 if lead == "Western" else 0
        latest = LAST_YEAR - 4 * (parts - 1)  # room for the sequels
        return max(_FIRST_YEAR, min(latest, LAST_YEAR - int(age)))

    def _person(self, kind: str, lead: str, female: bool | None = None) -> Person:
        """Draw an actor or film maker, most likely one at home in the genre ``lead``."""
        dice, leads = self._dice, list(_TABLES["leads"])
        start, size = self._pools[kind]
        fame = 1.2  # how unequally work is shared out (1: equally)
        for _ in range(6):
            if dice.chance(0.65):
                rank = dice.skewed(max(1, size // len(leads)), fame)
                n = min(rank * len(leads) + leads.index(lead), size - 1)
            else:
                n = dice.skewed(size, fame)
            person = self._people.person(start + n)
            if female is None or person.female == female:
                break
        return person

    def _new(self, texts: Iterable[str]) -> str:
        """The first of the texts that no film has yet."""
        text = next((text for text in texts if text not in self._taken), None)
        assert text is not None, "the grammar of titles or stories is exhausted"
        self._taken.add(text)
        return text

    def _titles(self, story: Story) -> Iterator[str]:
        """Titles of a story, lengthened when those of this town and hero seem to be taken."""
        for attempt in range(_ATTEMPTS):
            text = story.title(self._dice)
            if attempt >= 10:
                extra = self._characters.person(self._dice.below(1_000_000)).last
                text = f"{text}, or the {extra} Affair"
            yield text

    def _film(
        self, story: Story, genres: Genres, title: str, year: int, before: Sequence[Film] = ()
    ) -> Film:
        """A film with people, keywords and gaps; ``before`` are the earlier ones of its series."""
        dice, part = self._dice, len(before) + 1
        overview = self._new(story.overview(dice, part) for _ in range(_ATTEMPTS))
        cast, crew = self._cast(story, before), self._crew(story, before)
        keywords = self._keywords(story, before)
        released = date(year, 1, 1) + timedelta(days=dice.below(365))
        runtime = max(62, min(210, int(88 + dice.exponential(12) + dice.exponential(12))))
        return Film(
            title,
            year,
            genres,
            story,
            part,
            overview="" if dice.chance(0.04) else overview,
            cast=() if dice.chance(0.04) else cast,
            crew=tuple(c for c in crew if c[1] != "Director") if dice.chance(0.04) else crew,
            release_date="" if dice.chance(0.04) else released.isoformat(),
            runtime=(None if dice.chance(0.7) else 0) if dice.chance(0.05) else runtime,
            keywords=() if dice.chance(0.06) else keywords,
            original_title=title,
        )

    def _cast(self, story: Story, before: Sequence[Film]) -> tuple[Role, ...]:
        dice, lead = self._dice, story.genre
        if lead == "Documentary":
            return ((story.hero, "Self"), (story.ally, "Self"))
        roles: dict[int, Role] = {}
        # The leads of a series come back; now and then one of them is recast.
        previous = before[0].cast if before else ()
        for position, character in enumerate((story.hero, story.ally, story.foe)):
            actor = self._person("actor", lead, character.female)
            if position < len(previous) and (position == 0 or dice.chance(0.8)):
                actor = previous[position][0]
            roles.setdefault(actor.id, (actor, character.name))
        for _ in range(dice.between(1, 9)):
            actor = self._person("actor", lead)
            if actor.id not in roles:
                name = self._characters.person(dice.below(60_000))
                minor = dice.chance(0.5) and dice.pick(lexicon()["cast"]["minor"])
                roles[actor.id] = (actor, f"{minor} {name.last}" if minor else name.first)
        return tuple(roles.values())

    def _crew(self, story: Story, before: Sequence[Film]) -> tuple[Credit, ...]:
        dice, lead = self._dice, story.genre
        directors = before[0].directors if before else []
        if not directors or dice.chance(0.2):
            directors = [self._person("director", lead)]
            if dice.chance(0.05):
                other = self._person("director", lead)
                directors += [other] if other.id != directors[0].id else []
        crew = [(d, "Director", "Directing") for d in directors]
        for job, department in _TABLES["crew"].items():
            if dice.chance(0.7):
                crew.append((self._person("crew", lead), job, department))
        # TMDB lists crew by department: directors aren't always first.
        return tuple(crew[::-1] if dice.chance(0.3) else crew)

    def _keywords(self, story: Story, before: Sequence[Film]) -> tuple[str, ...]:
        dice, words = self._dice, lexicon()["genres"]
        chosen = dice.sample(words[story.genre]["keywords"], dice.between(2, 5))
        for flavour in story.flavours[:2]:
            chosen += dice.sample(words[flavour]["keywords"], dice.between(0, 2))
        again = before[0].keywords[:2] if before else ()
        return tuple(dict.fromkeys([*again, *chosen]))
