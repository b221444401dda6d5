"""Contracts of the raw Amazon tables: both editions as published, typed, nothing repaired."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model
from pipelines.contracts.raw import Rejected

__all__ = ["RAW_AMAZON"]

_CATEGORY = "Category as the file's name has it, such as `Books`."
_FILE = "File, relative to the data folder."
_LINE = "Line in it; the first line is 1."
_ASIN = "Product's ASIN (for most books the ISBN-10)."
_JSON = "as JSON text, as published."
_STARS = {"unit": "stars", "range": "1-5, whole"}


class AmazonReviews2018(Model):
    """Reviews of the 2018 edition as published, repeated ones included."""

    category: pl.String = pa.Field(description=_CATEGORY)
    file: pl.String = pa.Field(description=_FILE)
    line: pl.Int64 = pa.Field(ge=1, description=_LINE)
    reviewer_id: pl.String = pa.Field(description="Reviewer's id.")
    asin: pl.String = pa.Field(description=_ASIN)
    overall: pl.Float64 = pa.Field(ge=1, le=5, description="Rating.", metadata=_STARS)
    unix_review_time: pl.Int64 = pa.Field(
        ge=1, description="When; days, in fact.", metadata={"unit": "seconds since 1970, UTC"}
    )
    verified: pl.Boolean = pa.Field(nullable=True, description="Whether the purchase is verified.")
    vote: pl.String = pa.Field(nullable=True, description=f"Votes that it helped, {_JSON}")
    summary: pl.String = pa.Field(nullable=True, description="The review's heading.")
    review_text: pl.String = pa.Field(nullable=True, description="The review.")
    style: pl.String = pa.Field(
        nullable=True, description=f"Variant that was bought, such as the binding, {_JSON}"
    )


class AmazonMeta2018(Model):
    """Products of the 2018 edition as published, repeated ones included."""

    category: pl.String = pa.Field(description=_CATEGORY)
    file: pl.String = pa.Field(description=_FILE)
    line: pl.Int64 = pa.Field(ge=1, description=_LINE)
    asin: pl.String = pa.Field(description=_ASIN)
    title: pl.String = pa.Field(
        nullable=True, description="Title; for many products a piece of a web page instead."
    )
    brand: pl.String = pa.Field(nullable=True, description="Brand; of a book, its author.")
    main_cat: pl.String = pa.Field(nullable=True, description="Department.")
    category_path: pl.List(pl.String) = pa.Field(
        description="Categories from the top down (the record's `category`); may be empty."
    )
    description: pl.List(pl.String) = pa.Field(description="Paragraphs; may be empty.")
    feature: pl.List(pl.String) = pa.Field(description="Selling points; may be empty.")
    also_buy: pl.List(pl.String) = pa.Field(
        description="ASINs that its buyers bought too; may be empty."
    )
    also_view: pl.List(pl.String) = pa.Field(
        description="ASINs that its viewers viewed too; may be empty."
    )
    price: pl.String = pa.Field(nullable=True, description=f"Price, {_JSON}")
    date: pl.String = pa.Field(nullable=True, description=f"First listed, {_JSON}")
    rank: pl.String = pa.Field(nullable=True, description=f"Sales rank, {_JSON}")
    details: pl.String = pa.Field(
        nullable=True, description=f"Table of details, such as the publisher, {_JSON}"
    )


class AmazonReviews2023(Model):
    """Reviews of the 2023 edition as published, repeated ones included."""

    category: pl.String = pa.Field(description=_CATEGORY)
    file: pl.String = pa.Field(description=_FILE)
    line: pl.Int64 = pa.Field(ge=1, description=_LINE)
    user_id: pl.String = pa.Field(description="Reviewer's id; not that of the 2018 edition.")
    parent_asin: pl.String = pa.Field(description="ASIN that all variants of a product share.")
    asin: pl.String = pa.Field(nullable=True, description="ASIN of the variant.")
    rating: pl.Float64 = pa.Field(ge=1, le=5, description="Rating.", metadata=_STARS)
    timestamp: pl.Int64 = pa.Field(
        ge=1, description="When.", metadata={"unit": "milliseconds since 1970, UTC"}
    )
    verified_purchase: pl.Boolean = pa.Field(
        nullable=True, description="Whether the purchase is verified."
    )
    helpful_vote: pl.Int64 = pa.Field(nullable=True, description="Votes that it helped (count).")
    title: pl.String = pa.Field(nullable=True, description="The review's heading.")
    text: pl.String = pa.Field(nullable=True, description="The review.")


class AmazonMeta2023(Model):
    """Products of the 2023 edition as published, repeated ones included."""

    category: pl.String = pa.Field(description=_CATEGORY)
    file: pl.String = pa.Field(description=_FILE)
    line: pl.Int64 = pa.Field(ge=1, description=_LINE)
    parent_asin: pl.String = pa.Field(description="ASIN that all variants of a product share.")
    main_category: pl.String = pa.Field(nullable=True, description="Department.")
    title: pl.String = pa.Field(nullable=True, description="Title.")
    subtitle: pl.String = pa.Field(nullable=True, description="Of a book, binding and date.")
    store: pl.String = pa.Field(nullable=True, description="Store; of a book, who wrote it.")
    author: pl.String = pa.Field(nullable=True, description=f"Author of a book, {_JSON}")
    average_rating: pl.Float64 = pa.Field(
        nullable=True, description="Mean rating that the page showed.", metadata=_STARS
    )
    rating_number: pl.Int64 = pa.Field(
        nullable=True, description="Ratings that the page showed (count)."
    )
    price: pl.String = pa.Field(nullable=True, description=f"Price in USD, {_JSON}")
    categories: pl.List(pl.String) = pa.Field(
        description="Categories from the top down; may be empty."
    )
    description: pl.List(pl.String) = pa.Field(description="Paragraphs; may be empty.")
    features: pl.List(pl.String) = pa.Field(description="Selling points; may be empty.")
    bought_together: pl.String = pa.Field(
        nullable=True, description=f"Products bought together with it, {_JSON}"
    )
    details: pl.String = pa.Field(
        nullable=True, description=f"Table of details, such as the publisher, {_JSON}"
    )


#: Raw Amazon tables by dataset name.
RAW_AMAZON: dict[str, Contract] = contracts(
    "raw",
    # By place: the same record may be in a file more than once.
    amazon_reviews_2018=(AmazonReviews2018, "file", "line"),
    amazon_meta_2018=(AmazonMeta2018, "file", "line"),
    amazon_reviews_2023=(AmazonReviews2023, "file", "line"),
    amazon_meta_2023=(AmazonMeta2023, "file", "line"),
    amazon_rejected=(Rejected, "file", "line", "reason"),
)
