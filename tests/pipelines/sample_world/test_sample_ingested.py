"""The real loaders find in the sample world exactly what its answer key says."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.sample_world import BrokenRow, SampleWorld
from pipelines.sources import ingest
from pipelines.store import Store
from pipelines.worlds import prepare_world

SOURCES = ("movielens", "tmdb", "amazon")

pytestmark = pytest.mark.pipeline


def ingested(home: Path, **sample: int) -> tuple[Store, SampleWorld]:
    settings = Settings(world={"sample": sample}, runtime={"home": str(home)})
    world, store = prepare_world(settings), Store(home)
    for source in SOURCES:
        ingest(source, world, store, settings)
    key = SampleWorld.read(world.folder)
    assert key is not None
    return store, key


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, SampleWorld]:
    return ingested(tmp_path_factory.mktemp("home"))


def repeats(row: BrokenRow) -> bool:
    """Whether the row is an older rating of a film, which is counted and not rejected."""
    return row.reason == "duplicate_key" and row.file.endswith("ratings.csv")


def test_the_loaders_reject_the_listed_rows_and_no_others(
    default: tuple[Store, SampleWorld],
) -> None:
    store, key = default
    rejected = pl.concat(store.current(f"raw.{source}_rejected").read() for source in SOURCES)
    assert sorted(rejected.select("file", "line", "reason").rows()) == sorted(
        (row.file, row.line, row.reason)
        for row in key.rejected
        if row.file.startswith(SOURCES) and not repeats(row)
    )
    assert rejected.height == 7 + 5


def test_the_loaders_keep_every_valid_row(default: tuple[Store, SampleWorld]) -> None:
    store, _ = default
    assert store.current("raw.movielens_movies").rows == 300
    assert store.current("raw.movielens_tags").rows == 637
    links = store.current("raw.movielens_links").read()
    assert links["tmdb_id"].drop_nulls().n_unique() == 293
    values = store.current("raw.movielens_ratings").read()["rating"].value_counts()
    assert dict(values.rows()) == {
        0.5: 132, 1.0: 513, 1.5: 354, 2.0: 1855, 2.5: 1242, 3.0: 4228, 3.5: 2085, 4.0: 5135,
        4.5: 1373, 5.0: 3083,
    }  # fmt: skip


def test_the_loaders_find_the_features(default: tuple[Store, SampleWorld]) -> None:
    store, _ = default
    films = store.current("raw.tmdb_movies").read()
    assert films.height == 284
    assert films["overview"].is_not_null().sum() == 264
    assert films["release_date"].is_not_null().sum() == 277
    assert (films["actors"].list.len() > 0).sum() == 274
    assert (films["directors"].list.len() > 0).sum() == 271
    assert (films["keywords"].list.len() > 0).sum() == 267
    assert films["collection"].is_not_null().sum() == 34
    missing = store.current("raw.tmdb_missing").read()
    assert missing.height == 293 - 284
    assert set(missing["reason"]) == {"not_in_dump", "record_of_another_film"}


def test_the_loaders_find_the_reviews_and_products_of_both_editions(
    default: tuple[Store, SampleWorld],
) -> None:
    store, _ = default
    counts = {"reviews_2018": 2664, "meta_2018": 450, "reviews_2023": 4430, "meta_2023": 809}
    for table, rows in counts.items():
        assert store.current(f"raw.amazon_{table}").rows == rows
    asins = [
        *store.current("raw.amazon_meta_2018").read()["asin"],
        *store.current("raw.amazon_meta_2023").read()["parent_asin"],
    ]
    assert len(set(asins)) == 450 + 748
    # Records that the 2018 edition repeats, and books in both editions.
    assert len(asins) - len(set(asins)) == 19 + 42


@pytest.mark.parametrize(("films", "users", "ratings"), [(20, 10, 200), (140, 30, 1_000)])
def test_small_worlds_pass_the_default_limit_of_rejections(
    tmp_path: Path, films: int, users: int, ratings: int
) -> None:
    store, key = ingested(tmp_path, films=films, users=users, ratings=ratings)
    assert store.current("raw.movielens_ratings").rows == ratings
    assert store.current("raw.movielens_rejected").rows == sum(
        "movielens" in row.file and not repeats(row) for row in key.rejected
    )
