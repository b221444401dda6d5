"""Joint shares of people's attributes: a Gaussian copula fitted to published two-way tables.

Opinions of genres and the traits of rating have three levels, cut from normal latent variables
whose means depend on gender and age (probit) and which are correlated (tetrachoric correlations of
the collapsed tables); thresholds keep the margins that the lists state. Each gender and age band
moves the opinion of a genre by one shift, from dislike to like: it is ordered, and free levels
would turn it round where people of ml-100k differ in how many have an opinion. The tables hold
people of ml-100k, no cell below `MIN_PEOPLE`; where a cell is empty, a nearby or coarser share
stands in, and `backed_off` lists it. A domain without tables has independent attributes.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import ndtr, ndtri

if TYPE_CHECKING:
    from pipelines.personas._lists import PersonaLists

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: People behind every published cell, at least (count).
MIN_PEOPLE = 20
GENDERS = ("female", "male")
#: Levels of an opinion of a genre, and of each trait, in ascending order.
OPINION = ("disliked", "neither", "liked")
TRAITS: dict[str, tuple[str, str, str]] = {
    "leniency": ("harsh", "average", "generous"),
    "manner": ("narrow", "average", "wide"),
    "activity": ("low", "medium", "high"),
    "conformity": ("low", "medium", "high"),
}
#: Employment statuses of adults.
STATUSES = ("employed", "student", "none")
#: Shares of people in the levels: quarters and the middle half, or the tiers of human users.
TRAIT_SHARES = {
    "leniency": (0.25, 0.5, 0.25),
    "manner": (0.25, 0.5, 0.25),
    "activity": (0.6, 0.3, 0.1),
    "conformity": (0.2, 0.55, 0.25),
}


@dataclass(frozen=True)
class Tables:
    """Published two-way tables: people (count) by names of two attributes and by their levels."""

    cells: Mapping[tuple[str, str], Mapping[tuple[str, str], float]]

    @classmethod
    def read(cls, file: Path | Traversable) -> Tables:
        """Tables of a CSV file ``first, first_level, second, second_level, people``."""
        cells: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        with file.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                table = cells.setdefault((row["first"], row["second"]), {})
                table[row["first_level"], row["second_level"]] = float(row["people"])
        return cls(cells)

    def levels(self, name: str) -> list[str]:
        """Levels of the second attributes that begin so, in order; ages are ``low-high``."""
        tables = [t for (_, second), t in self.cells.items() if second.startswith(name)]
        levels = {level for table in tables for _, level in table}
        return sorted(levels, key=lambda level: (len(level.split("-")[0]), level))

    def table(self, first: str, second: str, rows: Sequence[str], columns: Sequence[str]) -> Floats:
        """People by level, of shape (rows, columns); NaN where a cell is not published."""
        cells = self.cells.get((first, second))
        if cells is None:
            cells = {(a, b): n for (b, a), n in self.cells.get((second, first), {}).items()}
        return np.array([[cells.get((a, b), np.nan) for b in columns] for a in rows])


@dataclass(frozen=True)
class Copula:
    """Joint distribution of attributes of three levels, given gender and age.

    An attribute is two latent variables: whether its level is an outer one (the lowest or the
    highest; an opinion of a genre rather than none), and, if so, whether it is the highest.
    """

    #: Attributes, of shape (attributes,).
    names: tuple[str, ...]
    #: First age of each band (years), of shape (bands,).
    first_ages: Ints
    #: Thresholds of the latent variables, of shape (2 * attributes,): first all outer ones.
    ends: Floats
    #: Means of the latent variables, of shape (genders, bands, 2 * attributes).
    shift: Floats
    #: Cholesky factor of their correlations.
    factor: Floats
    #: Description of each back-off for unpublished cells.
    backed_off: tuple[str, ...]

    @classmethod
    def fit(
        cls, tables: Tables | None, names: Sequence[str], margins: Floats, population: Floats
    ) -> Copula:
        """Fit to tables and margins.

        ``tables`` are two-way tables of the attributes, and of each by gender and age; None is
        independence. Attributes that are not in `TRAITS` are genres. ``margins`` are shares of
        people in each level, of shape (attributes, 3), ``population`` by gender and age in years.
        """
        size = len(names)
        two_way = tables or Tables({})
        bands = two_way.levels("age") or ["0-100"]
        gender, age = np.zeros((len(GENDERS), 2 * size)), np.zeros((len(bands), 2 * size))
        correlation = np.eye(2 * size)
        backed = [] if tables else ["every pair of attributes: independent (no source)"]
        for n, name in enumerate(names if tables else ()):
            for by, levels, out in (("gender", GENDERS, gender), ("age", bands, age)):
                people = two_way.table(name, by, _levels_of(name), levels)
                if np.isnan(people).any():
                    backed.append(f"{name} by {by}: {_empty(people, levels)}")
                if np.isnan(people).all():
                    continue
                people = filled(people)
                fit = rake if name in TRAITS else ordinal
                share = people.sum(axis=0) / people.sum()
                out[:, [n, n + size]] = _shifts(fit(people, margins[n].clip(1e-3), share))
        for (a, first), (b, second) in combinations(enumerate(names if tables else ()), 2):
            people = two_way.table(first, second, _levels_of(first), _levels_of(second))
            if np.isnan(people).any():
                backed.append(f"{first} by {second}: {_empty(people, _levels_of(second))}")
            if np.isnan(people).all():
                continue
            rows, columns = [a, a + size], [b, b + size]
            raked = rake(filled(people), *margins[[a, b]].clip(1e-3))
            correlation[np.ix_(rows, columns)] = pairs = _correlations(raked)
            correlation[np.ix_(columns, rows)] = pairs.T
        first_ages = np.array([int(band.split("-")[0]) for band in bands])
        shift = gender[:, None] + age[None]
        band = np.searchsorted(first_ages, np.arange(population.shape[1]), side="right") - 1
        share = np.stack(
            [np.bincount(band.clip(0), row, len(bands)).astype(np.float64) for row in population]
        )
        flat, outer = shift.reshape(-1, 2 * size), margins[:, 0] + margins[:, 2]
        # Part of the correlations comes from gender and age.
        spread = np.cov(flat.T, aweights=share.ravel(), bias=True)
        scale = np.sqrt(1 + np.diag(spread))
        correlation = correlation * np.outer(scale, scale) - spread
        weight = np.repeat(share.reshape(-1, 1), size, axis=1)
        first_ends = _thresholds(outer, flat[:, :size], weight)
        weight = weight * ndtr(flat[:, :size] - first_ends)
        ends = _thresholds(margins[:, 2] / outer, flat[:, size:], weight)
        return cls(
            tuple(names),
            first_ages,
            np.concatenate([first_ends, ends]),
            shift,
            np.asarray(np.linalg.cholesky(_nearest(correlation)), np.float64),
            tuple(backed),
        )

    def levels(self, latent: Floats, male: npt.NDArray[np.bool_], age: Ints) -> tuple[Ints, Floats]:
        """Levels (0 to 2) of people, and how far each is towards the highest.

        ``latent`` are independent standard normal draws of shape (people, 2 * attributes).
        """
        band = np.searchsorted(self.first_ages, age, side="right").clip(1) - 1
        value = latent @ self.factor.T + self.shift[male.astype(np.int64), band] - self.ends
        outer, up = np.split(value, 2, axis=1)
        towards = np.where(up > 0, outer, outer - 1e3)
        return np.where(outer > 0, 2 * (up > 0), 1).astype(np.int64), towards


@dataclass(frozen=True)
class Careers:
    """Shares of employment statuses and careers among adults, by gender and age."""

    #: Groups of occupations, of shape (careers,).
    names: tuple[str, ...]
    #: First age of each band (years), of shape (bands,).
    first_ages: Ints
    #: Shares of `STATUSES`, of shape (genders, bands, statuses).
    status: Floats
    #: Shares of careers among the employed, of shape (genders, bands, careers).
    shares: Floats
    #: Description of each back-off for unpublished cells.
    backed_off: tuple[str, ...]

    @classmethod
    def fit(cls, tables: Tables, names: Sequence[str]) -> Careers:
        """Fit to tables of career by age, career by gender, and status by gender and age."""
        bands = tables.levels("age")
        by_age = tables.table("career", "age", names, bands)
        by_gender = tables.table("career", "gender", names, GENDERS)
        backed = [
            f"career by {by}: {_empty(people, levels)}"
            for by, people, levels in (("age", by_age, bands), ("gender", by_gender, GENDERS))
            if np.isnan(people).any()
        ]
        ages, genders = filled(by_age), filled(by_gender)
        shares = (genders / genders.sum(axis=1, keepdims=True) / genders.sum(axis=0)).T[:, None]
        shares = shares * (ages / ages.sum(axis=0)).T
        # Students above the ages that have enough of them count as without work.
        status = np.nan_to_num(
            [tables.table("status", f"age of {gender}", STATUSES, bands).T for gender in GENDERS]
        )
        return cls(
            tuple(names),
            np.array([int(band.split("-")[0]) for band in bands]),
            status / status.sum(axis=2, keepdims=True),
            shares / shares.sum(axis=2, keepdims=True),
            tuple(backed),
        )


def joint_distances(people: pl.DataFrame, lists: PersonaLists) -> pl.DataFrame:
    """Distance of personas' attributes from the source, per published table.

    The source's table is raked to the personas' margins (the margins are checked elsewhere), so
    that only what two attributes have to do with each other is compared. Adults only: children lack
    some opinions.

    One row per table with people in it: ``pair`` (such as `genre x age`), ``first, second, people``
    (count), ``distance`` (total variation, 0 to 1), ``independent`` (that of the same margins
    without dependence) and ``shares`` (of the source, raked: one per cell).
    """
    adults = people.filter(pl.col("age") >= 18)
    careers = dict(
        zip(lists.jobs, (lists.careers.names[n] for n in lists.job_careers), strict=True)
    )
    employed = pl.when(pl.col("job").is_in(list(careers))).then(pl.lit("employed"))
    status = employed.when(pl.col("job") == "student").then(pl.lit("student"))
    values = {
        "career": adults["job"].replace_strict(careers, default=None, return_dtype=pl.String),
        "status": adults.select(status.otherwise(pl.lit("none"))).to_series(),
        "gender": adults["gender"],
        **{name: adults[name] for name in TRAITS if name in adults.columns},
    }
    for genre in lists.genres:
        liked, disliked = (pl.col(side).list.contains(genre) for side in ("likes", "dislikes"))
        level = pl.when(liked).then(pl.lit("liked")).when(disliked).then(pl.lit("disliked"))
        values[genre] = adults.select(level.otherwise(pl.lit("neither"))).to_series()
    rows: list[dict[str, Any]] = []
    for tables in (lists.tables or Tables({}), lists.career_tables):
        bands = tables.levels("age")
        for first, second in tables.cells:
            by_age = second.startswith("age")
            columns = bands if by_age else list(_levels_of(second))
            names = lists.careers.names if first == "career" else _levels_of(first)
            a = _codes(values[first], names)
            b = _band_codes(adults["age"], columns) if by_age else _codes(values[second], columns)
            if second.startswith("age of"):
                b = np.where(adults["gender"] == second.removeprefix("age of "), b, -1)
            valid = (a >= 0) & (b >= 0)
            if not valid.any():
                continue
            shape = (len(names), len(columns))
            counts = np.bincount(a[valid] * shape[1] + b[valid], minlength=shape[0] * shape[1])
            share = counts.reshape(shape) / valid.sum()
            row, column = share.sum(axis=1), share.sum(axis=0)
            published = tables.table(first, second, names, columns)
            source = np.nan_to_num(published) if first == "status" else filled(published)
            opinion = _kind(first) == "genre" and _kind(second) in ("gender", "age")
            target = (ordinal if opinion else rake)(source, row, column)
            rows.append(
                {
                    "pair": f"{_kind(first)} x {_kind(second)}",
                    "first": first,
                    "second": second,
                    "people": int(valid.sum()),
                    "distance": 0.5 * float(np.abs(share - target).sum()),
                    "independent": 0.5 * float(np.abs(np.outer(row, column) - target).sum()),
                    "shares": target.ravel().tolist(),
                }
            )
    return pl.DataFrame(rows, schema=_DISTANCES)


_DISTANCES: dict[str, Any] = {
    **dict.fromkeys(("pair", "first", "second"), pl.String),
    "people": pl.Int64,
    **dict.fromkeys(("distance", "independent"), pl.Float64),
    "shares": pl.List(pl.Float64),
}


def _kind(name: str) -> str:
    if name in (*TRAITS, "gender", "career", "status"):
        return name
    return "age" if name.startswith("age") else "genre"


def _levels_of(name: str) -> Sequence[str]:
    return {"gender": GENDERS, "status": STATUSES, **TRAITS}.get(name, OPINION)


def _codes(values: pl.Series, levels: Sequence[str]) -> Ints:
    codes = {level: n for n, level in enumerate(levels)}
    return values.replace_strict(codes, default=-1, return_dtype=pl.Int64).to_numpy()


def _band_codes(age: pl.Series, bands: Sequence[str]) -> Ints:
    first = [int(band.split("-")[0]) for band in bands]
    return np.searchsorted(first, age.to_numpy(), side="right") - 1


def rake(table: Floats, rows: Floats, columns: Floats, *, rounds: int = 100) -> Floats:
    """Shares with a table's odds ratios and other margins (iterative proportional fitting).

    >>> rake(np.array([[30.0, 10], [10, 30]]), np.array([0.5, 0.5]), np.array([0.5, 0.5])).tolist()
    [[0.375, 0.125], [0.125, 0.375]]
    """
    out = table / table.sum()
    for _ in range(rounds):
        out = out * _ratio(rows, out.sum(axis=1))[:, None]
        out = out * _ratio(columns, out.sum(axis=0))
    return np.asarray(out)


def ordinal(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Shares of ordered levels with one probit shift per column, at other margins.

    The shifts of a table are one step of maximum likelihood from none (a score test's estimate).

    >>> table = np.array([[30.0, 20], [40, 40], [30, 40]])
    >>> ordinal(table, np.full(3, 1 / 3), np.full(2, 0.5)).round(3).tolist()
    [[0.193, 0.14], [0.167, 0.167], [0.14, 0.193]]
    """
    share = table.sum(axis=1) / table.sum()
    ends = ndtri(share.cumsum()[:-1])
    score = -np.diff(np.exp(-(ends**2) / 2), prepend=0, append=0) / share / np.sqrt(2 * np.pi)
    shift = score @ (table / table.sum(axis=0)) / (score**2 @ share)
    below = ndtr(ndtri((rows / rows.sum()).cumsum()[:-1, None]) - shift)
    return rake(np.diff(below, axis=0, prepend=0, append=1) * columns, rows, columns)


