"""Contracts of the games domain: Steam's games, and reviews as ratings."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import (
    TIME,
    Model,
    TrainingTraits,
    column,
    item_key,
    of_every_domain,
    rated_at,
    rating,
    scale,
    user_key,
)

__all__ = ["GAMES"]

_GAME = "steam:(?:0|[1-9][0-9]*)"
_USER = r"steam-user:[^\s/]+"


class Items(Model):
    """Games, extensions and programs of Steam's store; missing features are null."""

    item_id: pl.String = item_key(_GAME)
    title: pl.String = column("Title.", str_length={"min_value": 1})
    year: pl.Int64 = column("Year of release.", null=True, ge=1970, le=2100, unit="year")
    genres: pl.List(pl.String) = column("Steam genres, alphabetical; may be empty.")
    tags: pl.List(pl.String) = column("Tags given by players, most used first; may be empty.")
    specs: pl.List(pl.String) = column("Features, such as `Single-player`; may be empty.")
    developer: pl.String = column("Developer; several are separated by commas.", null=True)
    publisher: pl.String = column("Publisher; several are separated by commas.", null=True)
    price: pl.Float64 = column("Price; 0 is free.", null=True, ge=0, unit="USD")
    release_date: pl.Date = column("Release date, if the day is known.", null=True)
    early_access: pl.Boolean = column("Whether it is in early access.", null=True)
    sentiment: pl.String = column(
        "The store's summary of its reviews, such as `Mostly Positive`.", null=True
    )
    metascore: pl.Int64 = column("Metacritic's score.", null=True, ge=0, le=100, within="0-100")
    url: pl.String = column("Address in the store.", null=True)


class Interactions(Model):
    """Reviews as ratings on 1-5: the recommendation, refined by the time played.

    The mapping is the settings' section ``games``.
    """

    user_id: pl.String = user_key(_USER)
    item_id: pl.String = item_key(_GAME)
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = rated_at()
    recommended: pl.Boolean = column("Whether the user recommends the game.")
    playtime: pl.Int64 = column(
        "Total time played; null if unknown.", null=True, ge=0, unit="minutes"
    )
    purchased: pl.Boolean = column(
        "Whether the game is in the user's library; null without libraries.", null=True
    )


#: Published tables of the domain by dataset name.
GAMES: dict[str, Contract] = contracts(
    "games", **of_every_domain(Items, Interactions), training_traits=(TrainingTraits, "user_id")
)
