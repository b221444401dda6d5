"""Summaries of taste without a model: what a user rates above expectation, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from pipelines.matching._history import Floats, History, Ints, assumed
from pipelines.raters.statistical.profiles import HumanRows, group_surplus

#: Columns that name the people behind an item, by domain.
_PEOPLE = {"movies": "directors", "books": "authors", "games": "developer"}
_ITEMS = {"movies": "films", "books": "books", "games": "games"}


@dataclass(frozen=True)
class TasteProfile:
    """Outstanding tastes in a user's training ratings."""

    #: Genres with the largest and the smallest shrunken surplus, strongest first; disjoint.
    likes: tuple[str, ...]
    dislikes: tuple[str, ...]
    #: Directors, authors or developers rated above expectation, strongest first.
    people: tuple[str, ...]
    #: Decades (first years) rated above expectation, strongest first.
    decades: tuple[int, ...]
    #: Mean rating (1-5).
    mean: float
    #: Training interactions (count).
    count: int


def taste_profiles(history: History, users: Ints) -> list[TasteProfile]:
    """Profiles of some users from their training ratings.

    A surplus is a rating less what the item's and the user's shrunken means let expect, and is
    shrunk once more per genre, person and decade, as those of the statistical rater.
    """
    rules = assumed()["taste"]
    damping = rules["damping"]
    owner = np.repeat(np.arange(len(history.users)), history.counts)
    mean = float(history.rating.mean())
    quality = _shrunken(history.item, history.rating - mean, history.items.height, damping)
    over = history.rating - mean - quality[history.item]
    leniency = _shrunken(owner, over, len(history.users), damping)
    place = np.full(len(history.users), -1)
    place[users] = np.arange(len(users))
    mine = place[owner] >= 0
    rows = HumanRows(
        [history.users[n] for n in users],
        place[owner[mine]],
        history.item[mine],
        history.rating[mine],
    )
    residual = over[mine] - leniency[owner[mine]]
    genres = _named(rows, residual, _memberships(history.items["genres"]))
    makers = _named(rows, residual, _memberships(_makers(history)))
    decades = _named(rows, residual, _memberships(_decades(history)))
    means = np.bincount(rows.user, rows.rating, len(users)) / history.counts[users]
    least = rules["genre_surplus"]
    return [
        TasteProfile(
            tuple(liked.above(least, rules["genres"])),
            tuple(liked.below(-least, rules["genres"])),
            tuple(maker.above(rules["people_surplus"], rules["people"], rules["people_items"])),
            tuple(int(d) for d in decade.above(rules["decade_surplus"], 1, rules["decade_items"])),
            float(means[n]),
            int(history.counts[user]),
        )
        for n, (user, liked, maker, decade) in enumerate(
            zip(users, genres, makers, decades, strict=True)
        )
    ]


def taste_text(profile: TasteProfile, domain: str) -> str:
    """The profile as one to four sentences, without a model.

    >>> taste_text(TasteProfile(("Drama",), ("Horror",), (), (1940,), 3.21, 40), "movies")
    'Likes Drama, dislikes Horror. Prefers films of the 1940s. Measured: 40 ratings, mean 3.2 of 5.'
    """
    items = _ITEMS[domain]
    opinions = [
        f"{verb} {_listed(genres)}"
        for verb, genres in (("likes", profile.likes), ("dislikes", profile.dislikes))
        if genres
    ]
    out = [", ".join(opinions) or f"Has no kind of {items} that stands out"]
    if profile.people:
        out.append(f"Returns to {_listed(profile.people)}")
    if profile.decades:
        out.append(f"Prefers {items} of the {profile.decades[0]}s")
    habits = assumed()["taste"]["habits"]
    habit = next(word for word, bound in habits.items() if profile.mean < bound)
    noun = "rating" if profile.count == 1 else "ratings"
    out.append(f"{habit}: {profile.count:,} {noun}, mean {profile.mean:.1f} of 5")
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in out)


@dataclass(frozen=True)
class _Named:
    """Surpluses of one user by name, with the rated items behind each."""

    names: list[str]
    surplus: Floats
    seen: Floats

    def above(self, least: float, count: int, items: int = 1) -> list[str]:
        selected = np.flatnonzero((self.surplus > least) & (self.seen >= items))
        return self._sorted(selected, -self.surplus, count)

    def below(self, most: float, count: int) -> list[str]:
        return self._sorted(np.flatnonzero(self.surplus < most), self.surplus, count)

    def _sorted(self, selected: Ints, by: Floats, count: int) -> list[str]:
        return [self.names[n] for n in selected[np.argsort(by[selected], kind="stable")][:count]]


def _named(
    rows: HumanRows, residual: Floats, groups: tuple[list[str], Any], *, block: int = 256
) -> Iterator[_Named]:
    """Surpluses of every user, some users at a time: makers are many."""
    names, members = groups
    for first in range(0, len(rows.users), block):
        mask = (rows.user >= first) & (rows.user < first + block)
        users = rows.users[first : first + block]
        part = HumanRows(users, rows.user[mask] - first, rows.item[mask], rows.rating[mask])
        surplus, seen = group_surplus(part, residual[mask], members)
        for n in range(len(users)):
            yield _Named(names, surplus[n], seen[n])


def _memberships(lists: pl.Series) -> tuple[list[str], Any]:
    """Names, alphabetical, and a sparse matrix (items, names) of 1 where an item has one."""
    frame = pl.DataFrame({"row": np.arange(len(lists)), "name": lists}).explode("name").drop_nulls()
    frame = frame.unique(maintain_order=True)
    names = frame["name"].unique().sort()
    column = frame["name"].replace_strict(
        names, pl.Series(range(len(names)), dtype=pl.Int64), return_dtype=pl.Int64
    )
    cells = (frame["row"].to_numpy(), column.to_numpy())
    shape = (len(lists), max(len(names), 1))
    matrix = sparse.csr_matrix((np.ones(frame.height), cells), shape=shape)
    return names.to_list() or [""], matrix


def _makers(history: History) -> pl.Series:
    column = _PEOPLE[history.domain]
    if column not in history.items.columns:
        return pl.Series([[] for _ in range(history.items.height)], dtype=pl.List(pl.String))
    values = history.items[column]
    return (
        values if values.dtype == pl.List else history.items.select(pl.concat_list(column))[column]
    )


def _decades(history: History) -> pl.Series:
    if "year" not in history.items.columns:
        return pl.Series([[] for _ in range(history.items.height)], dtype=pl.List(pl.String))
    decade = (pl.col("year") // 10 * 10).cast(pl.String)
    return history.items.select(decade=pl.concat_list(decade))["decade"]


def _shrunken(index: Ints, values: Floats, size: int, damping: float) -> Floats:
    """Mean of the values by index, shrunk with `damping` values of 0."""
    total = np.bincount(index, values, size)
    return np.asarray(total / (np.bincount(index, minlength=size) + damping))


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
