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
    """Age bands without gap or overlap: `low` and `high` (years, both included), (bands,)."""

    low: Ints
    high: Ints

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
    """The packaged lists of a domain, read once; ``genres`` replace the domain's.

    Raises ConfigError if there are no lists for the domain.
    """
    return read_lists(files("pipelines.personas") / "data", domain, genres)


def read_lists(
    folder: Path | Traversable, domain: str = "movies", own_genres: Genres = ()
) -> PersonaLists:
    """Lists in files of the packaged form: ``ages.csv``, ``genres/<domain>.csv`` and so on.

    Raises ConfigError if there are no lists for the domain.
    """
    if domain not in DOMAIN_NAMES and not own_genres:
        hint = f"one of {', '.join(DOMAIN_NAMES)}"
        raise ConfigError("there are no persona lists for this domain", where=domain, hint=hint)
    ages, genders, names, surnames, hobbies, jobs = (
        _rows(folder, name) for name in ("ages", "genders", "names", "surnames", "hobbies", "jobs")
    )
    replaced = [{"genre": name, "liked": share, "from_age": MIN_AGE} for name, share in own_genres]
    genres = replaced or _rows(folder, f"genres/{domain}")
    persons = _numbers(ages, "persons")
    male, female = _numbers(genders, "male"), _numbers(genders, "female")
    by_gender = {g: [row for row in names if row["gender"] == g] for g in ("female", "male")}
    bands, male_shares = Bands(*_ends(genders).T), male / (male + female)
    age_bands, age_shares = Bands(*_ends(ages).T), persons / persons.sum()
    careers = sorted(set(_texts(jobs, "career")))
    career_tables = Tables.read(folder.joinpath("joint", "careers.csv"))
    place = {career: n for n, career in enumerate(careers)}
    listed, liked = _texts(genres, "genre"), _numbers(genres, "liked")
    joint = folder.joinpath("joint", f"{domain}.csv")
    tables = Tables.read(joint) if joint.is_file() else None
    share = min(1.0, OPINIONS / len(listed))
    margins = [(share * (1 - x), 1 - share, share * x) for x in liked]
    years = np.arange(MAX_AGE + 1)
    adults = (age_shares / (age_bands.high - age_bands.low + 1))[age_bands.of(years)]
    adults = np.where(years < WORKING_AGE, 0.0, adults)
    men = male_shares[bands.of(years)]
    surname_counts = _numbers(surnames, "per_hundred")
    return PersonaLists(
        domain=domain,
        age_bands=age_bands,
        age_shares=age_shares,
        gender_bands=bands,
        male_shares=male_shares,
        names={g: _texts(rows, "name") for g, rows in by_gender.items()},
        name_peak={g: _numbers(rows, "peak") for g, rows in by_gender.items()},
        name_spread={g: _numbers(rows, "spread") for g, rows in by_gender.items()},
        surnames=_texts(surnames, "surname"),
        surname_shares=surname_counts / surname_counts.sum(),
        hobbies=_texts(hobbies, "hobby"),
        hobby_ages=_ends(hobbies),
        jobs=_texts(jobs, "job"),
        job_ages=_ends(jobs),
        job_careers=np.array([place[career] for career in _texts(jobs, "career")]),
        careers=Careers.fit(career_tables, careers),
        career_tables=career_tables,
        genres=listed,
        genre_shares=liked,
        genre_ages=_numbers(genres, "from_age").astype(np.int64),
        copula=Copula.fit(
            tables,
            [*listed, *TRAIT_SHARES],
            np.array([*margins, *TRAIT_SHARES.values()]),
            np.stack([adults * (1 - men), adults * men]),
        ),
        tables=tables,
    )


def _rows(folder: Path | Traversable, name: str) -> list[dict[str, Any]]:
    with folder.joinpath(*f"{name}.csv".split("/")).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _texts(rows: list[dict[str, Any]], column: str) -> list[str]:
    return [row[column].strip() for row in rows]


def _numbers(rows: list[dict[str, Any]], column: str) -> Floats:
    return np.array([float(row[column]) for row in rows])


def _ends(rows: list[dict[str, Any]]) -> Ints:
    """Columns low and high, of shape (rows, 2)."""
    return np.stack([_numbers(rows, "low"), _numbers(rows, "high")], axis=1).astype(np.int64)
