"""What is taken of each kind of record, and when a row of it is rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.sources._json_lines import JsonField
from pipelines.sources.amazon._layout import Edition, Kind

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TABLES", "Table"]

#: 2100-01-01; a later time is in another unit, or nonsense.
_LAST_SECOND = 4_102_444_800
_ASIN = "^[0-9A-Z]{10}$"
#: Some reviewers of 2018 are called `#oc-R…`, some of 2023 have `_1` at the end.
_USER = "^[0-9A-Za-z_#-]{1,64}$"


@dataclass(frozen=True, slots=True)
class Table:
    """One raw table.

    Attributes
    ----------
    dataset
        Its name in the store.
    fields
        What is taken of each record.
    faults
        The reason why a typed row is rejected all the same, or null.
    """

    dataset: str
    fields: tuple[JsonField, ...]
    faults: Callable[[], pl.Expr]


def _id(key: str, name: str) -> JsonField:
    return JsonField(key, name, "text", "bad_id", required=True)


def _rating(key: str, name: str) -> JsonField:
    return JsonField(key, name, "number", "bad_rating", required=True)


def _time(key: str, name: str) -> JsonField:
    return JsonField(key, name, "integer", "bad_timestamp", required=True)


def _reviews(user: str, item: str, rating: str, time: str, unit: int) -> Callable[[], pl.Expr]:
    """Faults of reviews whose times count ``unit`` to a second."""

    def faults() -> pl.Expr:
        import polars as pl

        stars = pl.col(rating)
        return _first(
            ("bad_id", ~(pl.col(user).str.contains(_USER) & pl.col(item).str.contains(_ASIN))),
            ("off_scale", ~stars.is_between(1, 5) | (stars != stars.round())),
            ("bad_timestamp", ~pl.col(time).is_between(1, _LAST_SECOND * unit)),
        )

    return faults


def _meta(item: str) -> Callable[[], pl.Expr]:
    def faults() -> pl.Expr:
        import polars as pl

        return _first(("bad_id", ~pl.col(item).str.contains(_ASIN)))

    return faults


def _first(*faults: tuple[str, pl.Expr]) -> pl.Expr:
    """Build the reason of the first condition that holds, or null."""
    import polars as pl

    none = pl.lit(None, dtype=pl.String)
    return pl.coalesce(
        *(pl.when(is_fault).then(pl.lit(reason)).otherwise(none) for reason, is_fault in faults)
    )


#: In the order in which they are read.
TABLES: Mapping[tuple[Edition, Kind], Table] = {
    ("2018", "reviews"): Table(
        "raw.amazon_reviews_2018",
        (
            _id("reviewerID", "reviewer_id"),
            _id("asin", "asin"),
            _rating("overall", "overall"),
            _time("unixReviewTime", "unix_review_time"),
            JsonField("verified", "verified", "boolean"),
            JsonField("vote", "vote", "json"),
            JsonField("summary", "summary"),
            JsonField("reviewText", "review_text"),
            JsonField("style", "style", "json"),
        ),
        _reviews("reviewer_id", "asin", "overall", "unix_review_time", 1),
    ),
    ("2018", "meta"): Table(
        "raw.amazon_meta_2018",
        (
            _id("asin", "asin"),
            JsonField("title", "title"),
            JsonField("brand", "brand"),
            JsonField("main_cat", "main_cat"),
            JsonField("category", "category_path", "texts"),
            JsonField("description", "description", "texts"),
            JsonField("feature", "feature", "texts"),
            JsonField("also_buy", "also_buy", "texts"),
            JsonField("also_view", "also_view", "texts"),
            JsonField("price", "price", "json"),
            JsonField("date", "date", "json"),
            JsonField("rank", "rank", "json"),
            JsonField("details", "details", "json"),
        ),
        _meta("asin"),
    ),
    ("2023", "reviews"): Table(
        "raw.amazon_reviews_2023",
        (
            _id("user_id", "user_id"),
            _id("parent_asin", "parent_asin"),
            JsonField("asin", "asin"),
            _rating("rating", "rating"),
            _time("timestamp", "timestamp"),
            JsonField("verified_purchase", "verified_purchase", "boolean"),
            JsonField("helpful_vote", "helpful_vote", "integer"),
            JsonField("title", "title"),
            JsonField("text", "text"),
        ),
        _reviews("user_id", "parent_asin", "rating", "timestamp", 1000),
    ),
    ("2023", "meta"): Table(
        "raw.amazon_meta_2023",
        (
            _id("parent_asin", "parent_asin"),
            JsonField("main_category", "main_category"),
            JsonField("title", "title"),
            JsonField("subtitle", "subtitle"),
            JsonField("store", "store"),
            JsonField("author", "author", "json"),
            JsonField("average_rating", "average_rating", "number"),
            JsonField("rating_number", "rating_number", "integer"),
            JsonField("price", "price", "json"),
            JsonField("categories", "categories", "texts"),
            JsonField("description", "description", "texts"),
            JsonField("features", "features", "texts"),
            JsonField("bought_together", "bought_together", "json"),
            JsonField("details", "details", "json"),
        ),
        _meta("parent_asin"),
    ),
}
