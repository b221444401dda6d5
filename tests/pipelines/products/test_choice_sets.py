"""Choice sets: what is drawn, dropped, matched, cut and linked, by hand on small catalogues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pipelines.config import ProductsSettings, Settings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError
from pipelines.products import (
    CategoryTree,
    ChoiceSets,
    choice_sets,
)
from pipelines.products._choice_sets import sample_mask
from pipelines.stages import PipelineContext, build, stage_of
from pipelines.store import Snapshot, Store

TREE = CategoryTree(
    ["Home > Kitchen > Pans > Woks", "Home > Kitchen > Pans > Grill Pans", "Home > Kitchen > Pots"]
)
LOOSE: dict[str, Any] = {"min_category_size": 1, "essential": ()}


def item(n: int, path: Sequence[str] = (), **fields: Any) -> dict[str, Any]:
    plain = {
        "item_id": f"asin:{n:010d}",
        "title": f"Pan {n}",
        "brand": None,
        "description": "Made of steel.",
        "features": [],
        "price": 9.5,
        "average_rating": None,
        "rating_number": None,
        "category": "Home_and_Kitchen",
        "edition": "2018",
        "main_category": None,
        "category_path": list(path),
    }
    return plain | fields


def scan(rows: list[dict[str, Any]]) -> pl.LazyFrame:
    columns = CONTRACTS["products.items"].polars_schema()
    schema = {name: columns[name] for name in item(0)}
    return pl.DataFrame(rows, schema=schema).sort("item_id").lazy()


def made(rows: list[dict[str, Any]], **options: Any) -> ChoiceSets:
    return choice_sets(scan(rows), TREE, ProductsSettings(**options))


def links_of(found: ChoiceSets, n: int) -> dict[str, bool]:
    rows = found.links.filter(pl.col("item_id") == f"asin:{n:010d}")
    return dict(rows.select("category_id", "is_leaf").iter_rows())


# -- cutting and linking -------------------------------------------------------------------

WOKS, GRILLS, POTS = (
    ["Home", "Kitchen", "Pans", "Woks"],
    ["Home", "Kitchen", "Pans", "Grill Pans"],
    ["Home", "Kitchen", "Pots"],
)


def test_the_top_levels_and_small_categories_are_cut_and_products_move_up() -> None:
    rows = [item(n, WOKS) for n in range(3)] + [item(n, GRILLS) for n in range(3, 5)]
    rows += [item(5, POTS), item(6, ["Home"]), item(7, ["Garden"])]
    found = made(rows, min_category_size=3, essential=())
    assert found.categories.rows(named=True) == [
        {
            "category_id": "category:Home > Kitchen > Pans",
            "name": "Pans",
            "path": "Home > Kitchen > Pans",
            "depth": 3,
            "parent_id": None,
            "products": 5,
            "leaf_products": 2,
        },
        {
            "category_id": "category:Home > Kitchen > Pans > Woks",
            "name": "Woks",
            "path": "Home > Kitchen > Pans > Woks",
            "depth": 4,
            "parent_id": "category:Home > Kitchen > Pans",
            "products": 3,
            "leaf_products": 3,
        },
    ]
    # A wok is in both sets; a grill pan's own category is too small, so that its leaf is above.
    assert links_of(found, 0) == {
        "category:Home > Kitchen > Pans": False,
        "category:Home > Kitchen > Pans > Woks": True,
    }
    assert links_of(found, 3) == {"category:Home > Kitchen > Pans": True}
    # A small category with nothing kept above it, a cut level, and no match at all: in no set.
    assert [links_of(found, n) for n in (5, 6, 7)] == [{}, {}, {}]
    assert found.stats["matched"] == 7
    assert found.stats["match_rate"] == 0.875
    assert found.stats["in_choice_sets"] == 5
    assert found.stats["matched_outside_choice_sets"] == 2
    assert (found.stats["categories_met"], found.stats["categories"]) == (4, 2)


def test_no_choice_set_left_is_an_error_that_says_why() -> None:
    with pytest.raises(ContractError, match="2 of 2 products match the tree, but no category") as e:
        made([item(0, WOKS), item(1, POTS)], essential=())
    assert "min_category_size" in str(e.value)
    with pytest.raises(ContractError, match="no products"):
        made([])


def test_products_carry_their_facts_and_their_place_in_the_tree() -> None:
    rows = [item(1, ["Home", "Woks"], title="Wok"), item(2, POTS)]
    found = made(rows, **LOOSE)
    products = pl.concat(found.products(scan(rows), rows=1))
    CONTRACTS["products.products"].validate(products)
    CONTRACTS["products.categories"].validate(found.categories)
    CONTRACTS["products.product_category"].validate(found.links)
    first = products.row(0, named=True)
    assert (first["title"], first["price"]) == ("Wok", 9.5)
    assert first["category_id"] == "category:Home > Kitchen > Pans > Woks"
    assert (first["path"], first["path_from"]) == (["Home", "Woks"], "categories")
    assert (first["heuristic"], first["bridged"], first["similarity"]) == ("equal", 2, 1.0)


# -- fields that products must have --------------------------------------------------------


def test_products_without_an_essential_field_are_dropped_and_counted() -> None:
    rows = [item(0, POTS), item(1, POTS, title=None), item(2, POTS, description=None)]
    rows += [item(3, POTS, title=None, description=None)]
    found = made(rows, min_category_size=1)
    assert found.chosen["item_id"].to_list() == ["asin:0000000000"]
    # A product that lacks two fields is counted for the first that is asked.
    assert found.stats["dropped_without"] == {"description": 1, "title": 2}
    assert found.stats["demands_not_made"] == {}


def test_a_field_that_a_whole_file_lacks_is_not_asked_of_it_and_this_is_said() -> None:
    new = {"edition": "2023", "description": None}
    rows = [item(0, POTS), item(1, POTS, description=None)]
    rows += [item(2, POTS, **new), item(3, POTS, title=None, **new)]
    found = made(rows, min_category_size=1)
    assert found.stats["demands_not_made"] == {"2023/Home_and_Kitchen": ["description"]}
    assert found.chosen["item_id"].to_list() == ["asin:0000000000", "asin:0000000002"]
    assert found.stats["dropped_without"] == {"description": 1, "title": 1}


@pytest.mark.parametrize(("field", "value"), [("features", []), ("price", None), ("brand", None)])
def test_every_field_that_can_be_asked_is(field: str, value: object) -> None:
    full = {"features": ["Big"], "price": 1.0, "brand": "Acme"}
    rows = [item(0, POTS, **full), item(1, POTS, **(full | {field: value}))]
    found = made(rows, min_category_size=1, essential=(field,))
    assert found.stats["dropped_without"] == {field: 1}


# -- where a path comes from ---------------------------------------------------------------


def test_without_categories_the_department_then_the_file_s_name_is_matched() -> None:
    tree = CategoryTree(["Shop > Aisle > Musical Instruments", "Shop > Aisle > Toys & Games"])
    rows = [
        item(0, main_category="Toys & Games", category="Musical_Instruments"),
        item(1, main_category="Amazon Home", category="Toys_and_Games"),
        item(2, main_category=None, category="Musical_Instruments"),
        item(3, main_category="Amazon Home", category="Books"),
        # Categories that lead nowhere are not made up for by a department that is known.
        item(4, ["Nowhere"], main_category="Toys & Games", category="Toys_and_Games"),
    ]
    found = choice_sets(scan(rows), tree, ProductsSettings(**LOOSE))
    chosen_paths = found.chosen.select("item_id", "path_from", "path").rows()
    assert chosen_paths == [
        ("asin:0000000000", "main_category", ["Toys & Games"]),
        ("asin:0000000001", "file", ["Toys & Games"]),
        ("asin:0000000002", "file", ["Musical Instruments"]),
    ]
    assert found.stats["matched_from"] == {"file": 2, "main_category": 1}
    assert found.stats["paths_from"] == {"categories": 1, "file": 2, "main_category": 2}


def test_the_commonest_misses_are_listed_with_the_level_that_stopped_them() -> None:
    rows = [item(n, [*POTS, "Lids"]) for n in range(3)] + [item(9, ["Garden"]), item(10, POTS)]
    assert made(rows, **LOOSE).stats["misses"] == [
        {"path": "Home > Kitchen > Pots > Lids", "products": 3, "level": "lids",
         "matched_levels": 3},
        {"path": "Garden", "products": 1, "level": "garden", "matched_levels": 0},
    ]  # fmt: skip


def test_facts_are_json_and_every_product_is_accounted_for() -> None:
    rows = [item(n, [WOKS, POTS, ["Garden"], []][n % 4]) for n in range(40)]
    rows += [item(n, POTS, title=None) for n in range(40, 50)]
    stats = made(rows, sample=30, min_category_size=2).stats
    assert json.loads(json.dumps(stats)) == stats
    assert stats["read"] == stats["drawn"] + stats["not_drawn"] == 50
    assert stats["drawn"] == stats["asked"] + sum(stats["dropped_without"].values()) == 30
    assert stats["matched"] == sum(stats["matched_by"].values())
    assert stats["matched"] == stats["in_choice_sets"] + stats["matched_outside_choice_sets"]
    assert sum(file["asked"] for file in stats["by_file"]) == stats["asked"]


# -- drawing -------------------------------------------------------------------------------


def test_a_draw_is_seeded_and_proportional() -> None:
    ids = pl.Series([f"asin:{n:010d}" for n in range(1000)])
    categories = pl.Series(["big"] * 700 + ["small"] * 300)
    one, same, other = (sample_mask(ids, categories, 100, seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
    assert Counter(categories.filter(one)) == {"big": 70, "small": 30}
    assert sample_mask(ids, categories, 0, 1).all()


# -- laws ----------------------------------------------------------------------------------

ANY_PATH = st.sampled_from([WOKS, GRILLS, POTS, ["Home", "Kitchen"], ["Pans"], ["Nowhere"], []])


@hypothesis_settings(max_examples=40, deadline=None)
@given(st.lists(ANY_PATH, min_size=1, max_size=25), st.integers(1, 4), st.integers(0, 3))
def test_every_kept_product_has_one_leaf_and_whole_chains(
    paths: list[list[str]], smallest: int, cut: int
) -> None:
    rows = [item(n, path) for n, path in enumerate(paths)]
    try:
        found = made(rows, min_category_size=smallest, cut_levels=cut, essential=())
    except ContractError:
        return
    leaves = found.links.filter("is_leaf")
    assert leaves["item_id"].to_list() == found.chosen["item_id"].to_list()
    assert leaves["category_id"].to_list() == found.chosen["category_id"].to_list()
    known = {row["category_id"]: row for row in found.categories.iter_rows(named=True)}
    counts = Counter(found.links["category_id"])
    for key, row in known.items():
        assert counts[key] == row["products"] >= smallest
        assert row["depth"] > cut
        assert row["parent_id"] is None or row["parent_id"] in known
    for product, categories in found.links.group_by("item_id").agg("category_id").iter_rows():
        leaf = known[leaves.filter(pl.col("item_id") == product)["category_id"][0]]
        chain = [leaf]
        while chain[-1]["parent_id"]:
            chain.append(known[chain[-1]["parent_id"]])
        assert sorted(categories) == sorted(c["category_id"] for c in chain)


# -- the store -----------------------------------------------------------------------------


def filled(home: Path, rows: list[dict[str, Any]]) -> Store:
    store = Store(home)
    contract = CONTRACTS["products.items"].polars_schema()
    frame = pl.DataFrame(rows, schema={n: contract[n] for n in item(0)})
    empty = {
        name: pl.lit([] if dtype == pl.List(pl.String) else None, dtype)
        for name, dtype in contract.items()
        if name not in frame.columns
    }
    store.commit("products.items", frame.with_columns(**empty), code_version="t")
    tree = pl.DataFrame({"path": ["Home > Kitchen > Pots"], "name": ["Pots"], "depth": [3]})
    store.commit("raw.taxonomy_categories", tree, code_version="t")
    return store


def build_choice_sets(
    store: Store, settings: Settings, run_id: str | None = None
) -> dict[str, Snapshot]:
    stage = stage_of("products.products")
    return build(stage, PipelineContext.of(store, settings), run_id=run_id).snapshots


def test_the_tables_are_committed_together_and_not_made_twice(tmp_path: Path) -> None:
    store = filled(tmp_path, [item(n, POTS) for n in range(20)])
    tree = Settings(products={"min_category_size": 15})  # type: ignore[arg-type]
    first = build_choice_sets(store, tree, run_id="one")
    assert {d: s.rows for d, s in first.items()} == {
        "products.products": 20,
        "products.categories": 1,
        "products.product_category": 20,
        "products.choice_set_items": 20,
        "products.facets": 0,
    }
    stats = first["products.products"].manifest.stats
    assert (stats["match_rate"], stats["tree_implied"]) == (1.0, 2)
    again = build_choice_sets(store, tree, run_id="two")
    assert {d: s.manifest.run_id for d, s in again.items()} == dict.fromkeys(first, "one")
    other = Settings(products={"min_category_size": 20})  # type: ignore[arg-type]
    changed = build_choice_sets(store, other, run_id="three")
    assert changed["products.products"].version == first["products.products"].version


def test_tables_are_withdrawn_when_no_choice_set_is_left(tmp_path: Path) -> None:
    store = filled(tmp_path, [item(n, POTS) for n in range(20)])
    tree = Settings(products={"min_category_size": 15})  # type: ignore[arg-type]
    made_before = build_choice_sets(store, tree)
    strict = Settings(products={"min_category_size": 30})  # type: ignore[arg-type]
    absent = build(stage_of("products.products"), PipelineContext.of(store, strict))
    assert absent.absent
    assert "no choice set is left" in str(absent.reason)
    assert not any(store.has(dataset) for dataset in made_before)
    # The snapshots stay, and are current again when they are asked for again.
    again = build_choice_sets(store, tree)
    assert {d: s.version for d, s in again.items()} == {
        d: s.version for d, s in made_before.items()
    }
