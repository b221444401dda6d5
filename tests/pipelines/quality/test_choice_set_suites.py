"""Checks of the choice-set tables: each notices the damage it is for, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.quality import check_dataset
from pipelines.stages import stage_of
from pipelines.store import Store

TABLES = stage_of("products.products").datasets
SETTINGS = Settings(products={"min_category_size": 2, "choice_set_size": 4})  # type: ignore[arg-type]
PANS, WOKS = "category:Home > Kitchen > Pans", "category:Home > Kitchen > Pans > Woks"

Frames = dict[str, pl.DataFrame]


def sound() -> Frames:
    """Four products: two woks, two other pans."""
    ids = [f"asin:{n:010d}" for n in range(4)]
    leaves = [WOKS, WOKS, PANS, PANS]
    schema = CONTRACTS["products.products"].polars_schema()
    products = pl.DataFrame(
        {
            "item_id": ids,
            "features": [[]] * 4,
            "category": ["Home"] * 4,
            "path": [["Home"]] * 4,
            "path_from": ["categories"] * 4,
            "category_id": leaves,
            "heuristic": ["equal"] * 4,
            "bridged": [0] * 4,
            "similarity": [1.0] * 4,
        }
    )
    rest = {c: pl.lit(None, t) for c, t in schema.items() if c not in products.columns}
    categories = pl.DataFrame(
        {
            "category_id": [PANS, WOKS],
            "name": ["Pans", "Woks"],
            "path": [PANS.removeprefix("category:"), WOKS.removeprefix("category:")],
            "depth": [3, 4],
            "parent_id": [None, PANS],
            "products": [4, 2],
            "leaf_products": [2, 2],
        }
    )
    links = [(i, leaf, True) for i, leaf in zip(ids, leaves, strict=True)]
    links += [(i, PANS, False) for i in ids[:2]]
    shown = [(PANS, i, n, "train") for n, i in enumerate(ids)]
    shown += [(WOKS, i, n, "train") for n, i in enumerate(ids[:2])]
    values = [("color", "red"), ("color", "blue")]
    values += [("word:x", "yes"), ("word:x", "no")]
    facets = [
        (category, facet, "vocabulary", "Which?", value, i)
        for category in (PANS,)
        for n, (facet, value) in enumerate([*values, ("price", "low"), ("price", "high")])
        for i in (ids[:2], ids[2:])[n % 2]
    ]
    return {
        "products.products": products.with_columns(**rest).select(list(schema)).cast(dict(schema)),
        "products.categories": categories,
        "products.product_category": pl.DataFrame(
            links, schema=["item_id", "category_id", "is_leaf"], orient="row"
        ),
        "products.choice_set_items": pl.DataFrame(
            shown, schema=["category_id", "item_id", "position", "split"], orient="row"
        ),
        "products.facets": pl.DataFrame(
            facets,
            schema=["category_id", "facet_id", "kind", "question", "value", "item_id"],
            orient="row",
        ),
    }


def failing(home: Path, frames: Frames, rate: float | None = 0.7) -> Iterator[str]:
    """Names of the checks that do not pass."""
    store = Store(home)
    for name in TABLES:
        stats = {} if rate is None else {"match_rate": rate, "misses": [], "asked": 100}
        store.commit(name, frames[name], code_version="t", stats=stats, allow_empty=True)
    for name in TABLES:
        for record in check_dataset(name, store.current(name), store=store, settings=SETTINGS):
            if record.passed is False:
                yield record.name


def test_sound_tables_pass_every_check(tmp_path: Path) -> None:
    assert not list(failing(tmp_path, sound()))


def edited(table: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Frames:
    frames = sound()
    name = f"products.{table}"
    return frames | {name: change(frames[name])}


LEAF = pl.col("is_leaf")
FIRST = pl.col("item_id") == "asin:0000000000"
DAMAGE: dict[str, tuple[Frames, set[str]]] = {
    "a second leaf": (
        edited("product_category", lambda f: f.with_columns(is_leaf=LEAF | FIRST)),
        {"one_leaf_each", "counts_are_links"},
    ),
    "a link to a product that is gone": (
        edited("products", lambda f: f.filter(~FIRST)),
        {"one_leaf_each", "links_known"},
    ),
    "a category that is gone": (
        edited("categories", lambda f: f.filter(pl.col("category_id") != PANS)),
        {"parents_known", "counts_are_links", "links_known"},
    ),
    "a small category": (
        edited("categories", lambda f: f.with_columns(products=pl.col("products") - 1)),
        {"category_size", "counts_are_links"},
    ),
    "a top level": (
        edited("categories", lambda f: f.with_columns(depth=pl.col("depth") - 1)),
        {"top_levels_cut"},
    ),
    "a stranger that is shown": (
        edited(
            "choice_set_items",
            lambda f: f.with_columns(
                item_id=pl.when(FIRST).then(pl.lit("asin:0000000009")).otherwise("item_id")
            ),
        ),
        {"shown_are_links"},
    ),
    "too many that are shown": (
        edited(
            "choice_set_items",
            lambda f: pl.concat(
                [f, f.head(1).with_columns(position=pl.lit(9, pl.Int64))], how="vertical"
            ),
        ),
        {"shown_size"},
    ),
    "a product of both splits": (
        edited(
            "choice_set_items",
            lambda f: f.with_columns(
                split=pl.when(pl.col("category_id") == WOKS).then(pl.lit("test")).otherwise("split")
            ),
        ),
        {"one_split_each"},
    ),
    "a set that shows the products of another": (
        edited(
            "choice_set_items",
            lambda f: f.filter((pl.col("category_id") == WOKS) | pl.col("position").is_in([0, 1])),
        ),
        {"sets_differ"},
    ),
    "a value of one product": (
        edited("facets", lambda f: f.filter(~FIRST | (pl.col("facet_id") != "color"))),
        {"facet_size"},
    ),
    "many facets": (
        edited(
            "facets",
            lambda f: pl.concat(
                f.filter(pl.col("facet_id") == "word:x").with_columns(facet_id=pl.lit(f"word:{n}"))
                if n
                else f
                for n in range(29)
            ),
        ),
        {"facets_per_set"},
    ),
    "facets of half of the sets": (
        edited("facets", lambda f: f.filter(pl.col("facet_id") == "color")),
        {"sets_with_facets"},
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_damage_fails_the_checks_that_are_for_it(tmp_path: Path, damage: str) -> None:
    frames, expected = DAMAGE[damage]
    assert set(failing(tmp_path, frames)) == expected


@pytest.mark.parametrize("rate", [0.2, None])
def test_a_low_or_unknown_match_rate_is_warned_of(tmp_path: Path, rate: float | None) -> None:
    assert list(failing(tmp_path, sound(), rate)) == ["match_rate"]
