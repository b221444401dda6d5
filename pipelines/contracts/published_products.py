"""Contracts of the product domain: Amazon's catalogue and ratings, and BIEL's choice sets."""

from __future__ import annotations

import polars as pl

from pipelines.contracts import published_books as books
from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import ITEM, Model, column, item_key, of_every_domain

__all__ = ["PRODUCTS"]

_ASIN = "asin:[0-9A-Z]{10}"
_CATEGORY = "Category of the tree: `category:` and its path."


class Items(Model):
    """Products of Amazon's categories that are no domain of their own; unknown fields are null."""

    item_id: pl.String = item_key(_ASIN)
    title: pl.String = column(
        "Title; null if it was mark-up.", null=True, str_length={"min_value": 1}
    )
    year: pl.Int64 = column(
        "Year of publication; null for most products.", null=True, ge=1400, le=2100, unit="year"
    )
    genres: pl.List(pl.String) = column(
        "Levels of `category_path` after the first; without them the department. "
        "Alphabetical; may be empty."
    )
    brand: pl.String = column("Brand (2018) or store (2023).", null=True)
    description: pl.String = column("Description, as plain text.", null=True)
    features: pl.List(pl.String) = column("Selling points; may be empty.")
    price: pl.Float64 = column("Price when crawled.", null=True, ge=0, unit="USD")
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed (2023).", null=True, ge=1, le=5, unit="stars"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (2023; count).", null=True, ge=0)
    category: pl.String = column("Category by file name, such as `Gift_Cards`.")
    edition: pl.String = column("Edition that the record is from.", isin=["2018", "2023"])
    main_category: pl.String = column("Department, as the record says it.", null=True)
    category_path: pl.List(pl.String) = column(
        "Categories from the top down, as the record lists them, up to the first "
        "entry that is no name; may be empty."
    )
    also_bought: pl.List(pl.String) = column("Items that buyers bought too (2018); may be empty.")
    also_viewed: pl.List(pl.String) = column("Items that viewers viewed too (2018); may be empty.")
    bought_together: pl.List(pl.String) = column(
        "Items that are bought together with it (2023); may be empty."
    )


class Interactions(books.Interactions):
    """Human ratings of products, on 1-5."""


class Products(Model):
    """Products that are in a choice set (BIEL, appendix C), each at its place in the tree."""

    item_id: pl.String = item_key(_ASIN, unique=True)
    title: pl.String = column("Title.", null=True)
    brand: pl.String = column("Brand or store.", null=True)
    description: pl.String = column("Description.", null=True)
    features: pl.List(pl.String) = column("Selling points; may be empty.")
    price: pl.Float64 = column("Price.", null=True, ge=0, unit="USD")
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed.", null=True, ge=1, le=5, unit="stars"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (count).", null=True, ge=0)
    category: pl.String = column("Amazon's category by file name.")
    path: pl.List(pl.String) = column("The levels that were matched to the tree.")
    path_from: pl.String = column(
        "Source of the path: the record's categories; if it has none, its "
        "department or the file's name.",
        isin=["categories", "main_category", "file"],
    )
    category_id: pl.String = column("Its leaf: the deepest choice set it is in.")
    heuristic: pl.String = column(
        "The weakest heuristic that a level of its path needed.",
        isin=["equal", "folded", "words", "substring"],
    )
    bridged: pl.Int64 = column("Levels of the tree that its path leaves out (count).", ge=0)
    similarity: pl.Float64 = column(
        "Least similarity of a level to its category's name; 6 decimals.", ge=0, le=1, within="0-1"
    )


class Categories(Model):
    """The choice sets: what is left of the tree after its top levels and small categories."""

    category_id: pl.String = column(_CATEGORY, unique=True, str_matches="^category:.+$")
    name: pl.String = column("Name of its last level.", str_length={"min_value": 1})
    path: pl.String = column("Names from the top level down, ` > ` between them.")
    depth: pl.Int64 = column("Level in the tree; 1 is the top.", ge=1)
    parent_id: pl.String = column("The category above, if that is a choice set too.", null=True)
    products: pl.Int64 = column("Products in it or below it (count).", ge=1)
    leaf_products: pl.Int64 = column("Products of which it is the leaf (count).", ge=0)


class ProductCategory(Model):
    """Choice sets of each product: one row for each category on its path."""

    item_id: pl.String = column(ITEM)
    category_id: pl.String = column(_CATEGORY)
    is_leaf: pl.Boolean = column("Whether it is the product's leaf: one of them is.")


class ChoiceSetItems(Model):
    """Products of each choice set that every shopper is shown: all of them, or a seeded draw."""

    category_id: pl.String = column(_CATEGORY)
    item_id: pl.String = column(ITEM)
    position: pl.Int64 = column("Place in the draw, from 0.", ge=0)
    split: pl.String = column(
        "Part of the choice set: one for all sets below the same topmost set, so "
        "that no product is in both.",
        isin=["train", "test"],
    )


class Facets(Model):
    """Properties of a choice set's products that a shopper can be asked about, value by product."""

    category_id: pl.String = column(_CATEGORY)
    facet_id: pl.String = column(
        "`price`, `brand`, a packaged vocabulary such as `material`, or `word:` and a word.",
        str_length={"min_value": 1},
    )
    kind: pl.String = column("Origin of its values.", isin=["price", "brand", "vocabulary", "word"])
    question: pl.String = column("The question that asks for it.", str_length={"min_value": 1})
    value: pl.String = column(
        "The product's value; a product without one has no row.", str_length={"min_value": 1}
    )
    item_id: pl.String = column(ITEM)


#: Published tables of the product domain by dataset name.
PRODUCTS: dict[str, Contract] = contracts(
    "products",
    **of_every_domain(Items, Interactions),
    products=(Products, "item_id"),
    categories=(Categories, "category_id"),
    product_category=(ProductCategory, "item_id", "category_id"),
    choice_set_items=(ChoiceSetItems, "category_id", "position"),
    facets=(Facets, "category_id", "facet_id", "item_id"),
)
