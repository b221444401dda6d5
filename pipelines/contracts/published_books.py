"""Contracts of the domain of books: what a release of them may contain."""

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

__all__ = ["BOOKS"]

_ASIN = "asin:[0-9A-Z]{10}"


class Items(Model):
    """Books as selected by SUBER (appendix B); missing features are null or empty."""

    item_id: pl.String = item_key(_ASIN)
    title: pl.String = column("Title.", str_length={"min_value": 1})
    year: pl.Int64 = column("Year of publication.", null=True, ge=1400, le=2100, unit="year")
    genres: pl.List(pl.String) = column(
        "Categories with at least `books.min_category_size` books, alphabetical; "
        "empty only where the source has no categories."
    )
    description: pl.String = column("Back-cover text; null only if the source has none.", null=True)
    authors: pl.List(pl.String) = column("Authors; may be empty.")
    publisher: pl.String = column("Publishing house.", null=True)
    release_date: pl.Date = column("Day of publication.", null=True)
    price: pl.Float64 = column("Price when crawled.", null=True, ge=0, unit="USD")
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed (2023).", null=True, ge=1, le=5, unit="stars"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (2023; count).", null=True, ge=0)
    category: pl.String = column("Category by file name: `Books`, `Kindle_Store`.")
    edition: pl.String = column("Edition that the record is from.", isin=["2018", "2023"])
    category_path: pl.List(pl.String) = column(
        "Categories from the top down, as the record lists them; may be empty."
    )
    also_bought: pl.List(pl.String) = column(
        "Items that its buyers also bought (2018); may be empty."
    )
    also_viewed: pl.List(pl.String) = column(
        "Items that its viewers also viewed (2018); may be empty."
    )
    bought_together: pl.List(pl.String) = column(
        "Items bought together with it (2023); may be empty."
    )


class Interactions(Model):
    """Human ratings of books, on 1-5."""

    user_id: pl.String = user_key("amazon-user:[0-9A-Za-z_#-]+")
    item_id: pl.String = item_key(_ASIN)
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = rated_at()
    verified_purchase: pl.Boolean = column("Whether Amazon verified the purchase.", null=True)


#: Published tables of the domain by dataset name.
BOOKS: dict[str, Contract] = contracts(
    "books", **of_every_domain(Items, Interactions), training_traits=(TrainingTraits, "user_id")
)
