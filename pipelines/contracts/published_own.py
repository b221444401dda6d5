"""Contracts of anybody's data: raw tables as read, and the published tables of the domain."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import (
    TIME,
    HumanUsers,
    Model,
    TrainingTraits,
    column,
    item_key,
    of_every_domain,
    rating,
    scale,
    user_key,
)
from pipelines.contracts.raw import Rejected

__all__ = ["OWN", "RAW_OWN"]

_KEY = r"[\s\S]+"


class RawItems(Model):
    """Items of a given file; what it does not state is null."""

    item_id: pl.String = column("Item, as in the file.", unique=True)
    title: pl.String = column("Title, as in the file.", null=True)
    year: pl.Int64 = column("First number of four digits in the year's column.", null=True)
    genres: pl.List(pl.String) = column("Members of the genres' column, alphabetical.")
    description: pl.String = column("Text, as in the file.", null=True)
    attributes: pl.List(pl.String) = column(
        "Short values of further columns, each as `column: value`; alphabetical."
    )


class RawRatings(Model):
    """Ratings of a given file, on its own scale."""

    user_id: pl.String = column("User, as in the file.")
    item_id: pl.String = column("Item, as in the file.")
    rating: pl.Float64 = column("Rating, as in the file.")
    low: pl.Float64 = column("Lowest rating of the scale.")
    high: pl.Float64 = column("Highest rating of the scale.")
    timestamp: pl.Int64 = column(
        "Time of the rating; null if the file states none.", null=True, ge=0, unit="seconds, UTC"
    )


class RawUsers(Model):
    """Users of a given file; no rows without one."""

    user_id: pl.String = column("User, as in the file.", unique=True)
    age_band: pl.String = column("Decade of the age, or the band of the file.", null=True)
    gender: pl.String = column("Gender, as in the file.", null=True)
    occupation: pl.String = column("Occupation, as in the file.", null=True)


class Items(Model):
    """Items of a given file; missing features are null."""

    item_id: pl.String = item_key(f"own:{_KEY}")
    title: pl.String = column(
        "Title; the item's id if the file has none.", str_length={"min_value": 1}
    )
    year: pl.Int64 = column("Year.", null=True, ge=0, le=2100, unit="year")
    genres: pl.List(pl.String) = column("Genres or other kinds, alphabetical; may be empty.")
    description: pl.String = column("Text about the item.", null=True)
    attributes: pl.List(pl.String) = column(
        "Values of further columns that several items share, each as `column: value`."
    )


class Interactions(Model):
    """Ratings of a given file, taken from its scale to 1-5, ends to ends."""

    user_id: pl.String = user_key(f"own-user:{_KEY}")
    item_id: pl.String = item_key(f"own:{_KEY}")
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = column(
        "Time of the rating (UTC); null if the file states none.", null=True, unit="microseconds"
    )
    source_rating: pl.Float64 = column("Rating, as in the file.")
    source_scale: pl.String = column("Lowest and highest rating of the file's scale.")


class Users(HumanUsers):
    """Human users; attributes and times that the files lack are null, never invented."""

    first_rated_at: TIME = column("First rating (UTC); null if unknown.", null=True)
    last_rated_at: TIME = column("Last rating (UTC); null if unknown.", null=True)


#: Raw tables by dataset name.
RAW_OWN: dict[str, Contract] = contracts(
    "raw",
    own_items=(RawItems, "item_id"),
    own_ratings=(RawRatings, "user_id", "item_id"),
    own_users=(RawUsers, "user_id"),
    own_rejected=(Rejected, "file", "line", "reason"),
)
#: Published tables of the domain by dataset name.
OWN: dict[str, Contract] = contracts(
    "own",
    **{**of_every_domain(Items, Interactions), "human_users": (Users, "user_id")},
    training_traits=(TrainingTraits, "user_id"),
)
