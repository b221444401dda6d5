"""The catalogue: films one after the other, with series, remakes and gaps in the data."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._films import (
    LAST_YEAR,
    Collection,
    Credit,
    Film,
    People,
    Role,
    keyword_numbers,
)
from pipelines.sample_world._foreign import foreign_title
from pipelines.sample_world._genres import COMPANIONS, LEAD_SHARES
from pipelines.sample_world._names import NameBook, Person
from pipelines.sample_world._text import Story, lexicon, overview, title

__all__ = ["draw_films"]

_FIRST_YEAR = 1925
_ROMAN = ("", "I", "II", "III", "IV", "V")
_FOREIGN_LEADS = frozenset(
    ("Drama", "Romance", "Comedy", "Crime", "Mystery", "Horror", "War", "Fantasy", "Thriller")
)
_LEADS = tuple(LEAD_SHARES)
_LEAD_WEIGHTS = tuple(itertools.accumulate(LEAD_SHARES.values()))
#: Cumulative share of films with up to one, two, … genres (ml-latest-small has 29, 33, 24,
#: 10 and 4 %; a companion drawn twice counts once, hence the shift to more).
_GENRE_COUNTS = (0.24, 0.52, 0.79, 0.94, 1.0)
_REMAKE_EVERY = 150


def draw_films(
    seed: int, count: int, progress: Callable[[int], None] = lambda _: None
) -> list[Film]:
    """The catalogue, by MovieLens id.

    Parameters
    ----------
    seed
        The generator's seed.
    count
        Films (count).
    progress
        Called now and then with the number of films made.
    """
    maker = _Maker(seed, count)
    films: list[Film] = []
    next_remake = _REMAKE_EVERY // 2
    next_report = 0
    while len(films) < count:
        if len(films) >= next_remake:
            next_remake += _REMAKE_EVERY
            films += maker.remake(films)
        else:
            films += maker.series(count - len(films))
        if len(films) >= next_report:
            progress(len(films))
            next_report += 500
    _number(films, Dice(seed, "ids"))
    films.sort(key=lambda f: f.movie_id)
    return films


def _number(films: Sequence[Film], dice: Dice) -> None:
    """MovieLens, IMDb and TMDB ids: older films have the lower MovieLens ids, by and large."""
    age = [film.year + 12 * dice.roll() for film in films]
    order = sorted(range(len(films)), key=lambda i: (age[i], i))
    tmdb = dice.sample(range(len(films)), len(films))
    movie_id = 0
    for position, i in enumerate(order):
        movie_id += 1 + dice.below(3)
        film = films[i]
        film.movie_id = movie_id
        film.imdb = 10_000 + position * 9 + dice.below(9)
        # Some films aren't linked to TMDB; of those that are, some have no record there.
        linked, recorded = not dice.chance(0.015), not dice.chance(0.025)
        film.tmdb_id = 100 + tmdb[i] * 4 + dice.below(4) if linked else None
        film.has_record = linked and recorded
        film.genres_listed = not dice.chance(0.006)


class _Maker:
    """Makes films; no two share title and year, or a story line."""

    def __init__(self, seed: int, count: int) -> None:
        self._dice = Dice(seed, "films")
        self._characters = NameBook(seed, "characters")
        self._people = People(seed, count)
        self._titles: set[str] = set()
        self._overviews: set[bytes] = set()
        self._collections = 0

    def remake(self, films: Sequence[Film]) -> list[Film]:
        """The same title and story decades later by other people; nothing if none suits."""
        for _ in range(50):
            old = self._dice.pick(films)
            plain = not (old.collection or old.listed_original or old.remake)
            key = f"{old.title}/remade"
            year = old.year + self._dice.between(12, 40)
            if plain and year <= LAST_YEAR and key not in self._titles:
                self._titles.add(key)
                film = self._film(old.story, old.genres, old.title, year)
                film.remake = True
                return [film]
        return []

    def series(self, room: int) -> list[Film]:
        """A film, or the films of a series, at most ``room`` of them."""
        dice = self._dice
        lead = _LEADS[dice.weighted(_LEAD_WEIGHTS)]
        genres = self._genres(lead)
        flavours = [g for g in genres if g not in (lead, "IMAX")]
        story = Story.draw(dice, lead, flavours, self._characters)
        parts = 1
        if lead not in ("Documentary", "Film-Noir") and dice.chance(0.065):
            parts = min(room, 2 + min(3, int(dice.exponential(0.9))))
        year = self._year(lead, parts)
        if parts == 1 and lead in _FOREIGN_LEADS and dice.chance(0.2):
            names = foreign_title(dice, story.hero.name)
            if names.english not in self._titles:
                self._titles.add(names.english)
                film = self._film(story, genres, names.english, year)
                film.language = names.language
                film.original_title, film.listed_original = names.original, names.listed
                return [film]
        name = self._title(story)
        films = [self._film(story, genres, name, year)]
        if parts > 1:
            self._collections += 1
            collection = Collection(1_000 + 3 * self._collections, f"{name} Collection")
            films[0].collection = collection
            style = dice.below(3)
            for part in range(2, parts + 1):
                year += dice.between(1, 4)
                sequel = self._film(
                    story, genres, self._sequel_title(name, part, style), year, films[0], part
                )
                sequel.collection = collection
                films.append(sequel)
        return films

    def _genres(self, lead: str) -> tuple[str, ...]:
        companions = COMPANIONS[lead]
        genres = {lead}
        for _ in range(self._dice.weighted(_GENRE_COUNTS)):
            genres.add(companions[min(int(self._dice.exponential(2.0)), len(companions) - 1)])
        return tuple(sorted(genres))

    def _year(self, lead: str, parts: int) -> int:
        if lead == "Film-Noir":
            return self._dice.between(1940, 1959)
        age = self._dice.exponential(11) + self._dice.exponential(11)
        age += 20 if lead == "Western" else 0
        latest = LAST_YEAR - 4 * (parts - 1)  # room for the sequels
        return max(_FIRST_YEAR, min(latest, LAST_YEAR - int(age)))

    def _title(self, story: Story) -> str:
        for attempt in range(200):
            text = title(story, self._dice)
            if attempt >= 10:  # this town's and hero's titles are taken: lengthen
                extra = self._characters.person(self._dice.below(1_000_000)).last
                text = f"{text}, or the {extra} Affair"
            if text not in self._titles:
                self._titles.add(text)
                return text
        raise AssertionError("the title grammar is exhausted")

    def _sequel_title(self, name: str, part: int, style: int) -> str:
        text = f"{name} {_ROMAN[part]}" if style == 0 else f"{name} {part}"
        if style == 2:
            text = f"{text}: {self._dice.pick(lexicon()['title']['subtitles'])}"
        self._titles.add(text)
        return text

    def _overview(self, story: Story, part: int) -> str:
        for _ in range(200):
            text = overview(story, self._dice, part)
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            if digest not in self._overviews:
                self._overviews.add(digest)
                return text
        raise AssertionError("the story grammar is exhausted")

    def _film(
        self,
        story: Story,
        genres: tuple[str, ...],
        name: str,
        year: int,
        first: Film | None = None,
        part: int = 1,
    ) -> Film:
        """A film with people and keywords; ``first`` is the first film of its series."""
        dice = self._dice
        film = Film(name, year, genres, story, self._overview(story, part), part)
        film.original_title = name
        film.cast = self._cast(story, first)
        film.crew = self._crew(story, first)
        film.keywords = self._keywords(story, first)
        film.release_date = (date(year, 1, 1) + timedelta(days=dice.below(365))).isoformat()
        film.runtime = max(62, min(210, int(88 + dice.exponential(12) + dice.exponential(12))))
        self._lose(film)
        return film

    def _lose(self, film: Film) -> None:
        """Leave gaps, as every catalogue has them."""
        dice = self._dice
        if dice.chance(0.04):
            film.overview = ""
        if dice.chance(0.04):
            film.cast = ()
        if dice.chance(0.04):
            film.crew = tuple(c for c in film.crew if c.job != "Director")
        if dice.chance(0.04):
            film.release_date = ""
        if dice.chance(0.05):
            film.runtime = None if dice.chance(0.7) else 0
        if dice.chance(0.06):
            film.keywords = ()

    def _cast(self, story: Story, first: Film | None) -> tuple[Role, ...]:
        dice, lead = self._dice, story.genre
        if lead == "Documentary":
            return (Role(story.hero, "Self"), Role(story.ally, "Self"))
        roles: list[Role] = []
        taken: set[int] = set()
        # The leads of a series come back; now and then one of them is recast.
        for position, character in enumerate((story.hero, story.ally, story.foe)):
            actor = self._people.draw(dice, "actor", lead, character.female)
            before = first.cast if first is not None else ()
            if position < len(before) and (position == 0 or dice.chance(0.8)):
                actor = before[position].actor
            if actor.id not in taken:
                taken.add(actor.id)
                roles.append(Role(actor, character.name))
        minor = lexicon()["cast"]["minor"]
        for _ in range(dice.between(1, 9)):
            actor = self._people.draw(dice, "actor", lead)
            if actor.id not in taken:
                taken.add(actor.id)
                extra = self._characters.person(dice.below(60_000))
                short = dice.chance(0.5)
                roles.append(
                    Role(actor, f"{dice.pick(minor)} {extra.last}" if short else extra.first)
                )
        return tuple(roles)

    def _crew(self, story: Story, first: Film | None) -> tuple[Credit, ...]:
        dice, lead = self._dice, story.genre
        directors: list[Person] = first.directors if first is not None else []
        if not directors or dice.chance(0.2):
            directors = [self._people.draw(dice, "director", lead)]
            if dice.chance(0.05):
                other = self._people.draw(dice, "director", lead)
                directors += [other] if other.id != directors[0].id else []
        crew = [Credit(d, "Director", "Directing") for d in directors]
        for job, department in (
            ("Screenplay", "Writing"),
            ("Producer", "Production"),
            ("Original Music Composer", "Sound"),
        ):
            if dice.chance(0.7):
                crew.append(Credit(self._people.draw(dice, "crew", lead), job, department))
        if dice.chance(0.3):  # TMDB lists crew by department: directors aren't always first
            crew = crew[::-1]
        return tuple(crew)

    def _keywords(self, story: Story, first: Film | None) -> tuple[int, ...]:
        dice, words, numbers = self._dice, lexicon()["genres"], keyword_numbers()
        chosen = dice.sample(words[story.genre]["keywords"], dice.between(2, 5))
        for flavour in story.flavours[:2]:
            chosen += dice.sample(words[flavour]["keywords"], dice.between(0, 2))
        kept = list(first.keywords[:2]) if first is not None else []
        return tuple(dict.fromkeys(kept + [numbers[k] for k in chosen]))
