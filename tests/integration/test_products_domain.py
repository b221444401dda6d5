"""The product domain of the sample world, from original files to choice sets, with real dbt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.personas import imported_batches
from pipelines.sample_world import SampleWorld
from pipelines.sample_world._amazon import PRODUCT_SHELVES
from pipelines.sources import ingest
from pipelines.stages import PipelineContext, build, stage_of
from pipelines.store import Store
from pipelines.warehouse import (
    MARTS,
    dbt_environment,
    dbt_vars,
    export_mart,
    link_sources,
    record_dbt_run,
)
from pipelines.worlds import prepare_world

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2] / "dbt"
#: Shelves of the sample shop that its category tree lacks on purpose.
LACKED = {"Oddities", "Fog Machines", "Seasonal Specials"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Settings, SampleWorld]:
    """A home with the products' tables of the default sample world."""
    home = tmp_path_factory.mktemp("products")
    settings = Settings(runtime={"home": home, "memory_limit_mb": 512, "threads": 2})  # type: ignore[arg-type]
    world, store = prepare_world(settings), Store(home)
    for source in ("amazon", "taxonomy", "persona_files"):
        ingest(source, world, store, settings)
    link_sources(store)
    command = [str(Path(sys.executable).parent / "dbt"), "build", "--project-dir", str(PROJECT)]
    command += ["--profiles-dir", str(PROJECT), "--select", "tag:products"]
    done = subprocess.run(
        [*command, "--vars", json.dumps(dbt_vars(settings))],
        env={**os.environ, **dbt_environment(settings)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "product_paths_end_at_the_first_entry_that_is_no_name" in done.stdout
    record_dbt_run(home)
    for dataset in MARTS:
        if dataset.startswith("products."):
            export_mart(store, dataset, settings)
    build(stage_of("products.products"), PipelineContext.of(store, settings))
    key = SampleWorld.read(world.folder)
    assert key is not None
    return store, settings, key


def test_every_record_and_review_is_published_or_counted(
    made: tuple[Store, Settings, SampleWorld],
) -> None:
    store, _, key = made
    items = store.current("products.items")
    assert items.rows == key.others["amazon"]["products"]
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
    made: tuple[Store, Settings, SampleWorld],
) -> None:
    store, settings, _ = made
    products = store.current("products.products")
    stats = products.manifest.stats
    assert set(stats["matched_by"]) == {"equal", "folded", "words", "substring"}
    assert {miss["path"].split(" > ")[-1] for miss in stats["misses"]} == LACKED
    assert stats["match_rate"] == round(stats["matched"] / stats["asked"], 4) > 0.7
    assert stats["bridged"] > 0
    categories = store.current("products.categories").read()
    assert categories["products"].min() >= settings.products.min_category_size
    assert categories["depth"].min() > settings.products.cut_levels
    # Whatever the shop calls a shelf, all of its products are in one category of the tree.
    frame = products.read(["path", "category_id"]).filter(pl.col("path").list.len() > 1)
    per_shelf = frame.group_by("path").agg(pl.col("category_id").n_unique())
    assert per_shelf["category_id"].to_list() == [1] * per_shelf.height
    links = Counter(store.current("products.product_category").read()["is_leaf"])
    assert links[True] == products.rows


def test_the_persona_files_become_personas(made: tuple[Store, Settings, SampleWorld]) -> None:
    store, _, key = made
    told = key.others["persona_files"]
    raw = store.current("raw.persona_files")
    frame = pl.concat(imported_batches(raw, rows=50))
    CONTRACTS["movies.personas"].validate(frame)
    assert frame.height == raw.rows == told["personas"]
    assert (frame["description"].str.starts_with("This is what is known")).sum() == told[
        "with_attributes_only"
    ]
    assert store.current("raw.taxonomy_categories").rows == key.others["taxonomy"]["categories"]
