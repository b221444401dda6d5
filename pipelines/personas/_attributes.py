"""Attributes of personas, drawn from stated distributions and not by a model.

SUBER, section 4 and appendix A.1: age from the US age distribution, hobby by age group, genres as
in its second dataset, from the shares of favourable opinions in the US. Departures: genres and
traits of rating are drawn jointly, given gender and age (:mod:`pipelines.personas._joint`); jobs
have the census' frequencies by gender and age, with students and people without work; names fit
gender and year of birth; children's hobbies fit the age, and opinions of a genre begin at the age
that the list states (earlier ones are dropped, not turned round): no horror films before 13.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from scipy.special import ndtri

from pipelines.personas._joint import TRAITS
from pipelines.personas._lists import (
    REFERENCE_YEAR,
    RETIREMENT_AGE,
    WORKING_AGE,
    PersonaLists,
    load_lists,
)
from pipelines.seeding import U64, combine, hash_text, uniform

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A purpose per draw, so that adding one changes no other.
_BAND, _WITHIN, _GENDER, _NAME, _HOBBY, _JOB, _TEXT = 0, 1, 2, 3, 4, 5, 9
_SURNAME, _STATUS, _LATENT = 12, 13, 14


def sample_attributes(
    seed: int,
    cohort: str,
    index: Ints,
    lists: PersonaLists | None = None,
    *,
    min_age: int = WORKING_AGE,
) -> pl.DataFrame:
    """Attributes of the personas at `index` of a cohort.

    ``index`` are positions in the cohort, of shape (n,); each row depends on (seed, cohort,
    position) only. By default the packaged lists of the movies are drawn from. Ages have their
    shares among people from ``min_age`` (years) on; everything else depends on the age as ever.
    Columns: ``index, domain, name, age, gender, job, hobby, likes, dislikes, leniency, manner,
    activity, conformity, text_seed``; `text_seed` (uint64) is the writer's source of variety.
    """
    lists = lists or load_lists()
    key = combine(seed, hash_text(cohort), index.astype(np.uint64))
    age = _ages(lists, key, min_age)
    male = uniform(key, _GENDER) < lists.male_shares[lists.gender_bands.of(age)]
    levels, towards = lists.copula.levels(_normal(key, len(lists.copula.ends)), male, age)
    likes, dislikes = _genres(lists, levels, towards, age)
    traits = {
        name: pl.Series(names, dtype=pl.String).gather(levels[:, len(lists.genres) + n])
        for n, (name, names) in enumerate(TRAITS.items())
    }
    return pl.DataFrame(
        {
            "index": index,
            "domain": pl.repeat(lists.domain, len(index), eager=True, dtype=pl.String),
            "name": _names(lists, key, age, male),
            "age": age,
            "gender": np.where(male, "male", "female"),
            "job": _jobs(lists, key, age, male),
            "hobby": _eligible(lists.hobbies, lists.hobby_ages, age, uniform(key, _HOBBY)),
            "likes": _lists_of(lists.genres, likes),
            "dislikes": _lists_of(lists.genres, dislikes),
            **traits,
            "text_seed": combine(key, _TEXT),
        },
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)},
    )


def _ages(lists: PersonaLists, key: U64, min_age: int) -> Ints:
    first, last, shares = lists.ages_from(min_age)
    band = np.searchsorted(np.cumsum(shares)[:-1], uniform(key, _BAND), side="right")
    low, high = first[band], last[band]
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
    edges = np.cumsum(lists.surname_shares)
    family = np.searchsorted(edges[:-1], uniform(key, _SURNAME), side="right")
    surname = pl.Series(lists.surnames, dtype=pl.String).gather(family)
    return pl.Series("name", out.tolist(), dtype=pl.String) + " " + surname


def _jobs(lists: PersonaLists, key: U64, age: Ints, male: npt.NDArray[np.bool_]) -> pl.Series:
    careers, status, draw = lists.careers, uniform(key, _STATUS), uniform(key, _JOB)
    out = np.full(len(age), "student", dtype=object)
    jobs = np.array(lists.jobs, dtype=object)
    band = (np.searchsorted(careers.first_ages, age, side="right") - 1).clip(0)
    for value in np.unique(age[age >= WORKING_AGE]):
        # Above the oldest listed age, employed people have one of its jobs.
        at = min(int(value), int(lists.job_ages.max()))
        fitting = (lists.job_ages[:, 0] <= at) & (at <= lists.job_ages[:, 1])
        among = np.bincount(lists.job_careers[fitting], minlength=len(careers.names))
        idle = "retired" if value >= RETIREMENT_AGE else "not working"
        for gender in (0, 1):
            rows = np.flatnonzero((age == value) & (male == bool(gender)))
            if not len(rows):
                continue
            edges = np.cumsum(careers.status[gender, band[rows[0]]])
            does = np.searchsorted(edges[:-1], status[rows], side="right")
            share = careers.shares[gender, band[rows[0]]] / among.clip(1)
            weight = np.cumsum(share[lists.job_careers] * fitting)
            job = np.searchsorted(weight[:-1], draw[rows] * weight[-1], side="right")
            out[rows] = np.choose(does, [jobs[job], "student", idle])
    return pl.Series("job", out.tolist(), dtype=pl.String)


def _eligible(phrases: list[str], ages: Ints, age: Ints, draw: Floats) -> pl.Series:
    """Draw a phrase that people of that age may have, each with the same chance."""
    chosen = np.empty(len(age), dtype=np.int64)
    for value in np.unique(age):
        fitting = np.flatnonzero((ages[:, 0] <= value) & (value <= ages[:, 1]))
        rows = np.flatnonzero(age == value)
        chosen[rows] = fitting[(draw[rows] * len(fitting)).astype(np.int64)]
    return pl.Series(phrases, dtype=pl.String).gather(chosen)


def _genres(
    lists: PersonaLists, levels: Ints, towards: Floats, age: Ints
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Liked and disliked genres as two boolean matrices of shape (n, genres), disjoint."""
    count = len(lists.genres)
    suitable = lists.genre_ages <= age[:, None]
    likes = (levels[:, :count] == 2) & suitable
    dislikes = (levels[:, :count] == 0) & suitable
    # A person without a liked genre likes the nearest one. Only a list without anything else
    # makes it a disliked genre, or one for older people.
    rank = towards[:, :count] - 1e6 * dislikes - 1e9 * ~suitable
    none = ~likes.any(axis=1)
    likes[none, rank[none].argmax(axis=1)] = True
    return likes, dislikes & ~likes


def _normal(key: U64, count: int) -> Floats:
    """Independent standard normal draws of shape (n, count)."""
    draws = uniform(key[:, None], _LATENT, np.arange(count, dtype=np.uint64))
    return np.asarray(ndtri(draws + 2**-54))


def _lists_of(genres: list[str], chosen: npt.NDArray[np.bool_]) -> pl.Series:
    order = np.argsort(genres)
    names = np.array(genres, dtype=object)[order]
    chosen = chosen[:, order]
    values = pa.array(names[np.nonzero(chosen)[1]], pa.large_string())
    offsets = np.concatenate([[0], np.cumsum(chosen.sum(axis=1))])
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values))
