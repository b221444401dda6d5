"""Columns that the tables of every domain share, and the tables that are the same in all.

A domain declares its own ``Items`` and ``Interactions`` (keys have its sources' prefixes) and
takes the others from here.
"""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl

ITEM = "Item, stable across versions: source and id, such as `ml:862` or `steam:730`."
USER = "Human user: source and id, such as `ml-user:17`."
TIME = pl.Datetime("us", "UTC")

_TIERS = ("low", "medium", "high")


class Model(pa.DataFrameModel):
    """Base of the contracts' models: exactly the declared columns, in their order."""

    class Config:
        """Of pandera."""

        strict = True
        ordered = True


def column(
    description: str, *, null: bool = False, unit: str = "", within: str = "", **checks: Any
) -> Any:
    """A column with its documentation: unit and range of values as text, checks as pandera's."""
    metadata = {k: v for k, v in (("unit", unit), ("range", within)) if v}
    return pa.Field(nullable=null, description=description, metadata=metadata or None, **checks)


def item_key(pattern: str, **more: Any) -> Any:
    """The column of an item's key; ``pattern`` is a regular expression of the whole key."""
    return column(ITEM, str_matches=f"^{pattern}$", **more)


def user_key(pattern: str, **more: Any) -> Any:
    """The column of a human user's key; ``pattern`` is a regular expression of the whole key."""
    return column(USER, str_matches=f"^{pattern}$", **more)


def rating(low: float, high: float) -> Any:
    """The column of a rating on one of the scales between ``low`` and ``high``."""
    return column("Rating on `scale`.", ge=low, le=high, unit="stars")


def scale(*names: str) -> Any:
    """The column that names each rating's scale, one of ``names``."""
    return column("Rating scale of the source: lowest and highest rating.", isin=list(names))


def rated_at() -> Any:
    """The column of a rating's time."""
    return column("Time of the rating (UTC).", unit="microseconds")


def tier(description: str) -> Any:
    """The column of one of three tiers."""
    return column(description, isin=list(_TIERS))


class Splits(Model):
    """Per-user split of interactions by time: no later interaction is in an earlier split."""

    user_id: pl.String = column(USER)
    item_id: pl.String = column(ITEM)
    split: pl.String = column("Split.", isin=["train", "validation", "test"])


class ItemStats(Model):
    """Counts and means per item; the `train_` columns use the training split only."""

    item_id: pl.String = column(ITEM, unique=True)
    ratings: pl.Int64 = column("Ratings (count).", ge=0)
    mean_rating: pl.Float64 = column("Mean rating.", null=True, ge=0.5, le=5, unit="stars")
    train_ratings: pl.Int64 = column("Ratings in the training split (count).", ge=0)
    train_mean_rating: pl.Float64 = column(
        "Mean rating in the training split.", null=True, ge=0.5, le=5, unit="stars"
    )
    popularity_rank: pl.Int64 = column(
        "Rank by number of ratings; 1 is the most rated, ties by id.", ge=1
    )


class HumanUsers(Model):
    """Human users of the source; attributes that the source lacks are null, never invented."""

    user_id: pl.String = column(USER, unique=True)
    ratings: pl.Int64 = column("Ratings given (count).", ge=1)
    mean_rating: pl.Float64 = column("Mean rating given.", ge=0.5, le=5, unit="stars")
    first_rated_at: TIME = column("First rating (UTC).")
    last_rated_at: TIME = column("Last rating (UTC).")
    age_band: pl.String = column("Age band of the source.", null=True)
    gender: pl.String = column("Gender code of the source.", null=True)
    occupation: pl.String = column("Occupation of the source.", null=True)


class UserTraits(Model):
    """Habits of each human user (Agent4Rec 2.1.1, SimUSER 3.2.1), with ratings converted to 1-5.

    Thresholds of the tiers are quantiles of all users of the domain (settings ``traits``).
    """

    user_id: pl.String = column(USER, unique=True)
    activity: pl.Int64 = column("Interactions (count).", ge=1)
    activity_tier: pl.String = tier("Tier among the users of the domain.")
    conformity: pl.Float64 = column(
        "Mean squared difference of the ratings from the items' means: small for users who rate "
        "like others; 6 decimals.",
        ge=0,
        le=16,
        unit="stars squared",
        within="0-16",
    )
    conformity_tier: pl.String = tier("Conformity tier; `high` is for the smallest differences.")
    diversity: pl.Int64 = column("Distinct genres among the items (count).", ge=0)
    diversity_tier: pl.String = tier("Tier among the users of the domain.")
    diversity_80: pl.Int64 = column(
        "Most frequent genres whose cumulative share of the items' genres is at most 0.8 "
        "(Agent4Rec's code; count); 0 if one genre exceeds it.",
        ge=0,
    )
    diversity_80_tier: pl.String = tier("Tier among the users of the domain.")
    mean_rating: pl.Float64 = column(
        "Mean of the ratings; 6 decimals.", ge=1, le=5, unit="stars, 1-5"
    )
    pickiness: pl.String = column(
        "Pickiness by mean rating (SimUSER, appendix A).",
        isin=["extremely_picky", "moderately_picky", "not_picky"],
    )


class TrainingTraits(UserTraits):
    """Habits of each human user in the training split only: the traits of simulated users.

    Formulas, thresholds and columns are those of ``user_traits``; item means and counts are of
    training ratings, so that nothing of a held-out rating is in them.
    """


def of_every_domain(items: type[Model], interactions: type[Model]) -> dict[str, tuple[Any, ...]]:
    """Models and keys of the tables that every domain has, for `contracts`."""
    return {
        "items": (items, "item_id"),
        "interactions": (interactions, "user_id", "item_id"),
        "splits": (Splits, "user_id", "item_id"),
        "item_stats": (ItemStats, "item_id"),
        "human_users": (HumanUsers, "user_id"),
        "user_traits": (UserTraits, "user_id"),
    }
