"""Columns that the tables of every domain share, and the tables that are the same in all.

A domain declares its own ``Items`` and ``Interactions`` (keys have its sources' prefixes) and
takes the others from here.
"""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl

__all__ = [
    "ITEM",
    "TIME",
    "USER",
    "HumanUsers",
    "ItemStats",
    "Model",
    "Splits",
    "TrainingTraits",
    "UserTraits",
    "item_key",
    "of_every_domain",
    "rated_at",
    "rating",
    "scale",
    "tier",
    "user_key",
]

ITEM = "Item, stable across versions: source and id, such as `ml:862` or `steam:730`."
USER = "Human user: source and id, such as `ml-user:17`."
TIME = pl.Datetime("us", "UTC")

_TIERS = ("low", "medium", "high")


class Model(pa.DataFrameModel):
    """What every contract's model starts from: exactly the declared columns, in their order."""

    class Config:
        """Of pandera."""

        strict = True
        ordered = True


def item_key(pattern: str, **more: Any) -> Any:
    """The column of an item's key; ``pattern`` is a regular expression of the whole key."""
    return pa.Field(str_matches=f"^{pattern}$", description=ITEM, **more)


def user_key(pattern: str, **more: Any) -> Any:
    """The column of a human user's key; ``pattern`` is a regular expression of the whole key."""
    return pa.Field(str_matches=f"^{pattern}$", description=USER, **more)


def rating(low: float, high: float) -> Any:
    """The column of a rating on one of the scales between ``low`` and ``high``."""
    return pa.Field(ge=low, le=high, description="Rating on `scale`.", metadata={"unit": "stars"})


def scale(*names: str) -> Any:
    """The column that names each rating's scale, one of ``names``."""
    return pa.Field(isin=list(names), description="Scale of the source: lowest and highest rating.")


def rated_at() -> Any:
    """The column of a rating's time."""
    return pa.Field(description="When (UTC).", metadata={"unit": "microseconds"})


def tier(description: str) -> Any:
    """The column of one of three tiers."""
    return pa.Field(isin=list(_TIERS), description=description)


class Splits(Model):
    """The per-user split of interactions by time: no later interaction is in an earlier part."""

    user_id: pl.String = pa.Field(description=USER)
    item_id: pl.String = pa.Field(description=ITEM)
    split: pl.String = pa.Field(isin=["train", "validation", "test"], description="Part.")


class ItemStats(Model):
    """Counts and means per item; the `train_` columns use the training split only."""

    item_id: pl.String = pa.Field(unique=True, description=ITEM)
    ratings: pl.Int64 = pa.Field(ge=0, description="Ratings (count).")
    mean_rating: pl.Float64 = pa.Field(
        nullable=True, ge=0.5, le=5, description="Mean rating.", metadata={"unit": "stars"}
    )
    train_ratings: pl.Int64 = pa.Field(ge=0, description="Ratings in the training split (count).")
    train_mean_rating: pl.Float64 = pa.Field(
        nullable=True, ge=0.5, le=5, description="Their mean.", metadata={"unit": "stars"}
    )
    popularity_rank: pl.Int64 = pa.Field(ge=1, description="1 is the most rated; ties by id.")


class HumanUsers(Model):
    """The human users of the source; traits that the source lacks are null, never invented."""

    user_id: pl.String = pa.Field(unique=True, description=USER)
    ratings: pl.Int64 = pa.Field(ge=1, description="Ratings given (count).")
    mean_rating: pl.Float64 = pa.Field(
        ge=0.5, le=5, description="Mean of them.", metadata={"unit": "stars"}
    )
    first_rated_at: TIME = pa.Field(description="First rating (UTC).")
    last_rated_at: TIME = pa.Field(description="Last rating (UTC).")
    age_band: pl.String = pa.Field(nullable=True, description="Age band of the source.")
    gender: pl.String = pa.Field(nullable=True, description="Gender code of the source.")
    occupation: pl.String = pa.Field(nullable=True, description="Occupation of the source.")


class UserTraits(Model):
    """Habits of each human user (Agent4Rec 2.1.1, SimUSER 3.2.1); ratings are taken to 1-5 first.

    Thresholds of the tiers are quantiles of all users of the domain (settings ``traits``).
    """

    user_id: pl.String = pa.Field(unique=True, description=USER)
    activity: pl.Int64 = pa.Field(ge=1, description="Interactions (count).")
    activity_tier: pl.String = tier("Its tier among the users of the domain.")
    conformity: pl.Float64 = pa.Field(
        ge=0,
        le=16,
        description="Mean squared difference of the ratings from the items' means: small for "
        "those who rate as others do; 6 decimals.",
        metadata={"unit": "stars squared", "range": "0-16"},
    )
    conformity_tier: pl.String = tier("Its tier; `high` is for the smallest differences.")
    diversity: pl.Int64 = pa.Field(ge=0, description="Different genres among the items (count).")
    diversity_tier: pl.String = tier("Its tier among the users of the domain.")
    diversity_80: pl.Int64 = pa.Field(
        ge=0,
        description="Most frequent genres while their cumulative share of the items' genres is at "
        "most 0.8 (Agent4Rec's code; count); 0 where one genre has more.",
    )
    diversity_80_tier: pl.String = tier("Its tier among the users of the domain.")
    mean_rating: pl.Float64 = pa.Field(
        ge=1, le=5, description="Mean of the ratings; 6 decimals.", metadata={"unit": "stars, 1-5"}
    )
    pickiness: pl.String = pa.Field(
        isin=["extremely_picky", "moderately_picky", "not_picky"],
        description="By mean rating (SimUSER, appendix A).",
    )


class TrainingTraits(UserTraits):
    """Habits of each human user in the training split alone: the traits of simulated users.

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
