"""Cutting the tree to choice sets: the top levels and small categories go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from pipelines.config import ProductsSettings
from pipelines.products._names import SEPARATOR
from pipelines.products._tree import CategoryTree

__all__ = ["Cut"]


class Cut:
    """The part of the tree that is left after both cuts.

    A category's products are those matched to it or to a category below it. A category that is
    kept has all of its ancestors below the cut levels kept too, because they have no fewer.

    Parameters
    ----------
    tree
        The whole tree.
    nodes
        The category that each product was matched to; null for none.
    settings
        What is cut.

    Attributes
    ----------
    below
        Products of each category, by its number (count).
    keys
        Ids of the kept categories by number.
    candidates
        Categories below the cut levels that have any product (count).
    """

    def __init__(self, tree: CategoryTree, nodes: pl.Series, settings: ProductsSettings) -> None:
        self._tree = tree
        own = np.zeros(len(tree.nodes), dtype=np.int64)
        matched = nodes.drop_nulls().to_numpy()
        np.add.at(own, matched, 1)
        # Descendants are consecutive: the products below a node are a difference of sums.
        upto = np.concatenate([[0], np.cumsum(own)])
        self.below = {n.number: int(upto[n.end] - upto[n.number]) for n in tree.nodes}
        deep = [n for n in tree.nodes[1:] if n.depth > settings.cut_levels]
        self.candidates = sum(self.below[n.number] > 0 for n in deep)
        self._kept = {n.number for n in deep if self.below[n.number] >= settings.min_category_size}
        self.keys = {number: tree.nodes[number].key for number in self._kept}
        self._leaf = {int(n): self._nearest(int(n)) for n in np.unique(matched)}

    def __len__(self) -> int:
        return len(self._kept)

    def _nearest(self, number: int) -> int | None:
        while number and number not in self._kept:
            number = self._tree.nodes[number].parent
        return number or None

    def leaf_of(self, nodes: pl.Series) -> pl.Series:
        """The deepest kept category on the way from the root to each node; null if none is."""
        if not self._leaf:
            return pl.Series("leaf", [None], dtype=pl.Int64).new_from_index(0, len(nodes))
        return nodes.replace_strict(self._leaf, default=None, return_dtype=pl.Int64)

    def _chain(self, number: int) -> list[int]:
        chain = []
        while number in self._kept:
            chain.append(number)
            number = self._tree.nodes[number].parent
        return chain

    def categories(self, leaves: pl.Series) -> pl.DataFrame:
        """Rows of ``products.categories``."""
        own = Counter(leaves.to_list())
        nodes = [self._tree.nodes[number] for number in sorted(self._kept)]
        return pl.DataFrame(
            {
                "category_id": [n.key for n in nodes],
                "name": [n.name for n in nodes],
                "path": [SEPARATOR.join(n.path) for n in nodes],
                "depth": [n.depth for n in nodes],
                "parent_id": [self.keys.get(n.parent) for n in nodes],
                "products": [self.below[n.number] for n in nodes],
                "leaf_products": [own[n.number] for n in nodes],
            },
            schema_overrides={"parent_id": pl.String},
        ).sort("category_id")

    def links(self, chosen: pl.DataFrame) -> pl.DataFrame:
        """Rows of ``products.product_category``."""
        chains = pl.DataFrame(
            [
                (leaf, self.keys[number], number == leaf)
                for leaf in chosen["leaf"].unique().sort().to_list()
                for number in self._chain(leaf)
            ],
            schema={"leaf": pl.Int64, "category_id": pl.String, "is_leaf": pl.Boolean},
            orient="row",
        )
        return (
            chosen.select("item_id", "leaf")
            .join(chains, on="leaf", how="left")
            .select("item_id", "category_id", "is_leaf")
            .sort("item_id", "category_id")
        )
