"""The packaged lists that personas are sampled from; their sources are in `data/SOURCES.md`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from pipelines.personas._joint import TRAIT_SHARES, Careers, Copula, Tables
from pipelines.personas._phrases import DOMAIN_NAMES

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Ages (years) that a persona can have.
MIN_AGE, MAX_AGE = 4, 94
#: First age (years) with a job, and from which people without one are retired (set by hand: the
#: census states who is not in the labor force, not why).
WORKING_AGE, RETIREMENT_AGE = 18, 60
#: Genres that a persona has an opinion of, on average (set by hand: with an opinion of each,
#: everybody would like nine film genres of twelve).
OPINIONS = 5.4
#: Year that ages are counted back from to a year of birth.
REFERENCE_YEAR = 2025


@dataclass(frozen=True)
class Bands:
    """Age bands: `low` and `high` (years, both included), of shape (bands,), from `source`."""

    low: Ints
    high: Ints
    source: str = "bands"

    def __post_init__(self) -> None:
        gap = [
            f"{a + 1}-{b - 1}"
            for a, b in zip(self.high[:-1], self.low[1:], strict=True)
            if b != a + 1
        ]
        if gap or len(self.low) == 0 or self.low[0] != MIN_AGE or self.high[-1] != MAX_AGE:
            raise ConfigError(
                f"age bands must cover {MIN_AGE} to {MAX_AGE} without gap or overlap",
                where=f"{self.source}: {', '.join(gap) or 'first or last band'}",
            )

    def of(self, age: Ints) -> Ints:
        """Position of the band that holds each age."""
        return np.searchsorted(self.high, age).astype(np.int64)


@dataclass(frozen=True)
class PersonaLists:
    """Lists that a persona's attributes are drawn from."""

    #: `movies`, `books`, `games` or `products`: whose genres they are (of products, facet values).
    domain: str
    #: Bands and the share of people in each, which sum to 1.
    age_bands: Bands
    age_shares: Floats
    #: Bands and the share of men in each.
    gender_bands: Bands
    male_shares: Floats
    #: Names per gender, with `name_peak` (birth year) and `name_spread` (years) alike.
    names: dict[str, list[str]]
    name_peak: dict[str, Floats]
    name_spread: dict[str, Floats]
    #: Family names and the share of people with each, which sum to 1.
    surnames: list[str]
    surname_shares: Floats
    #: Phrases and the ages that have them, of shape (phrases, 2), both ends included.
    hobbies: list[str]
    hobby_ages: Ints
    jobs: list[str]
    job_ages: Ints
    #: Position in `careers.names` of each job.
    job_careers: Ints
    #: Shares of statuses and careers by gender and age, and the published tables behind them.
    careers: Careers
    career_tables: Tables
    #: Genre names as the domain's items have them, and the share of opinions about each that are
    #: favourable.
    genres: list[str]
    genre_shares: Floats
    #: Age (years) from which a person has an opinion of each.
    genre_ages: Ints
    #: Joint distribution of the opinions of `genres` and the traits of rating.
    copula: Copula
    #: Published tables that the copula is fitted to; None: there are none for the domain.
    tables: Tables | None

    @property
    def backed_off(self) -> tuple[str, ...]:
        """Describe the back-off for joint shares that are not published."""
        return (*self.copula.backed_off, *self.careers.backed_off)

    def ages_from(self, min_age: int) -> tuple[Ints, Ints, Floats]:
        """First and last age (years) of each band and its share among people from an age on.

        Conditional on the age: a band that the age divides keeps the part from it on.
        """
        bands = self.age_bands
        low = np.maximum(bands.low, min_age)
        old = low <= bands.high
        part = (bands.high - low + 1) / (bands.high - bands.low + 1)
        shares = (self.age_shares * part)[old]
        return low[old], bands.high[old], shares / shares.sum()

    def genres_from(self, age: int) -> tuple[str, ...]:
        """Genres that a person of that age has an opinion of, in the list's order."""
        return tuple(g for g, low in zip(self.genres, self.genre_ages, strict=True) if low <= age)


#: Genres with the share of opinions about each that are favourable.
Genres = tuple[tuple[str, float], ...]


@cache
def load_lists(domain: str = "movies", genres: Genres = ()) -> PersonaLists:
    """The packaged lists of a domain, read and checked once; ``genres`` replace the domain's.

    Raises ConfigError if there are no lists for the domain.
    """
    return read_lists(files("pipelines.personas") / "data", domain, genres)


