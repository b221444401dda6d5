"""A way to break every expectation of a domain whose items are sold."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
from support.bad_tables import BAD, Change
from support.bad_tables import _set as set_column

__all__ = ["bad_domain"]


def _even(frame: pl.DataFrame) -> pl.DataFrame:
    items = frame["item_id"].unique().sort()
    return frame.with_columns(item_id=items.gather(pl.Series(range(frame.height)) % len(items)))


def _asin(first: str) -> pl.Expr:
    """Keys of items that are in no good table."""
    return pl.format(f"asin:{first}{{}}", pl.int_range(pl.len()).cast(pl.String).str.zfill(9))


def _one_busy_user(frame: pl.DataFrame) -> pl.DataFrame:
    more = frame.head(500).with_columns(user_id=pl.col("user_id").min(), item_id=_asin("C"))
    return pl.concat([frame, more.select(frame.columns)])


def _many(change: Change) -> Change:
    """The change of a table that is repeated with other keys: a thousand rows and more."""

    def apply(frame: pl.DataFrame) -> pl.DataFrame:
        return change(
            pl.concat([frame] * (1000 // frame.height + 1)).with_columns(item_id=_asin("C"))
        )

    return apply


def bad_domain(domain: str) -> dict[str, dict[str, list[Change]]]:
    """Changes by dataset and check of the tables whose suites are not those of the movies."""
    tables: dict[str, dict[str, list[Change]]] = {
        "items": {
            "prose_coverage": [set_column("description", None, 0.7)],
            "genre_coverage": [set_column("genres", [], 0.7)],
            "genre_share": [_many(set_column("genres", ["Drama"], 0.99))],
            "genre_variety": [_many(set_column("genres", ["Drama"]))],
            "year_median": [lambda f: f.with_columns(pl.col("year") - 80)],
            "titles_distinct": [
                lambda f: set_column("year", 1999, 0.2)(set_column("title", "Untitled", 0.2)(f))
            ],
        },
        "interactions": {
            "row_count": [lambda f: f.head(99), lambda f: f.head(0)],
            "user_count": [lambda f: f.head(100)],
            "item_count": [
                lambda f: f.filter(
                    pl.col("item_id").is_in(f["item_id"].unique().sort().head(8).implode())
                )
            ],
            "rating_mean": [
                lambda f: f.with_columns(rating=pl.lit(5.0)),
                lambda f: f.with_columns(rating=pl.lit(1.0)),
                lambda f: f.head(0),
            ],
            "rating_concentration": [set_column("rating", 4.0, 0.98)],
            "rating_variety": [set_column("rating", 4.0)],
            "popularity_long_tail": [_even],
            "user_share": [_one_busy_user],
            "rated_from": [lambda f: f.with_columns(pl.col("rated_at") - timedelta(days=365 * 30))],
            "rated_to": [lambda f: f.with_columns(pl.col("rated_at") + timedelta(days=365 * 60))],
        },
        "item_stats": {
            "rated_share": [set_column("ratings", 0)],
            "train_share": BAD["movies.item_stats"]["train_share"],
        },
        "user_traits": BAD["movies.user_traits"],
        "training_traits": BAD["movies.training_traits"],
        "matched_personas": BAD["movies.matched_personas"],
        "persona_candidates": BAD["movies.persona_candidates"],
    }
    return {f"{domain}.{table}": checks for table, checks in tables.items()}
