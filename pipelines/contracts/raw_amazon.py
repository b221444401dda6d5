"""Contracts of the raw Amazon tables: both editions as published, typed, nothing repaired."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model, column
from pipelines.contracts.raw import Rejected

__all__ = ["RAW_AMAZON"]

_CATEGORY = "Category, as in the file's name, such as `Books`."
_FILE = "File, relative to the data folder."
_LINE = "Line in it; the first line is 1."
_ASIN = "Product's ASIN (for most books the ISBN-10)."
_JSON = "as JSON text, as published."


class AmazonReviews2018(Model):
    """Reviews of the 2018 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    reviewer_id: pl.String = column("Reviewer's id.")
    asin: pl.String = column(_ASIN)
    overall: pl.Float64 = column("Rating.", ge=1, le=5, unit="stars", within="1-5, whole")
    unix_review_time: pl.Int64 = column(
        "Time of the review, to the day.", ge=1, unit="seconds since 1970, UTC"
    )
    verified: pl.Boolean = column("Whether the purchase is verified.", null=True)
    vote: pl.String = column(f"Helpful votes, {_JSON}", null=True)
    summary: pl.String = column("The review's heading.", null=True)
    review_text: pl.String = column("The review.", null=True)
    style: pl.String = column(f"Variant bought, such as the binding, {_JSON}", null=True)


class AmazonMeta2018(Model):
    """Products of the 2018 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    asin: pl.String = column(_ASIN)
    title: pl.String = column("Title; for many products a piece of a web page instead.", null=True)
    brand: pl.String = column("Brand; for a book, its author.", null=True)
    main_cat: pl.String = column("Department.", null=True)
    category_path: pl.List(pl.String) = column(
        "Categories from the top down (the record's `category`); may be empty."
    )
    description: pl.List(pl.String) = column("Paragraphs; may be empty.")
    feature: pl.List(pl.String) = column("Selling points; may be empty.")
    also_buy: pl.List(pl.String) = column("ASINs that its buyers also bought; may be empty.")
    also_view: pl.List(pl.String) = column("ASINs that its viewers also viewed; may be empty.")
    price: pl.String = column(f"Price, {_JSON}", null=True)
    date: pl.String = column(f"First listed, {_JSON}", null=True)
    rank: pl.String = column(f"Sales rank, {_JSON}", null=True)
    details: pl.String = column(f"Table of details, such as the publisher, {_JSON}", null=True)


class AmazonReviews2023(Model):
    """Reviews of the 2023 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    user_id: pl.String = column("Reviewer's id; not that of the 2018 edition.")
    parent_asin: pl.String = column("ASIN that all variants of a product share.")
    asin: pl.String = column("ASIN of the variant.", null=True)
    rating: pl.Float64 = column("Rating.", ge=1, le=5, unit="stars", within="1-5, whole")
    timestamp: pl.Int64 = column("Time of the review.", ge=1, unit="milliseconds since 1970, UTC")
    verified_purchase: pl.Boolean = column("Whether the purchase is verified.", null=True)
    helpful_vote: pl.Int64 = column("Helpful votes (count).", null=True)
    title: pl.String = column("The review's heading.", null=True)
    text: pl.String = column("The review.", null=True)


class AmazonMeta2023(Model):
    """Products of the 2023 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    parent_asin: pl.String = column("ASIN that all variants of a product share.")
    main_category: pl.String = column("Department.", null=True)
    title: pl.String = column("Title.", null=True)
    subtitle: pl.String = column("Binding and date of a book.", null=True)
    store: pl.String = column("Store; for a book, its author.", null=True)
    author: pl.String = column(f"Author of a book, {_JSON}", null=True)
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed.", null=True, unit="stars", within="1-5, whole"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (count).", null=True)
    price: pl.String = column(f"Price in USD, {_JSON}", null=True)
    categories: pl.List(pl.String) = column("Categories from the top down; may be empty.")
    description: pl.List(pl.String) = column("Paragraphs; may be empty.")
    features: pl.List(pl.String) = column("Selling points; may be empty.")
    bought_together: pl.String = column(f"Products bought together with it, {_JSON}", null=True)
    details: pl.String = column(f"Table of details, such as the publisher, {_JSON}", null=True)


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
