"""Contracts of the raw Steam tables: as published, typed, nothing repaired."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model
from pipelines.contracts.raw import Rejected

__all__ = ["RAW_STEAM"]

_ID = "Number of the game in Steam's store."
_USER = "Steam user: an id of 17 digits, or the name in the profile's address."
_LINE = "Line of the user in the file; the first line is 1."


class SteamGames(Model):
    """Games, extensions and programs as Steam's store lists them (steam_games.json)."""

    game_id: pl.Int64 = pa.Field(ge=1, unique=True, description=_ID)
    app_name: pl.String = pa.Field(nullable=True, description="Name of the program.")
    title: pl.String = pa.Field(nullable=True, description="Title in the store.")
    url: pl.String = pa.Field(nullable=True, description="Address in the store.")
    publisher: pl.String = pa.Field(
        nullable=True, description="Publisher; several are separated by commas."
    )
    developer: pl.String = pa.Field(
        nullable=True, description="Developer; several are separated by commas."
    )
    genres: pl.List(pl.String) = pa.Field(description="Genres, as published; may be empty.")
    tags: pl.List(pl.String) = pa.Field(
        description="Tags of the players, most used first; may be empty."
    )
    specs: pl.List(pl.String) = pa.Field(
        description="Features, such as `Single-player`; may be empty."
    )
    release_date: pl.String = pa.Field(
        nullable=True, description="Release, mostly `2013-09-24`, else free text."
    )
    price: pl.String = pa.Field(
        nullable=True, description="Price in USD, or a text such as `Free To Play`."
    )
    discount_price: pl.String = pa.Field(
        nullable=True, description="Reduced price in USD, or a text."
    )
    early_access: pl.Boolean = pa.Field(
        nullable=True, description="Whether it is sold before it is finished."
    )
    sentiment: pl.String = pa.Field(
        nullable=True, description="The store's summary of the reviews, such as `Mostly Positive`."
    )
    metascore: pl.String = pa.Field(nullable=True, description="Metacritic's score, or a text.")


class SteamReviews(Model):
    """Reviews by Australian users (australian_user_reviews.json), one row each, repeats included.

    They are told apart by their place: a user may have reviewed a game more than once.
    """

    line: pl.Int64 = pa.Field(ge=1, description=_LINE)
    position: pl.Int64 = pa.Field(ge=1, description="Number of the review in the user's list.")
    user_id: pl.String = pa.Field(str_length={"min_value": 1}, description=_USER)
    game_id: pl.Int64 = pa.Field(ge=1, description=_ID)
    recommend: pl.Boolean = pa.Field(description="Whether the user recommends the game.")
    posted: pl.String = pa.Field(
        nullable=True,
        description="`Posted November 5, 2011.` or `Posted 2011-11-05.`; the year may be absent.",
    )
    last_edited: pl.String = pa.Field(nullable=True, description="The same of the last change.")
    funny: pl.String = pa.Field(nullable=True, description="How many found it funny, as a text.")
    helpful: pl.String = pa.Field(nullable=True, description="How many it helped, as a text.")
    review: pl.String = pa.Field(nullable=True, description="The text; may be empty.")


class SteamPlaytime(Model):
    """Who has which game and played it how long (australian_users_items.json); may be empty."""

    line: pl.Int64 = pa.Field(ge=1, description=_LINE)
    position: pl.Int64 = pa.Field(ge=1, description="Number of the game in the user's list.")
    user_id: pl.String = pa.Field(str_length={"min_value": 1}, description=_USER)
    game_id: pl.Int64 = pa.Field(ge=1, description=_ID)
    playtime_forever: pl.Int64 = pa.Field(
        ge=0, description="Time played in all.", metadata={"unit": "minutes"}
    )
    playtime_2weeks: pl.Int64 = pa.Field(
        nullable=True,
        ge=0,
        description="In the two weeks before the file was made.",
        metadata={"unit": "minutes"},
    )


#: Raw Steam tables by dataset name.
RAW_STEAM: dict[str, Contract] = contracts(
    "raw",
    steam_games=(SteamGames, "game_id"),
    steam_reviews=(SteamReviews, "line", "position"),
    steam_playtime=(SteamPlaytime, "line", "position"),
    # Several reviews of one line may be rejected for one reason; their texts begin with the place.
    steam_rejected=(Rejected, "file", "line", "reason", "text"),
)
