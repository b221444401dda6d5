"""Contracts of the games domain: Steam's games, and reviews as ratings."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import (
    TIME,
    Model,
    TrainingTraits,
    item_key,
    of_every_domain,
    rated_at,
    rating,
    scale,
    user_key,
)

__all__ = ["GAMES"]

_GAME = "steam:[1-9][0-9]*"
_USER = r"steam-user:[^\s/]+"


class Items(Model):
    """Games, extensions and programs of Steam's store; unknown features are null."""

    item_id: pl.String = item_key(_GAME)
    title: pl.String = pa.Field(str_length={"min_value": 1}, description="Title.")
    year: pl.Int64 = pa.Field(
        nullable=True, ge=1970, le=2100, description="Year of release.", metadata={"unit": "year"}
    )
    genres: pl.List(pl.String) = pa.Field(description="Steam genres, alphabetical; may be empty.")
    tags: pl.List(pl.String) = pa.Field(
        description="Tags of the players, most used first; may be empty."
    )
    specs: pl.List(pl.String) = pa.Field(
        description="Features, such as `Single-player`; may be empty."
    )
    developer: pl.String = pa.Field(
        nullable=True, description="Developer; several are separated by commas."
    )
    publisher: pl.String = pa.Field(
        nullable=True, description="Publisher; several are separated by commas."
    )
    price: pl.Float64 = pa.Field(
        nullable=True, ge=0, description="Price; 0 is free.", metadata={"unit": "USD"}
    )
    release_date: pl.Date = pa.Field(nullable=True, description="Release, if the day is known.")
    early_access: pl.Boolean = pa.Field(
        nullable=True, description="Whether it is sold before it is finished."
    )
    sentiment: pl.String = pa.Field(
        nullable=True, description="The store's summary of its reviews, such as `Mostly Positive`."
    )
    metascore: pl.Int64 = pa.Field(
        nullable=True, ge=0, le=100, description="Metacritic's score.", metadata={"range": "0-100"}
    )
    url: pl.String = pa.Field(nullable=True, description="Address in the store.")


class Interactions(Model):
    """Reviews as ratings on 1-5: the recommendation, made finer by the time played.

    The mapping is the settings' section ``games``.
    """

    user_id: pl.String = user_key(_USER)
    item_id: pl.String = item_key(_GAME)
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = rated_at()
    recommended: pl.Boolean = pa.Field(description="Whether the user recommends the game.")
    playtime: pl.Int64 = pa.Field(
        nullable=True,
        ge=0,
        description="Time played in all; null if not known.",
        metadata={"unit": "minutes"},
    )
    purchased: pl.Boolean = pa.Field(
        nullable=True, description="Whether the user's library has it; null without libraries."
    )


#: Published tables of the domain by dataset name.
GAMES: dict[str, Contract] = contracts(
    "games",
    **of_every_domain(Items, Interactions),
    training_traits=(TrainingTraits, "user_id"),
)
