"""Books from Amazon's files to published tables, through the real dbt, worked out by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest
from support.amazon_files import meta_2018, meta_2023, review_2018, review_2023, write_lines
from support.marts import dbt, export_mart

from pipelines.config import Settings
from pipelines.quality import SUITES, check_dataset
from pipelines.sources import ingest
from pipelines.store import Snapshot, Store
from pipelines.warehouse import (
    MARTS,
    link_sources,
    record_dbt_run,
    warehouse_lock,
)
from pipelines.worlds import prepare_world

pytestmark = pytest.mark.pipeline

BOOKS = [name for name in MARTS if name.startswith("books.")]


def published(folder: Path, home: Path, **sections: object) -> dict[str, Snapshot]:
    """The tables of books that the files of a folder make."""
    settings = Settings(
        world={"folder": folder}, runtime={"home": home, "memory_limit_mb": 512}, **sections
    )
    store = Store(home)
    ingest("amazon", prepare_world(settings), store, settings)
    with warehouse_lock(home):
        link_sources(store)
        done = dbt(settings, "build", "--select", "tag:books")
        assert done.returncode == 0, done.stdout[-4000:]
        record_dbt_run(home)
        return {name: export_mart(store, name, settings) for name in BOOKS}


def asin(n: int) -> str:
    return f"B{n:09d}"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    folder = tmp_path_factory.mktemp("books")
    old, new = folder / "data/amazon/2018", folder / "data/amazon/2023"
    also = {"also_buy": [asin(2), asin(99), asin(2), "x"]}
    page = '<span class="a-size-medium a-color-secondary"'
    write_lines(
        old / "meta_Books.json.gz",
        [
            meta_2018(asin(1), "Tom &amp; Ann", brand="Visit Amazon's Ann Ash Page", **also),
            meta_2018(asin(1), "Tom &amp; Ann", brand="Visit Amazon's Ann Ash Page", **also),
            meta_2018(asin(2), "In both editions"),
            meta_2018(asin(3), page),
            meta_2018(asin(4), "No text", description=[""]),
            meta_2018(asin(5), "No date", details={"Publisher:": "House"}),
            meta_2018(asin(6), "No category", category=["Books"]),
            meta_2018(asin(7), "Alone on its shelf", category=["Books", "Falconry"]),
        ],
    )
    write_lines(
        new / "meta_Books.jsonl.gz",
        [
            meta_2023(
                asin(2), "In both", author={"name": "Bo Birch"}, categories=["Books", "Poetry"]
            )
        ],
    )
    bare = {"description": [], "categories": [], "details": {}, "store": None}
    kindle = [meta_2023(asin(10 + n), f"Bare {n}", **bare) for n in range(3)]
    write_lines(new / "meta_Kindle_Store.jsonl.gz", kindle)
    write_lines(new / "meta_Toys_and_Games.jsonl", [meta_2023(asin(50), "A top")])
    write_lines(
        old / "Books.json",
        [
            review_2018("A1", asin(1), 3.0, day=15_000),
            review_2018("A1", asin(1), 4.0, day=15_001),  # changed their mind
            review_2018("A1", asin(2), 5.0, day=15_000),  # the later edition has reviews of it
            review_2018("A1", asin(4), 5.0, day=15_000),  # not published
            review_2018("A2", asin(77), 5.0, day=15_000),  # no record
        ],
    )
    write_lines(
        new / "Kindle_Store.jsonl",
        [
            *(review_2023("AE1", asin(10 + n), 5.0 - n, day=18_000 + n) for n in range(3)),
            review_2023("AE1", asin(2), 1.0, day=17_000),
            review_2023("AE2", asin(2), 2.0, day=17_000),
            review_2023("AE3", asin(1), 2.0, day=17_000, verified_purchase=False),
            review_2023("AE3", asin(10), 2.0, day=17_001),
        ],
    )
    write_lines(new / "Toys_and_Games.jsonl", [review_2023("AE1", asin(50))])
    # The five books that have all that is demanded fill a catalogue: two of a category are owed.
    return published(
        folder / "data",
        folder / "home",
        splits={"min_interactions": 2},
        books={"min_category_size": 2, "full_catalogue": 5},
    )


def test_a_book_has_what_its_records_say(tables: dict[str, Snapshot]) -> None:
    items = {row["item_id"]: row for row in tables["books.items"].read().to_dicts()}
    assert items[f"asin:{asin(1)}"] == {
        "item_id": f"asin:{asin(1)}",
        "title": "Tom & Ann",
        "year": 2006,
        "genres": ["Poetry"],
        "description": "A description.",
        "authors": ["Ann Ash"],
        "publisher": "House",
        "release_date": date(2006, 5, 2),
        "price": 9.99,
        "average_rating": None,
        "rating_number": None,
        "category": "Books",
        "edition": "2018",
        "category_path": ["Books", "Poetry"],
        "also_bought": [f"asin:{asin(2)}", f"asin:{asin(99)}"],
        "also_viewed": [],
        "bought_together": [],
    }
    both = items[f"asin:{asin(2)}"]
    assert (both["title"], both["edition"], both["authors"]) == ("In both", "2023", ["Bo Birch"])
    assert (both["average_rating"], both["rating_number"]) == (4.5, 2)


def test_what_suber_demands_is_demanded_where_a_file_has_it(tables: dict[str, Snapshot]) -> None:
    items = tables["books.items"]
    assert items.read()["item_id"].to_list() == [f"asin:{asin(n)}" for n in (1, 2, 10, 11, 12)]
    stats = items.manifest.stats
    assert stats["filtered"] == {
        "no_category": 1,
        "no_date": 1,
        "no_description": 1,
        "no_title": 1,
        "repeated_record": 2,
        "small_category": 1,
    }
    kindle = "amazon/2023/meta_Kindle_Store.jsonl.gz"
    assert stats["facts"] == {
        "least_category_size": 2,
        "titles_of_pages": 1,
        **{f"{field} not demanded of {kindle}": 3 for field in ("category", "date", "description")},
    }


def test_interactions_are_reviews_of_published_books_by_users_with_enough(
    tables: dict[str, Snapshot],
) -> None:
    interactions = tables["books.interactions"]
    rows = interactions.read()
    found = rows.select(
        pl.col("user_id").str.strip_prefix("amazon-user:"),
        pl.col("item_id").str.slice(-2).cast(pl.Int64),
        "rating",
    ).rows()
    assert found == [
        ("AE1", 2, 1.0),
        ("AE1", 10, 5.0),
        ("AE1", 11, 4.0),
        ("AE1", 12, 3.0),
        ("AE3", 1, 2.0),
        ("AE3", 10, 2.0),
    ]
    assert rows["rated_at"].min() == datetime(2016, 7, 18, tzinfo=UTC)
    assert rows["verified_purchase"].to_list() == [True] * 4 + [False, True]
    assert set(rows["scale"]) == {"1-5"}
    # Book 1's reviews of 2018 give way to that of 2023, though its record is of 2018; of A1's
    # two the first is counted as repeated.
    assert interactions.manifest.stats["filtered"] == {
        "in_later_edition": 2,
        "item_left_out": 1,
        "item_without_record": 1,
        "repeated_review": 1,
        "user_with_too_few_interactions": 1,
    }


def test_the_other_tables_cover_users_and_items(tables: dict[str, Snapshot]) -> None:
    assert tables["books.splits"].read().group_by("user_id", "split").len().sort(
        "user_id", "split"
    ).rows() == [
        ("amazon-user:AE1", "test", 1),
        ("amazon-user:AE1", "train", 2),
        ("amazon-user:AE1", "validation", 1),
        ("amazon-user:AE3", "test", 1),
        ("amazon-user:AE3", "train", 1),
    ]
    stats = tables["books.item_stats"].read()
    assert stats.select("item_id", "ratings").rows() == [
        (f"asin:{asin(n)}", count) for n, count in ((1, 1), (2, 1), (10, 2), (11, 1), (12, 1))
    ]
    users = tables["books.human_users"].read()
    assert users.select("user_id", "ratings", "mean_rating").rows() == [
        ("amazon-user:AE1", 4, 3.25),
        ("amazon-user:AE3", 2, 2.0),
    ]
    traits = {r["user_id"][-3:]: r for r in tables["books.user_traits"].read().to_dicts()}
    # AE1: alone on books 2, 11 and 12; on book 10 the mean of 5 and 2 is 3.5.
    assert traits["AE1"]["conformity"] == pytest.approx(1.5**2 / 4)
    assert traits["AE3"]["conformity"] == pytest.approx(1.5**2 / 2)
    assert (traits["AE1"]["activity"], traits["AE1"]["diversity"]) == (4, 1)
    assert traits["AE3"]["pickiness"] == "extremely_picky"


@pytest.mark.shared_data
def test_the_real_files_make_a_domain(shared_data: Path, tmp_path: Path) -> None:
    real = published(shared_data, tmp_path / "home", data={"amazon": {"edition": "auto"}})
    assert {name: snapshot.rows for name, snapshot in real.items()} == {
        "books.items": 148,
        "books.interactions": 150,
        "books.splits": 150,
        "books.item_stats": 148,
        "books.human_users": 30,
        "books.user_traits": 30,
        "books.training_traits": 30,
    }
    store = Store(tmp_path / "home")
    for name, snapshot in real.items():
        assert name in SUITES
        records = check_dataset(name, snapshot, store=store, settings=Settings())
        assert [r.name for r in records if r.blocks and not r.passed] == []
    import duckdb

    with duckdb.connect(tmp_path / "home/warehouse/warehouse.duckdb", read_only=True) as database:
        found = database.execute(
            "select records, repeated, titles_of_pages from intermediate.int_amazon__cleaning "
            "where category = 'Magazine_Subscriptions' and edition = '2018'"
        ).fetchone()
    # 3,153 unclosed tags and ten ends of an attribute.
    assert found == (3_385, 1_065, 3_163)
