"""Views of the choice-set tables."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipelines.quality._spec import Evidence, View, ViewFunction

__all__ = ["CHOICE_SET_VIEWS"]


def _matching(evidence: Evidence) -> View:
    """One row: the match rate that the manifest notes; examples are the commonest misses."""
    stats = evidence.snapshot.manifest.stats
    if "match_rate" not in stats:
        return View.missing("the manifest notes no match rate")
    misses = stats.get("misses", [])
    return View(
        pl.DataFrame({"match_rate": [float(stats["match_rate"])]}),
        facts={"asked": stats.get("asked", 0), "matched": stats.get("matched", 0)},
        examples=pl.DataFrame(misses) if misses else None,
    )


def _leaves(evidence: Evidence) -> View:
    """One row per product that has no leaf, several, or another than it names."""
    links = evidence.sibling("product_category")
    if links is None:
        return View.missing("there is no table product_category")
    own = links.scan().filter("is_leaf").group_by("item_id").agg(leaves="category_id")
    frame = (
        evidence.snapshot.scan()
        .select("item_id", "category_id")
        .join(own, on="item_id", how="full", coalesce=True)
        .filter(
            pl.col("category_id").is_null()
            | (pl.col("leaves").list.len() != 1).fill_null(value=True)
            | (pl.col("leaves").list.first() != pl.col("category_id"))
        )
        .select("item_id", "category_id", leaves=pl.col("leaves").list.join(", "))
        .collect(engine="streaming")
    )
    return View(frame.sort("item_id"))


def _leaf_shares(evidence: Evidence) -> View:
    """One row per leaf with its share of the products."""
    frame = (
        evidence.snapshot.scan()
        .group_by("category_id")
        .agg(products=pl.len())
        .with_columns(share=pl.col("products") / max(1, evidence.snapshot.rows))
        .sort("products", "category_id", descending=[True, False])
        .collect(engine="streaming")
    )
    return View(frame)


def _sizes(evidence: Evidence) -> View:
    """One row per choice set."""
    frame = evidence.snapshot.read(["category_id", "depth", "products"])
    return View(frame, facts={"least_depth": evidence.settings.products.cut_levels + 1})


def _orphans(evidence: Evidence) -> View:
    """One row per choice set whose parent is not one."""
    frame = evidence.snapshot.read(["category_id", "parent_id"])
    known = frame.select(parent_id="category_id")
    return View(frame.drop_nulls("parent_id").join(known, on="parent_id", how="anti"))


def _counts(evidence: Evidence) -> View:
    """One row per choice set that counts other products than are linked to it."""
    links = evidence.sibling("product_category")
    if links is None:
        return View.missing("there is no table product_category")
    counted = (
        links.scan()
        .group_by("category_id")
        .agg(linked=pl.len(), linked_leaves=pl.col("is_leaf").sum())
    )
    frame = (
        evidence.snapshot.scan()
        .select("category_id", "products", "leaf_products")
        .join(counted, on="category_id", how="full", coalesce=True)
        .filter(
            pl.col("products").ne_missing(pl.col("linked"))
            | pl.col("leaf_products").ne_missing(pl.col("linked_leaves"))
        )
        .collect(engine="streaming")
    )
    return View(frame.sort("category_id"))


def _strays(evidence: Evidence) -> View:
    """One row per link to what is not there."""
    products, categories = evidence.sibling("products"), evidence.sibling("categories")
    if products is None or categories is None:
        return View.missing("there is no table products or categories")
    links = evidence.snapshot.scan().select("item_id", "category_id")
    lost = [
        links.join(table.scan().select(key), on=key, how="anti")
        for table, key in ((products, "item_id"), (categories, "category_id"))
    ]
    frame = pl.concat(lost).unique().collect(engine="streaming")
    return View(frame.sort("item_id", "category_id"))


#: View functions by table, then by name.
CHOICE_SET_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "products": {
        "matching": _matching,
        "leaves": _leaves,
        "leaf_shares": _leaf_shares,
    },
    "categories": {"sizes": _sizes, "orphans": _orphans, "counts": _counts},
    "product_category": {"strays": _strays},
}
