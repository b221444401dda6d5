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
    """Products of Amazon's categories other than books and films; missing fields are null."""

    item_id: pl.String = item_key(_ASIN)
    title: pl.String = column(
        "Title; null if it was markup.", null=True, str_length={"min_value": 1}
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
    main_category: pl.String = column("Department, as in the record.", null=True)
    category_path: pl.List(pl.String) = column(
        "Categories from the top down, as the record lists them, up to the first entry that is "
        "not a name; may be empty."
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


class Interactions(books.Interactions):
    """Human ratings of products, on 1-5."""


class Products(Model):
    """Products that are in a choice set (BIEL, appendix C), each with its position in the tree."""

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
    path: pl.List(pl.String) = column("Levels matched to the tree.")
    path_from: pl.String = column(
        "Source of the path: the record's categories; if it has none, its "
        "department or the file's name.",
        isin=["categories", "main_category", "file"],
    )
    category_id: pl.String = column("Leaf of the product: the deepest choice set that contains it.")
    heuristic: pl.String = column(
        "Weakest heuristic needed to match a level of the path.",
        isin=["equal", "folded", "words", "substring"],
    )
    bridged: pl.Int64 = column("Levels of the tree that the path skips (count).", ge=0)
    similarity: pl.Float64 = column(
        "Minimum similarity of a level to its category's name; 6 decimals.",
        ge=0,
        le=1,
        within="0-1",
    )


class Categories(Model):
    """Choice sets: the category tree without its top levels and small categories."""

    category_id: pl.String = column(_CATEGORY, unique=True, str_matches="^category:.+$")
    name: pl.String = column("Name of the last level.", str_length={"min_value": 1})
    path: pl.String = column("Names from the top level down, ` > ` between them.")
    depth: pl.Int64 = column("Level in the tree; 1 is the top.", ge=1)
    parent_id: pl.String = column("Parent category, if that is a choice set too.", null=True)
    products: pl.Int64 = column("Products in the category or below it (count).", ge=1)
    leaf_products: pl.Int64 = column("Products whose leaf it is (count).", ge=0)


class ProductCategory(Model):
    """Choice sets of each product: one row for each category on its path."""

    item_id: pl.String = column(ITEM)
    category_id: pl.String = column(_CATEGORY)
    is_leaf: pl.Boolean = column("Whether the category is the product's leaf; exactly one is.")


class ChoiceSetItems(Model):
    """Products of each choice set that shoppers are shown: all of them, or a seeded sample."""

    category_id: pl.String = column(_CATEGORY)
    item_id: pl.String = column(ITEM)
    position: pl.Int64 = column("Position in the sample, from 0.", ge=0)
    split: pl.String = column(
        "Split of the choice set, the same for all sets below one topmost set, so that no product "
        "is in both splits.",
        isin=["train", "test"],
    )


class Facets(Model):
    """Product properties of a choice set that a shopper can be asked about, by product."""

    category_id: pl.String = column(_CATEGORY)
    facet_id: pl.String = column(
        "`price`, `brand`, a packaged vocabulary such as `material`, or `word:` and a word.",
        str_length={"min_value": 1},
    )
    kind: pl.String = column(
        "Origin of the facet's values.", isin=["price", "brand", "vocabulary", "word"]
    )
    question: pl.String = column("Question that asks for the facet.", str_length={"min_value": 1})
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
