"""Contracts of the raw Steam tables: as published, typed, nothing repaired."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model, column
from pipelines.contracts.raw import Rejected

__all__ = ["RAW_STEAM"]

_ID = "Number of the game in Steam's store."
_USER = "Steam user: an id of 17 digits, or the name in the profile's address."
_LINE = "Line of the user in the file; the first line is 1."


class SteamGames(Model):
    """Games, extensions and programs as Steam's store lists them (steam_games.json)."""

    game_id: pl.Int64 = column(_ID, ge=0, unique=True)
    app_name: pl.String = column("Name of the program.", null=True)
    title: pl.String = column("Title in the store.", null=True)
    url: pl.String = column("Address in the store.", null=True)
    publisher: pl.String = column("Publisher; several are separated by commas.", null=True)
    developer: pl.String = column("Developer; several are separated by commas.", null=True)
    genres: pl.List(pl.String) = column("Genres, as published; may be empty.")
    tags: pl.List(pl.String) = column("Tags of the players, most used first; may be empty.")
    specs: pl.List(pl.String) = column("Features, such as `Single-player`; may be empty.")
    release_date: pl.String = column("Release, mostly `2013-09-24`, else free text.", null=True)
    price: pl.String = column("Price in USD, or a text such as `Free To Play`.", null=True)
    discount_price: pl.String = column("Reduced price in USD, or a text.", null=True)
    early_access: pl.Boolean = column("Whether it is sold before it is finished.", null=True)
    sentiment: pl.String = column(
        "The store's summary of the reviews, such as `Mostly Positive`.", null=True
    )
    metascore: pl.String = column("Metacritic's score, or a text.", null=True)


class SteamReviews(Model):
    """Reviews by Australian users (australian_user_reviews.json), one row each, repeats included.

    Their place distinguishes them: a user may have reviewed a game more than once.
    """

    line: pl.Int64 = column(_LINE, ge=1)
    position: pl.Int64 = column("Number of the review in the user's list.", ge=1)
    user_id: pl.String = column(_USER, str_length={"min_value": 1})
    game_id: pl.Int64 = column(_ID, ge=0)
    recommend: pl.Boolean = column("Whether the user recommends the game.")
    posted: pl.String = column(
        "`Posted November 5, 2011.` or `Posted 2011-11-05.`; the year may be absent.", null=True
    )
    last_edited: pl.String = column("Date of the last edit, in the same form.", null=True)
    funny: pl.String = column("Number of users who found it funny, as text.", null=True)
    helpful: pl.String = column("Number of users who found it helpful, as text.", null=True)
    review: pl.String = column("The text; may be empty.", null=True)


class SteamPlaytime(Model):
    """Playtime by user and game (australian_users_items.json); may be empty."""

    line: pl.Int64 = column(_LINE, ge=1)
    position: pl.Int64 = column("Number of the game in the user's list.", ge=1)
    user_id: pl.String = column(_USER, str_length={"min_value": 1})
    game_id: pl.Int64 = column(_ID, ge=0)
    playtime_forever: pl.Int64 = column("Total time played.", ge=0, unit="minutes")
    playtime_2weeks: pl.Int64 = column(
        "Time played in the two weeks before the file was made.", null=True, ge=0, unit="minutes"
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