def read_lists(
    folder: Path | Traversable, domain: str = "movies", own_genres: Genres = ()
) -> PersonaLists:
    """Lists in files of the packaged form: ``ages.csv``, ``genres/<domain>.csv`` and so on.

    Raises ConfigError if a file or column is missing, a value is no number or a share is not
    between 0 and 1, a genre comes twice, bands leave a gap or overlap, or an age has no hobby or
    job.
    """
    if domain not in DOMAIN_NAMES and not own_genres:
        hint = f"one of {', '.join(DOMAIN_NAMES)}"
        raise ConfigError("there are no persona lists for this domain", where=domain, hint=hint)
    ages, genders = _Rows(folder, "ages.csv"), _Rows(folder, "genders.csv")
    names = _Rows(folder, "names.csv")
    genres = _Rows.of(own_genres) if own_genres else _Rows(folder, f"genres/{domain}.csv")
    hobbies, jobs = _Rows(folder, "hobbies.csv"), _Rows(folder, "jobs.csv")
    surnames = _Rows(folder, "surnames.csv")
    persons = ages.numbers("persons")
    male, female = genders.numbers("male"), genders.numbers("female")
    by_gender = {g: names.where("gender", g) for g in ("female", "male")}
    bands, male_shares = genders.bands(), male / (male + female)
    age_bands, age_shares = ages.bands(), persons / persons.sum()
    careers = sorted(set(jobs.texts("career")))
    career_tables = Tables.read(_file(folder, "joint/careers.csv"))
    place = {career: n for n, career in enumerate(careers)}
    listed, liked = genres.texts("genre"), genres.numbers("liked")
    joint = folder.joinpath("joint", f"{domain}.csv")
    tables = Tables.read(joint) if joint.is_file() else None
    share = min(1.0, OPINIONS / len(listed))
    margins = [(share * (1 - x), 1 - share, share * x) for x in liked]
    years = np.arange(MAX_AGE + 1)
    adults = (age_shares / (age_bands.high - age_bands.low + 1))[age_bands.of(years)]
    adults = np.where(years < WORKING_AGE, 0.0, adults)
    men = male_shares[bands.of(years)]
    lists = PersonaLists(
        domain=domain,
        age_bands=age_bands,
        age_shares=age_shares,
        gender_bands=bands,
        male_shares=male_shares,
        names={g: rows.texts("name") for g, rows in by_gender.items()},
        name_peak={g: rows.numbers("peak") for g, rows in by_gender.items()},
        name_spread={g: rows.numbers("spread") for g, rows in by_gender.items()},
        surnames=surnames.texts("surname"),
        surname_shares=surnames.shares("per_hundred"),
        hobbies=hobbies.texts("hobby"),
        hobby_ages=hobbies.ends(),
        jobs=jobs.texts("job"),
        job_ages=jobs.ends(),
        job_careers=np.array([place[career] for career in jobs.texts("career")]),
        careers=Careers.fit(career_tables, careers),
        career_tables=career_tables,
        genres=listed,
        genre_shares=liked,
        genre_ages=genres.numbers("from_age").astype(np.int64),
        copula=Copula.fit(
            tables,
            [*listed, *TRAIT_SHARES],
            np.array([*margins, *TRAIT_SHARES.values()]),
            np.stack([adults * (1 - men), adults * men]),
        ),
        tables=tables,
    )
    shares = lists.genre_shares
    if len(set(lists.genres)) < len(lists.genres) or (shares < 0).any() or (shares > 1).any():
        raise ConfigError(
            "genres must differ, and their shares of favourable opinions lie between 0 and 1",
            where=genres.where_from,
        )
    _cover(hobbies, MIN_AGE, MAX_AGE)
    _cover(jobs, WORKING_AGE, int(jobs.ends().max()))
    return lists


def _cover(rows: _Rows, low: int, high: int) -> None:
    ends = rows.ends()
    bare = [
        age for age in range(low, high + 1) if not ((ends[:, 0] <= age) & (age <= ends[:, 1])).any()
    ]
    if bare:
        raise ConfigError("an age has nothing to draw from", where=f"{rows.where_from}: {bare[0]}")


def _file(folder: Path | Traversable, name: str) -> Path | Traversable:
    file = folder.joinpath(*name.split("/"))
    if not file.is_file():
        raise ConfigError("a list of the persona sampler is missing", where=str(file))
    return file


class _Rows:
    """Rows of a CSV file, at least one."""

    def __init__(self, folder: Path | Traversable, name: str) -> None:
        self.where_from = name
        file = _file(folder, name)
        with file.open(encoding="utf-8") as lines:
            self.rows: list[dict[str, Any]] = list(csv.DictReader(lines))
        if not self.rows:
            raise ConfigError("a list of the persona sampler is empty", where=str(file))

    @classmethod
    def of(cls, genres: Genres) -> _Rows:
        """Rows of genres that stand in no file."""
        part = object.__new__(cls)
        part.where_from = "genres of the data"
        part.rows = [{"genre": g, "liked": str(x), "from_age": str(MIN_AGE)} for g, x in genres]
        return part

    def where(self, column: str, value: str) -> _Rows:
        """The rows that have this value."""
        part = object.__new__(_Rows)
        part.where_from = f"{self.where_from}, {value}"
        part.rows = [row for row in self.rows if row.get(column) == value]
        if not part.rows:
            raise ConfigError("a list of the persona sampler is empty", where=part.where_from)
        return part

    def texts(self, column: str) -> list[str]:
        """A column without empty values."""
        values = [(row.get(column) or "").strip() for row in self.rows]
        if not all(values):
            line = values.index("") + 2
            raise ConfigError(
                f"a list of the persona sampler has no {column}", where=f"{self.where_from}:{line}"
            )
        return values

    def numbers(self, column: str) -> Floats:
        """A column of numbers."""
        values = self.texts(column)
        try:
            numbers = np.array([float(v) for v in values])
        except ValueError as error:
            raise ConfigError(
                f"{column} must be a number", where=self.where_from, hint=str(error)
            ) from None
        if not np.isfinite(numbers).all():
            raise ConfigError(f"{column} must be a number", where=self.where_from)
        return numbers

    def shares(self, column: str) -> Floats:
        """A column of weights, scaled to sum 1."""
        values = self.numbers(column)
        return np.asarray(values / values.sum())

    def ends(self) -> Ints:
        """Columns low and high, of shape (rows, 2)."""
        return np.stack([self.numbers("low"), self.numbers("high")], axis=1).astype(np.int64)

    def bands(self) -> Bands:
        """Columns low and high as bands that cover every age."""
        ends = self.ends()
        return Bands(ends[:, 0], ends[:, 1], self.where_from)