def filled(people: Floats) -> Floats:
    """Cells with those that are not published as if rows and columns were independent.

    Each is at most `MIN_PEOPLE` less one, which is why it is not published. A column without
    any published cell is the nearest one that has some.
    """
    published = np.flatnonzero(~np.isnan(people).all(axis=0))
    nearest = np.abs(np.arange(people.shape[1])[:, None] - published).argmin(axis=1)
    part = people[:, published]
    empty = np.isnan(part)
    out = np.where(empty, 1.0, part)
    for _ in range(20 * empty.any()):
        expected = np.outer(out.sum(axis=1), out.sum(axis=0)) / out.sum()
        out = np.where(empty, np.minimum(expected, MIN_PEOPLE - 1), part)
    return np.asarray(out[:, nearest])


def _empty(people: Floats, levels: Sequence[str]) -> str:
    """Describe the back-off for the empty cells of a table."""
    none = np.asarray(np.isnan(people).all(axis=0))
    if none.all():
        return "independent, not published"
    cells = int(np.isnan(people[:, ~none]).sum())
    parts = [f"{cells} empty cells as if independent"] * (cells > 0)
    parts += [
        f"{level} as its neighbor"
        for level, bare in zip(levels, none.tolist(), strict=True)
        if bare
    ]
    return ", ".join(parts)


