"""Rows that are wrong on purpose, few enough that a strict loader still takes the files.

Faults that make a loader reject a row are planned only as far as their file has at least
:data:`ROWS_PER_FAULT` rows for each of them (0.77 % of the file), so that small worlds don't
exceed a loader's limit. Faults that it keeps are always there.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._films import Film
from pipelines.sample_world._ratings import RatingBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ROWS_PER_FAULT",
    "BrokenPlan",
    "BrokenRating",
    "break_record",
    "double_encoded",
    "plan_faults",
]

#: Rows a file must have for every row in it that is to be rejected.
ROWS_PER_FAULT = 130
_RATING_FAULTS = (
    "off_scale", "bad_timestamp", "duplicate_key", "wrong_columns", "unknown_film",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BrokenRating:
    """A row to insert into ratings.csv, after ``position`` rows of its block."""

    position: int
    reason: str
    text: str


@dataclass(slots=True)
class BrokenPlan:
    """What is broken where. Films are given by position in the catalogue.

    Attributes
    ----------
    users
        User id → fault of an extra row among their ratings.
    unknown_film
        A MovieLens id that no film has.
    without_year
        Film listed without its year.
    link_to_unknown
        Whether links.csv has a row for ``unknown_film``.
    shared
        (film with the record, film wrongly linked to the same record).
    not_json
        Film whose only record is cut short.
    another_film
        Film whose record is, by content and IMDb id, of another film.
    entities
        Film whose story line has HTML entities; ``truth`` of it is :attr:`entities_truth`.
    double_encoded
        (film, name) of a director or actor whose accents were encoded twice.
    """

    users: dict[int, str] = field(default_factory=dict)
    unknown_film: int = 0
    without_year: int | None = None
    link_to_unknown: bool = False
    shared: tuple[int, int] | None = None
    not_json: int | None = None
    another_film: int | None = None
    entities: int | None = None
    entities_truth: str = ""
    double_encoded: tuple[int, str] | None = None

    def truth(self, fault: str) -> str | None:
        """What a repairable fault of a record hides."""
        if fault == "html_entities":
            return self.entities_truth
        if fault == "double_encoded" and self.double_encoded is not None:
            return self.double_encoded[1]
        return None

    def ratings(self, block: RatingBlock, movie_ids: NDArray[np.int64]) -> list[BrokenRating]:
        """The rows to insert into a block of ratings, by position.

        A user who has rated every film gets no broken row that would need another film.
        """
        out: list[BrokenRating] = []
        for user, reason in sorted(self.users.items()):
            start, end = np.searchsorted(block.user, [user, user + 1])
            if start == end:
                continue
            film, when = block.film[start:end], int(block.timestamp[start])
            free = np.setdiff1d(np.arange(len(movie_ids)), film)
            if reason == "unknown_film":
                out.append(BrokenRating(int(end), reason, f"{user},{self.unknown_film},4.0,{when}"))
                continue
            if reason == "duplicate_key":
                # Older than the row it repeats, which is the line before it.
                i = (start + end) // 2
                stars = 1.0 if block.half_stars[i] > 5 else 4.5
                row = f"{user},{movie_ids[block.film[i]]},{stars},{block.timestamp[i] - 86_400}"
                out.append(BrokenRating(int(i) + 1, reason, row))
                continue
            if len(free) == 0:
                continue
            extra = int(free[len(free) // 2])
            row = {
                "off_scale": f"{user},{movie_ids[extra]},7.0,{when}",
                "bad_timestamp": f"{user},{movie_ids[extra]},3.5,yesterday",
                "wrong_columns": f"{user},{movie_ids[extra]},4.0",
            }[reason]
            out.append(BrokenRating(int(start + np.searchsorted(film, extra)), reason, row))
        return sorted(out, key=lambda r: r.position)


def plan_faults(seed: int, films: Sequence[Film], users: int, ratings: int) -> BrokenPlan:
    """Choose what to break, and break the films (not the ratings).

    The films are changed so that their fields say what is true of the files: a film whose
    record is broken has no record, a repaired story line is the truth.
    """
    dice = Dice(seed, "faults")
    plan = BrokenPlan(unknown_film=films[-1].movie_id + 7)
    n_ratings = min(len(_RATING_FAULTS), ratings // ROWS_PER_FAULT)
    for k, reason in enumerate(_RATING_FAULTS[:n_ratings]):
        plan.users[1 + int(users * (k + 0.5) / len(_RATING_FAULTS))] = reason
    plan.link_to_unknown = len(films) >= ROWS_PER_FAULT

    plain = [
        i
        for i, f in enumerate(films)
        if not (f.remake or f.collection or f.listed_original)
        and f.has_record
        and f.overview
        and f.cast
        and f.directors
    ]
    picked = iter(dice.sample(plain, 6))
    plan.without_year = next(picked, None)
    if plan.without_year is not None:
        films[plan.without_year].year_listed = False
    first, second = next(picked, None), next(picked, None)
    if first is not None and second is not None:
        plan.shared = (first, second)
        films[second].tmdb_id = films[first].tmdb_id
        films[second].has_record = False
    plan.entities = next(picked, None)
    if plan.entities is not None:
        film = films[plan.entities]
        film.overview += f' "{film.story.town} & back," says the ticket, and it isn\'t a joke.'
        plan.entities_truth = film.overview
    records = sum(f.has_record for f in films)
    if records >= ROWS_PER_FAULT:
        plan.not_json = next(picked, None)
    if records >= 2 * ROWS_PER_FAULT:
        plan.another_film = next(picked, None)
    for position in (plan.not_json, plan.another_film):
        if position is not None:
            films[position].has_record = False
    plan.double_encoded = _accented(films, plan)
    return plan


def _accented(films: Sequence[Film], plan: BrokenPlan) -> tuple[int, str] | None:
    for i, film in enumerate(films):
        if film.has_record and i != plan.entities:
            people = film.directors + [role.actor for role in film.cast]
            for person in people:
                if double_encoded(person.name) not in (None, person.name):
                    return i, person.name
    return None


def double_encoded(text: str) -> str | None:
    """The text as it looks after its UTF-8 bytes were read as Windows-1252; None if it can't.

    >>> double_encoded("Renée")
    'RenÃ©e'
    """
    try:
        return text.encode("utf-8").decode("cp1252")
    except UnicodeDecodeError:
        return None


def break_record(record: dict[str, Any], position: int, plan: BrokenPlan) -> str | None:
    """Damage a film's TMDB record as planned; returns the reason, or None if it stays whole."""
    if position == plan.another_film:
        record["imdb_id"] = f"tt{9_900_000 + position % 99_999:07d}"
        record["title"] = record["original_title"] = "Another Film Altogether"
        return "record_of_another_film"
    if position == plan.entities:
        record["overview"] = html.escape(plan.entities_truth)
        return "html_entities"
    if plan.double_encoded is not None and position == plan.double_encoded[0]:
        name = plan.double_encoded[1]
        for part in ("cast", "crew"):
            for person in record["credits"][part]:
                if person["name"] == name:
                    person["name"] = double_encoded(name)
        return "double_encoded"
    return None
