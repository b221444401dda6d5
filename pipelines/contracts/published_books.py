"""Contracts of the domain of books: what a release of them may contain."""

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

__all__ = ["BOOKS"]

_ASIN = "asin:[0-9A-Z]{10}"


class Items(Model):
    """Books as SUBER takes them (appendix B); what the source lacks is null or empty."""

    item_id: pl.String = item_key(_ASIN)
    title: pl.String = pa.Field(str_length={"min_value": 1}, description="Title.")
    year: pl.Int64 = pa.Field(
        nullable=True,
        ge=1400,
        le=2100,
        description="Year of publication.",
        metadata={"unit": "year"},
    )
    genres: pl.List(pl.String) = pa.Field(
        description="Categories with at least `books.min_category_size` books, alphabetical; "
        "empty only where the source has no categories."
    )
    description: pl.String = pa.Field(
        nullable=True, description="Back cover; null only where the source has none at all."
    )
    authors: pl.List(pl.String) = pa.Field(description="Authors; may be empty.")
    publisher: pl.String = pa.Field(nullable=True, description="Publishing house.")
    release_date: pl.Date = pa.Field(nullable=True, description="Day of publication.")
    price: pl.Float64 = pa.Field(
        nullable=True, ge=0, description="Price when crawled.", metadata={"unit": "USD"}
    )
    average_rating: pl.Float64 = pa.Field(
        nullable=True,
        ge=1,
        le=5,
        description="Mean rating that the page showed (2023).",
        metadata={"unit": "stars"},
    )
    rating_number: pl.Int64 = pa.Field(
        nullable=True, ge=0, description="Ratings that the page showed (2023; count)."
    )
    category: pl.String = pa.Field(description="Category by file name: `Books`, `Kindle_Store`.")
    edition: pl.String = pa.Field(
        isin=["2018", "2023"], description="Edition that the record is from."
    )
    category_path: pl.List(pl.String) = pa.Field(
        description="Categories from the top down, as the record lists them; may be empty."
    )
    also_bought: pl.List(pl.String) = pa.Field(
        description="Items that buyers bought too (2018); may be empty."
    )
    also_viewed: pl.List(pl.String) = pa.Field(
        description="Items that viewers viewed too (2018); may be empty."
    )
    bought_together: pl.List(pl.String) = pa.Field(
        description="Items that are bought together with it (2023); may be empty."
    )


class Interactions(Model):
    """Human ratings of books, on 1-5."""

    user_id: pl.String = user_key("amazon-user:[0-9A-Za-z_#-]+")
    item_id: pl.String = item_key(_ASIN)
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = rated_at()
    verified_purchase: pl.Boolean = pa.Field(
        nullable=True, description="Whether Amazon saw the purchase."
    )


#: Published tables of the domain by dataset name.
BOOKS: dict[str, Contract] = contracts(
    "books",
    **of_every_domain(Items, Interactions),
    training_traits=(TrainingTraits, "user_id"),
)
