"""Attributes of personas, drawn from stated distributions and not by a model.

SUBER, section 4 and appendix A.1: age from the US age distribution, hobby by age group, job
for the working age, else `student` or `retired`; genres as in its second dataset, from the
shares of favourable opinions in the US. Departures: names fit gender and year of birth, jobs
and children's hobbies fit the age, and nobody has an opinion of a genre before the age that the
list states (such an opinion is dropped, not turned round): no horror films before 13.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.personas._lists import (
    REFERENCE_YEAR,
    RETIREMENT_AGE,
    WORKING_AGE,
    PersonaLists,
    load_lists,
)
from pipelines.seeding import U64, combine, hash_text, uniform

__all__ = ["OPINIONS", "sample_attributes"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Genres that a persona has an opinion of, on average (set by hand: with an opinion of each,
#: everybody would like nine film genres of twelve).
OPINIONS = 5.4

# One purpose per draw, so that adding one changes no other.
_BAND, _WITHIN, _GENDER, _NAME, _HOBBY, _JOB, _OPINION, _LIKED, _FALLBACK, _TEXT = range(10)
_LENIENCY, _MANNER = 10, 11


def sample_attributes(
    seed: int, cohort: str, index: Ints, lists: PersonaLists | None = None
) -> pl.DataFrame:
    """Attributes of the personas at `index` of a cohort.

    Parameters
    ----------
    seed
        Cohort seed.
    cohort
        Name of the cohort.
    index
        Positions in the cohort, of shape (n,); each row depends on (seed, cohort, position)
        only.
    lists
        What is drawn from; default: the packaged lists of the movies.

    Returns
    -------
    Columns ``index, domain, name, age, gender, job, hobby, likes, dislikes, leniency,
    manner, text_seed``;
    `text_seed` (uint64) is the writer's source of variety.
    """
    lists = lists or load_lists()
    key = combine(seed, hash_text(cohort), index.astype(np.uint64))
    age = _ages(lists, key)
    male = uniform(key, _GENDER) < lists.male_shares[lists.gender_bands.of(age)]
    likes, dislikes = _genres(lists, key, age)
    return pl.DataFrame(
        {
            "index": index,
            "domain": pl.repeat(lists.domain, len(index), eager=True, dtype=pl.String),
            "name": _names(lists, key, age, male),
            "age": age,
            "gender": np.where(male, "male", "female"),
            "job": _jobs(lists, key, age),
            "hobby": _eligible(lists.hobbies, lists.hobby_ages, age, uniform(key, _HOBBY)),
            "likes": _lists_of(lists.genres, likes),
            "dislikes": _lists_of(lists.genres, dislikes),
            "leniency": _quarters(("harsh", "average", "generous"), uniform(key, _LENIENCY)),
            "manner": _quarters(("narrow", "average", "wide"), uniform(key, _MANNER)),
            "text_seed": combine(key, _TEXT),
        },
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)},
    )


def _ages(lists: PersonaLists, key: U64) -> Ints:
    edges = np.cumsum(lists.age_shares)
    band = np.searchsorted(edges[:-1], uniform(key, _BAND), side="right")
    low, high = lists.age_bands.low[band], lists.age_bands.high[band]
    return low + (uniform(key, _WITHIN) * (high - low + 1)).astype(np.int64)


def _names(lists: PersonaLists, key: U64, age: Ints, male: npt.NDArray[np.bool_]) -> pl.Series:
    draw, born = uniform(key, _NAME), REFERENCE_YEAR - age
    out = np.empty(len(age), dtype=object)
    for gender, chosen in (("female", ~male), ("male", male)):
        names = np.array(lists.names[gender], dtype=object)
        for year in np.unique(born[chosen]):
            rows = np.flatnonzero(chosen & (born == year))
            # Each name rises and falls around its peak; equal area, so none dominates.
            spread = lists.name_spread[gender]
            weight = np.exp(-0.5 * ((year - lists.name_peak[gender]) / spread) ** 2) / spread
            edges = np.cumsum(weight / weight.sum())
            out[rows] = names[np.searchsorted(edges[:-1], draw[rows], side="right")]
    return pl.Series("name", out.tolist(), dtype=pl.String)


def _jobs(lists: PersonaLists, key: U64, age: Ints) -> pl.Series:
    working = (age >= WORKING_AGE) & (age < RETIREMENT_AGE)
    # Others get any working age for the look-up; their value is not used.
    job = _eligible(
        lists.jobs, lists.job_ages, np.where(working, age, WORKING_AGE), uniform(key, _JOB)
    )
    return (
        pl.DataFrame({"job": job, "age": age})
        .select(
            pl.when(pl.col("age") < WORKING_AGE)
            .then(pl.lit("student"))
            .when(pl.col("age") >= RETIREMENT_AGE)
            .then(pl.lit("retired"))
            .otherwise(pl.col("job"))
            .alias("job")
        )
        .to_series()
    )


def _eligible(phrases: list[str], ages: Ints, age: Ints, draw: Floats) -> pl.Series:
    """One of the phrases that people of that age may have, each with the same chance."""
    chosen = np.empty(len(age), dtype=np.int64)
    for value in np.unique(age):
        fitting = np.flatnonzero((ages[:, 0] <= value) & (value <= ages[:, 1]))
        rows = np.flatnonzero(age == value)
        chosen[rows] = fitting[(draw[rows] * len(fitting)).astype(np.int64)]
    return pl.Series(phrases, dtype=pl.String).gather(chosen)


def _genres(
    lists: PersonaLists, key: U64, age: Ints
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Liked and disliked genres as two boolean matrices of shape (n, genres), disjoint."""
    genre = np.arange(len(lists.genres), dtype=np.uint64)
    row = key[:, None]
    opinion = uniform(row, _OPINION, genre) < OPINIONS / len(lists.genres)
    favourable = uniform(row, _LIKED, genre) < lists.genre_shares
    suitable = lists.genre_ages <= age[:, None]
    likes = opinion & favourable & suitable
    dislikes = opinion & ~favourable & suitable
    # Whoever likes nothing likes one thing after all: a draw in proportion to the shares.
    # (The largest of log(u) / w falls on each genre with probability w / sum of w.) Only a
    # list without anything else makes it a disliked genre, or one for older people.
    weight = np.maximum(lists.genre_shares, 1e-9)
    rank = np.log(uniform(row, _FALLBACK, genre) + 2**-60) / weight
    rank = rank - 1e12 * dislikes - 1e15 * ~suitable
    none = ~likes.any(axis=1)
    likes[none, rank[none].argmax(axis=1)] = True
    return likes, dislikes & ~likes


def _quarters(values: tuple[str, str, str], draw: Floats) -> pl.Series:
    """The first value for the lowest quarter of people, the last for the highest."""
    at = np.searchsorted([0.25, 0.75], draw, side="right")
    return pl.Series(values, dtype=pl.String).gather(at)


def _lists_of(genres: list[str], chosen: npt.NDArray[np.bool_]) -> pl.Series:
    order = np.argsort(genres)
    names = np.array(genres, dtype=object)[order]
    chosen = chosen[:, order]
    rows = [names[mask].tolist() for mask in chosen]
    return pl.Series(rows, dtype=pl.List(pl.String))
