"""Choice sets: sampled products, matched to the tree, flattened into three tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.config import ProductsSettings
from pipelines.errors import ContractError, NoChoiceSetError
from pipelines.products._cut import Cut
from pipelines.products._facts import choice_facts
from pipelines.products._match import PathMatch, PathMatcher
from pipelines.products._paths import Routed, match_routes, route
from pipelines.products._sample import sample_mask
from pipelines.products._tree import CategoryTree

__all__ = ["ChoiceSets", "choice_sets"]

_BATCH = 100_000
_EMPTY = {
    "title": pl.col("title").is_null(),
    "description": pl.col("description").is_null(),
    "brand": pl.col("brand").is_null(),
    "price": pl.col("price").is_null(),
    "features": pl.col("features").list.len() == 0,
}
#: Columns of ``products.products`` that are those of ``products.items``.
_KEPT = (
    "title",
    "brand",
    "description",
    "features",
    "price",
    "average_rating",
    "rating_number",
    "category",
)


@dataclass(frozen=True, slots=True)
class ChoiceSets:
    """The three tables, and how they came about.

    Attributes
    ----------
    categories
        Rows of ``products.categories``.
    links
        Rows of ``products.product_category``.
    chosen
        ``item_id``, ``category_id``, ``path``, ``path_from``, ``heuristic``, ``bridged`` and
        ``similarity`` of every product that is in a choice set, by ``item_id``.
    stats
        JSON-ready facts: what was read, drawn, dropped and matched, and the commonest misses.
    """

    categories: pl.DataFrame
    links: pl.DataFrame
    chosen: pl.DataFrame
    stats: Mapping[str, Any]

    def products(self, items: pl.LazyFrame, *, rows: int = _BATCH) -> Iterator[pl.DataFrame]:
        """Rows of ``products.products``, in order, some at a time.

        Parameters
        ----------
        items
            The scan that the choice sets were made from.
        rows
            Rows of a batch (count).
        """
        for part in self.chosen.iter_slices(rows):
            ids = part["item_id"]
            wanted = items.filter(pl.col("item_id").is_between(pl.lit(ids[0]), pl.lit(ids[-1])))
            facts = wanted.select("item_id", *_KEPT).collect(engine="streaming")
            joined = part.join(facts, on="item_id", how="left", maintain_order="left")
            yield joined.select(
                "item_id", *_KEPT, "path", "path_from", "category_id",
                "heuristic", "bridged", "similarity",
            )  # fmt: skip


def choice_sets(items: pl.LazyFrame, tree: CategoryTree, settings: ProductsSettings) -> ChoiceSets:
    """Draw products, match them to the tree, and cut the tree to choice sets.

    Products are drawn over the files' categories in proportion to their sizes. Those that lack
    an essential field are dropped; a field that no product of a file has is not asked of that
    file. Each distinct category path is matched once. Of the categories, the top levels and
    those with too few products are cut; a product belongs to every category that is left on
    its path, the deepest of which is its leaf.

    Parameters
    ----------
    items
        The table ``products.items``, by ``item_id``.
    tree
        The category tree.
    settings
        What is drawn, demanded and cut.

    Raises
    ------
    ContractError
        If there are no products.
    NoChoiceSetError
        If no choice set is left.
    """
    frame = _slim(items, settings)
    if frame.is_empty():
        raise ContractError("no products to choose from", where="products.items")
    waived = _waived(frame, settings.essential)
    drawn = sample_mask(frame["item_id"], frame["category"], settings.sample, settings.seed)
    frame = frame.with_columns(drawn, lacks=_first_lack(settings.essential, waived))
    asked = frame.filter(pl.col("drawn") & pl.col("lacks").is_null())
    matcher = PathMatcher(
        tree, min_similarity=settings.min_similarity, bridge_first=settings.bridge_first
    )
    per_route = asked.group_by("route").len().sort("route")
    routed = match_routes(per_route["route"].cast(pl.String), matcher)
    asked = asked.join(_outcomes(routed), on="route", how="left", maintain_order="left")
    cut = Cut(tree, asked["node"], settings)
    asked = asked.with_columns(leaf=cut.leaf_of(asked["node"]))
    stats = choice_facts(frame, asked, routed, dict(per_route.iter_rows()), waived, cut, settings)
    chosen = asked.filter(pl.col("leaf").is_not_null()).sort("item_id")
    if chosen.is_empty():
        raise NoChoiceSetError(
            f"no choice set is left: {stats['matched']:,} of {asked.height:,} products match the "
            f"tree, but no category below level {settings.cut_levels} has "
            f"{settings.min_category_size}",
            where="products.categories",
            hint="see products.cut_levels and products.min_category_size, or give a tree that "
            "fits the products (data.taxonomy.file)",
            details={"stats": stats},
        )
    return ChoiceSets(
        categories=cut.categories(chosen["leaf"]),
        links=cut.links(chosen),
        chosen=chosen.select(
            "item_id",
            pl.col("leaf").replace_strict(cut.keys, return_dtype=pl.String).alias("category_id"),
            "path",
            "path_from",
            "heuristic",
            "bridged",
            "similarity",
        ),
        stats=stats,
    )


def _slim(items: pl.LazyFrame, settings: ProductsSettings) -> pl.DataFrame:
    return (
        items.select(
            "item_id",
            "category",
            pl.format("{}/{}", "edition", "category").alias("file"),
            route().alias("route"),
            *(_EMPTY[field].alias(f"no_{field}") for field in settings.essential),
        )
        .with_columns(pl.col("category", "file", "route").cast(pl.Categorical))
        .collect(engine="streaming")
    )


def _waived(frame: pl.DataFrame, essential: tuple[str, ...]) -> dict[str, list[str]]:
    """By file, the fields that none of its products has."""
    if not essential:
        return {}
    by_file = frame.group_by(pl.col("file").cast(pl.String)).agg(
        pl.col(f"no_{field}").all() for field in essential
    )
    return {
        row["file"]: [field for field in essential if row[f"no_{field}"]]
        for row in by_file.sort("file").iter_rows(named=True)
        if any(row[f"no_{field}"] for field in essential)
    }


def _first_lack(essential: tuple[str, ...], waived: Mapping[str, list[str]]) -> pl.Expr:
    lacks = pl.lit(None, dtype=pl.String)
    for field in reversed(essential):
        free = [file for file, fields in waived.items() if field in fields]
        asked = ~pl.col("file").cast(pl.String).is_in(free)
        lacks = pl.when(pl.col(f"no_{field}") & asked).then(pl.lit(field)).otherwise(lacks)
    return lacks


def _outcomes(routed: Mapping[str, Routed]) -> pl.DataFrame:
    rows = []
    for text, one in routed.items():
        match = one.outcome if isinstance(one.outcome, PathMatch) else None
        rows.append(
            (
                text,
                list(one.path),
                one.origin,
                match.node if match else None,
                match.heuristic if match else None,
                match.bridged if match else None,
                round(match.similarity, 6) if match else None,
            )
        )
    return pl.DataFrame(
        rows,
        schema={
            "route": pl.String,
            "path": pl.List(pl.String),
            "path_from": pl.String,
            "node": pl.Int64,
            "heuristic": pl.String,
            "bridged": pl.Int64,
            "similarity": pl.Float64,
        },
        orient="row",
    ).with_columns(pl.col("route").cast(pl.Categorical))
