"""Suites of the choice-set tables (BIEL)."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.quality._declare import between, row_count
from pipelines.quality._spec import Expectation, Fact, Setting

__all__ = ["CHOICE_SETS"]

#: Expectations by dataset.
CHOICE_SETS: Mapping[str, tuple[Expectation, ...]] = {
    "products.products": (
        # BIEL matches 70 % of its products to its tree; another tree may fit worse.
        between(
            "match_rate",
            "warn",
            "matching",
            "match_rate",
            "share of the products with the essential fields that match the tree",
            min_value=0.4,
        ),
        row_count(
            "one_leaf_each",
            "error",
            "leaves",
            "products whose one leaf is not the category they name",
            max_value=0,
        ),
        between(
            "leaf_share",
            "warn",
            "leaf_shares",
            "share",
            "largest share of products with one leaf",
            max_value=0.9,
        ),
    ),
    "products.categories": (
        between(
            "category_size",
            "error",
            "sizes",
            "products",
            "products of the smallest choice set",
            min_value=Setting("products.min_category_size"),
        ),
        between(
            "top_levels_cut",
            "error",
            "sizes",
            "depth",
            "level of the highest choice set",
            min_value=Fact("least_depth"),
        ),
        row_count(
            "parents_known", "error", "orphans", "choice sets whose parent is none", max_value=0
        ),
        row_count(
            "counts_are_links",
            "error",
            "counts",
            "choice sets that count other products than are linked to them",
            max_value=0,
        ),
    ),
    "products.product_category": (
        row_count(
            "links_known",
            "error",
            "strays",
            "links to a product or category that is not there",
            max_value=0,
        ),
    ),
}