def _ratio(target: Floats, actual: Floats) -> Floats:
    return np.divide(target, actual, out=np.zeros_like(target), where=actual > 0)


def _shifts(share: Floats) -> Floats:
    """Latent means of each column of a table of three levels, of shape (columns, 2)."""
    low, middle, high = share
    pairs = ((low + high, middle), (high, low))
    return np.stack([ndtri(a / (a + b)) - ndtri(a.sum() / (a + b).sum()) for a, b in pairs], axis=1)


def _correlations(share: Floats) -> Floats:
    """Tetrachoric correlations of two attributes' latent variables, of shape (2, 2)."""
    outer = np.array([[1.0, 0, 1], [0, 1, 0]])
    up = np.array([[0.0, 0, 1], [1, 0, 0]])
    return np.array([[_tetrachoric(a @ share @ b.T) for b in (outer, up)] for a in (outer, up)])


def _tetrachoric(people: Floats) -> float:
    """Correlation of two normal variables that a 2 x 2 table cuts, by bisection.

    The probability of both above their cuts h and k is that of independence plus the integral
    of the bivariate density at (h, k) over correlations from 0 to r (Gauss-Legendre, 16 nodes).
    """
    share = people / people.sum()
    h, k = -ndtri(share[0].sum()), -ndtri(share[:, 0].sum())
    excess = share[0, 0] - share[0].sum() * share[:, 0].sum()
    low, high = -0.95, 0.95
    for _ in range(30):
        r = (low + high) / 2
        at = r * _NODES
        residual = 1 - at**2
        density = np.exp(-(h * h - 2 * at * h * k + k * k) / (2 * residual)) / np.sqrt(residual)
        low, high = (r, high) if r * (_WEIGHTS @ density) / (2 * np.pi) < excess else (low, r)
    return (low + high) / 2


_NODES, _WEIGHTS = (v / 2 for v in np.polynomial.legendre.leggauss(16))
_NODES = _NODES + 0.5


def _nearest(correlation: Floats) -> Floats:
    """A positive definite correlation matrix nearby."""
    value, vector = np.linalg.eigh(correlation)
    out = (vector * value.clip(1e-6)) @ vector.T
    scale = np.sqrt(np.diag(out))
    return np.asarray(out / np.outer(scale, scale))


def _thresholds(share: Floats, shift: Floats, weight: Floats) -> Floats:
    """Thresholds that shares of a population are above, by bisection.

    `share` has the shape (variables,), `shift` and `weight` (groups, variables).
    """
    low, high = np.full(share.shape, -12.0), np.full(share.shape, 12.0)
    weight = weight / weight.sum(axis=0)
    for _ in range(60):
        middle = (low + high) / 2
        above = (weight * ndtr(shift - middle)).sum(axis=0) > share
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray((low + high) / 2)
