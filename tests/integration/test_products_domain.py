"""The product domain of the sample world: what a run made of the original files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.personas import imported_batches
from pipelines.sample_world._amazon import PRODUCT_SHELVES
from pipelines.store import Store

pytestmark = pytest.mark.pipeline

#: Shelves of the sample shop that its category tree lacks on purpose.
LACKED = {"Oddities", "Fog Machines", "Seasonal Specials"}


@pytest.fixture(scope="module")
def made(published_home: Path) -> tuple[Store, Settings]:
    """The home with the products' tables of the default sample world."""
    return Store(published_home), Settings(runtime={"home": published_home})  # type: ignore[arg-type]


def test_every_record_and_review_is_published_or_counted(
    made: tuple[Store, Settings],
) -> None:
    store, _ = made
    items = store.current("products.items")
    assert items.rows == 748
    raw = pl.concat(
        store.current(f"raw.amazon_reviews_{edition}").read(["category"])
        for edition in ("2018", "2023")
    )
    reviews = raw.filter(pl.col("category").is_in(list(PRODUCT_SHELVES))).height
    interactions = store.current("products.interactions")
    left_out = interactions.manifest.stats["filtered"]
    assert reviews == interactions.rows + sum(left_out.values())
    assert store.current("products.splits").rows == interactions.rows
    assert store.current("products.user_traits").rows == store.current("products.human_users").rows


def test_products_are_matched_to_the_tree_by_every_heuristic_but_for_what_it_lacks(
    made: tuple[Store, Settings],
) -> None:
    store, settings = made
    products = store.current("products.products")
    stats = products.manifest.stats
    assert set(stats["matched_by"]) == {"equal", "folded", "words", "substring"}
    assert {miss["path"].split(" > ")[-1] for miss in stats["misses"]} == LACKED
    assert stats["match_rate"] == round(stats["matched"] / stats["asked"], 4) > 0.7
    assert stats["bridged"] > 0
    categories = store.current("products.categories").read()
    assert categories["products"].min() >= settings.products.min_category_size
    assert categories["depth"].min() > settings.products.cut_levels
    # All products of a shop's shelf are in one category of the tree.
    frame = products.read(["path", "category_id"]).filter(pl.col("path").list.len() > 1)
    per_shelf = frame.group_by("path").agg(pl.col("category_id").n_unique())
    assert per_shelf["category_id"].to_list() == [1] * per_shelf.height
    links = Counter(store.current("products.product_category").read()["is_leaf"])
    assert links[True] == products.rows


def test_shoppers_can_be_asked_about_forty_choice_sets(
    made: tuple[Store, Settings],
) -> None:
    store, _ = made
    shown = store.current("products.choice_set_items").read()
    sizes = shown.group_by("category_id", "split").len()
    assert sizes.height >= 40
    assert sizes["len"].min() >= 15  # type: ignore[operator]
    assert set(sizes["split"]) == {"train", "test"}
    facets = store.current("products.facets").read()
    whole = facets.filter(pl.col("kind") != "word").group_by("category_id")
    assert whole.agg(pl.col("facet_id").n_unique())["facet_id"].min() >= 5  # type: ignore[operator]


def test_the_persona_files_become_personas(made: tuple[Store, Settings]) -> None:
    store, _ = made
    raw = store.current("raw.persona_files")
    frame = pl.concat(imported_batches(raw, rows=50))
    CONTRACTS["movies.personas"].validate(frame)
    assert frame.height == raw.rows == 200
    assert frame["description"].str.starts_with("This is what is known").sum() == 67
    assert store.current("raw.taxonomy_categories").rows == 88
