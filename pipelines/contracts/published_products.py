"""Contracts of the product domain: Amazon's catalogue and ratings, and BIEL's choice sets."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts import published_books as books
from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import (
    ITEM,
    Model,
    item_key,
    of_every_domain,
)

__all__ = ["PRODUCTS"]

_ASIN = "asin:[0-9A-Z]{10}"
_CATEGORY = "Category of the tree: `category:` and its path."


class Items(Model):
    """Products of Amazon's categories that are no domain of their own; unknown fields are null."""

    item_id: pl.String = item_key(_ASIN)
    title: pl.String = pa.Field(
        nullable=True, str_length={"min_value": 1}, description="Title; null if it was mark-up."
    )
    year: pl.Int64 = pa.Field(
        nullable=True,
        ge=1400,
        le=2100,
        description="Year of publication; null for most products.",
        metadata={"unit": "year"},
    )
    genres: pl.List(pl.String) = pa.Field(
        description="Levels of `category_path` after the first; without them the department. "
        "Alphabetical; may be empty."
    )
    brand: pl.String = pa.Field(nullable=True, description="Brand (2018) or store (2023).")
    description: pl.String = pa.Field(nullable=True, description="Description, as plain text.")
    features: pl.List(pl.String) = pa.Field(description="Selling points; may be empty.")
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
    category: pl.String = pa.Field(description="Category by file name, such as `Gift_Cards`.")
    edition: pl.String = pa.Field(
        isin=["2018", "2023"], description="Edition that the record is from."
    )
    main_category: pl.String = pa.Field(
        nullable=True, description="Department, as the record says it."
    )
    category_path: pl.List(pl.String) = pa.Field(
        description="Categories from the top down, as the record lists them, up to the first "
        "entry that is no name; may be empty."
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


class Interactions(books.Interactions):
    """Human ratings of products, on 1-5."""


class Products(Model):
    """Products that are in a choice set (BIEL, appendix C), each at its place in the tree."""

    item_id: pl.String = item_key(_ASIN, unique=True)
    title: pl.String = pa.Field(nullable=True, description="Title.")
    brand: pl.String = pa.Field(nullable=True, description="Brand or store.")
    description: pl.String = pa.Field(nullable=True, description="Description.")
    features: pl.List(pl.String) = pa.Field(description="Selling points; may be empty.")
    price: pl.Float64 = pa.Field(
        nullable=True, ge=0, description="Price.", metadata={"unit": "USD"}
    )
    average_rating: pl.Float64 = pa.Field(
        nullable=True,
        ge=1,
        le=5,
        description="Mean rating that the page showed.",
        metadata={"unit": "stars"},
    )
    rating_number: pl.Int64 = pa.Field(
        nullable=True, ge=0, description="Ratings that the page showed (count)."
    )
    category: pl.String = pa.Field(description="Amazon's category by file name.")
    path: pl.List(pl.String) = pa.Field(description="The levels that were matched to the tree.")
    path_from: pl.String = pa.Field(
        isin=["categories", "main_category", "file"],
        description="Where they are from: the record's categories; if it has none, its "
        "department or the file's name.",
    )
    category_id: pl.String = pa.Field(description="Its leaf: the deepest choice set it is in.")
    heuristic: pl.String = pa.Field(
        isin=["equal", "folded", "words", "substring"],
        description="The weakest heuristic that a level of its path needed.",
    )
    bridged: pl.Int64 = pa.Field(
        ge=0, description="Levels of the tree that its path leaves out (count)."
    )
    similarity: pl.Float64 = pa.Field(
        ge=0,
        le=1,
        description="Least similarity of a level to its category's name; 6 decimals.",
        metadata={"range": "0-1"},
    )


class Categories(Model):
    """The choice sets: what is left of the tree after its top levels and small categories."""

    category_id: pl.String = pa.Field(
        unique=True, str_matches="^category:.+$", description=_CATEGORY
    )
    name: pl.String = pa.Field(str_length={"min_value": 1}, description="Name of its last level.")
    path: pl.String = pa.Field(description="Names from the top level down, ` > ` between them.")
    depth: pl.Int64 = pa.Field(ge=1, description="Level in the tree; 1 is the top.")
    parent_id: pl.String = pa.Field(
        nullable=True, description="The category above, if that is a choice set too."
    )
    products: pl.Int64 = pa.Field(ge=1, description="Products in it or below it (count).")
    leaf_products: pl.Int64 = pa.Field(
        ge=0, description="Products of which it is the leaf (count)."
    )


class ProductCategory(Model):
    """Which product is in which choice set: one row for each category on its path."""

    item_id: pl.String = pa.Field(description=ITEM)
    category_id: pl.String = pa.Field(description=_CATEGORY)
    is_leaf: pl.Boolean = pa.Field(description="Whether it is the product's leaf: one of them is.")


#: Published tables of the product domain by dataset name.
PRODUCTS: dict[str, Contract] = contracts(
    "products",
    **of_every_domain(Items, Interactions),
    products=(Products, "item_id"),
    categories=(Categories, "category_id"),
    product_category=(ProductCategory, "item_id", "category_id"),
)
