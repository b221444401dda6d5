"""The Amazon loader: both editions as published, faulty rows listed, faulty files named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from support.amazon_files import meta_2018, meta_2023, review_2018, review_2023, write_lines

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.sources import ingest
from pipelines.sources.amazon import AmazonSource, find_files
from pipelines.store import Snapshot, Store
from pipelines.worlds import prepare_world

A, B = "000000000A", "B00000000B"


def settings_for(
    folder: Path, amazon: dict[str, Any] | None = None, limit: float = 1.0
) -> Settings:
    return Settings(
        world={"folder": folder},
        runtime={"home": folder.parent / "home", "threads": 1},
        ingest={"max_rejected_share": limit},
        data={"amazon": amazon or {}},
    )


def ingested(folder: Path, limit: float = 1.0, **amazon: Any) -> dict[str, Snapshot]:
    settings = settings_for(folder, amazon, limit)
    found = ingest("amazon", prepare_world(settings), Store(settings.runtime.home), settings)
    return {name.removeprefix("raw.amazon_"): snapshot for name, snapshot in found.items()}


def rejected(tables: dict[str, Snapshot]) -> list[tuple[int, str]]:
    return tables["rejected"].read().select("line", "reason").rows()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with one file of each format, one of them not packed."""
    folder = tmp_path / "data"
    old, new = folder / "amazon/2018", folder / "amazon/2023"
    style = {"style": {"Format:": " Hardcover"}, "vote": "1,024"}
    write_lines(old / "Books_5.json.gz", [review_2018("A1", A, 4.0, **style), review_2018("A2", A)])
    write_lines(old / "meta_Books.json.gz", [meta_2018(A, "One"), meta_2018(A, "One")])
    write_lines(new / "Kindle_Store.jsonl", [review_2023("AE1", B, 2.0)])
    write_lines(new / "meta_Kindle_Store.jsonl.gz", [meta_2023(B, "Two", price="from 1.50")])
    return folder


# --- rows -----------------------------------------------------------------------------------


def test_both_editions_come_out_as_published(data: Path) -> None:
    tables = ingested(data)
    first, second = tables["reviews_2018"].read().to_dicts()
    assert first == {
        "category": "Books",
        "file": "amazon/2018/Books_5.json.gz",
        "line": 1,
        "reviewer_id": "A1",
        "asin": A,
        "overall": 4.0,
        "unix_review_time": 15_000 * 86_400,
        "verified": True,
        "vote": '"1,024"',
        "summary": "Good",
        "review_text": "Good.",
        "style": '{"Format:":" Hardcover"}',
    }
    assert (second["reviewer_id"], second["line"], second["style"]) == ("A2", 2, None)
    (review,) = tables["reviews_2023"].read().to_dicts()
    assert (review["user_id"], review["parent_asin"], review["rating"]) == ("AE1", B, 2.0)
    assert (review["timestamp"], review["helpful_vote"]) == (18_000 * 86_400_000, 0)
    (product,) = tables["meta_2023"].read().to_dicts()
    assert (product["price"], product["bought_together"]) == ('"from 1.50"', None)
    assert orjson.loads(product["details"]) == {"Publisher": "House (May 2, 2006)"}


def test_repeated_records_are_kept_for_dbt_to_count(data: Path) -> None:
    tables = ingested(data, limit=0.0)
    assert tables["meta_2018"].read().select("line", "title").rows() == [(1, "One"), (2, "One")]
    assert tables["rejected"].rows == 0


def test_rows_in_are_rows_out_and_rejected_of_every_file(data: Path) -> None:
    write_lines(data / "amazon/2018/Toys_and_Games.json.gz", [review_2018("A1", B), b"{}", b"x"])
    tables = ingested(data)
    stats = tables["reviews_2018"].manifest.stats
    assert stats["files"] == {
        "amazon/2018/Books_5.json.gz": {"rows_read": 2, "rejected": 0},
        "amazon/2018/Toys_and_Games.json.gz": {"rows_read": 3, "rejected": 2},
    }
    assert (stats["rows_read"], stats["rejected"], tables["reviews_2018"].rows) == (5, 2, 3)
    assert stats["reasons"] == {"bad_id": 1, "not_json": 1}
    assert stats["filled"]["style"] == 1


GOOD_2018 = review_2018("A1", A).decode()
GOOD_2023 = review_2023("AE1", B).decode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (GOOD_2018.replace('"Good."', '"They said "good" of it."'), "not_json"),
        (GOOD_2018[:60], "not_json"),
        (GOOD_2018.replace('"overall":5.0', '"overall":6.0'), "off_scale"),
        (GOOD_2018.replace('"overall":5.0', '"overall":0.0'), "off_scale"),
        (GOOD_2018.replace('"overall":5.0', '"overall":3.5'), "off_scale"),
        (GOOD_2018.replace('"overall":5.0', '"overall":"4,5"'), "bad_rating"),
        (GOOD_2018.replace('"overall":5.0,', ""), "bad_rating"),
        (GOOD_2018.replace('"A1"', '""'), "bad_id"),
        (GOOD_2018.replace('"A1"', "1.5"), "bad_id"),
        (GOOD_2018.replace(A, "../etc"), "bad_id"),
        (GOOD_2018.replace("1296000000", "1296000000000"), "bad_timestamp"),
        (GOOD_2018.replace("1296000000", '"06 17, 2018"'), "bad_timestamp"),
        (GOOD_2018.replace('"verified":true', '"verified":"yes"'), "wrong_type"),
        ("", "blank_line"),
        ("[]", "not_object"),
    ],
)
def test_a_faulty_review_of_2018_is_listed_with_line_and_reason(
    data: Path, line: str, reason: str
) -> None:
    path = data / "amazon/2018/Books_5.json.gz"
    write_lines(path, [GOOD_2018.encode(), line.encode(), GOOD_2018.encode()])
    tables = ingested(data)
    assert rejected(tables) == [(2, reason)]
    assert tables["rejected"].read()["text"][0] == line[:500]
    assert tables["reviews_2018"].read()["line"].to_list() == [1, 3]


def test_numbers_of_pandas_are_read(data: Path) -> None:
    line = GOOD_2018.replace('"A1"', "17").replace('"overall":5.0', '"overall":"5"')
    line = line.replace("1296000000", '"1296000000.0"').replace('"verified":true', '"verified":1.0')
    write_lines(data / "amazon/2018/Books_5.json.gz", [line.encode(), b"", b" "])
    tables = ingested(data, limit=0.0)
    row = tables["reviews_2018"].read().row(0, named=True)
    assert (row["reviewer_id"], row["overall"], row["verified"]) == ("17", 5.0, True)
    assert row["unix_review_time"] == 1_296_000_000


def test_structures_as_text_and_nested_lists_are_read(data: Path) -> None:
    product = orjson.loads(meta_2023(B))
    details = '{"Publisher": "House (May 2, 2006)"}'
    nested = {"details": details, "categories": [["Books", "Romance"]], "price": "9.99"}
    literal = {"details": "{'Publisher': None}", "categories": "['Books', 'Romance']"}
    broken = {"details": '{"Publisher": '}
    path = data / "amazon/2023/meta_Kindle_Store.jsonl.gz"
    write_lines(path, [orjson.dumps(product | each) for each in (nested, literal, broken)])
    tables = ingested(data)
    products = tables["meta_2023"].read()
    assert [orjson.loads(d) for d in products["details"]] == [
        {"Publisher": "House (May 2, 2006)"},
        {"Publisher": None},
    ]
    assert products["categories"].to_list() == [["Books", "Romance"]] * 2
    fault = tables["rejected"].read().row(0, named=True)
    assert (fault["reason"], fault["field"], fault["value"]) == (
        "wrong_type",
        "details",
        '{"Publisher": ',
    )


@pytest.mark.parametrize(
    ("changed", "field", "value"),
    [
        (('"parent_asin"', '"other"'), "parent_asin", None),
        (("1555200000000", "-5364000000"), "timestamp", "-5364000000"),
        (("1555200000000", "1555200000"), "timestamp", "1555200000"),
        (('"rating":5.0', '"rating":3.5'), "rating", "3.5"),
    ],
)
def test_a_rejected_row_names_field_and_value(
    data: Path, changed: tuple[str, str], field: str, value: str | None
) -> None:
    bad = GOOD_2023.replace(*changed).encode()
    write_lines(data / "amazon/2023/Kindle_Store.jsonl", [GOOD_2023.encode(), bad])
    fault = ingested(data)["rejected"].read().row(0, named=True)
    assert (fault["line"], fault["field"], fault["value"]) == (2, field, value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (GOOD_2023.replace('"rating":5.0', '"rating":-1.0').encode(), "off_scale"),
        (GOOD_2023.replace('"rating":5.0', '"rating":NaN').encode(), "bad_rating"),
        (GOOD_2023.replace('"parent_asin"', '"other"').encode(), "bad_id"),
        (GOOD_2023.replace("1555200000000", "1555200000.5").encode(), "bad_timestamp"),
        (GOOD_2023.replace("Good.", "\xff").encode("latin-1"), "invalid_utf8"),
    ],
)
def test_a_faulty_review_of_2023_is_listed_with_line_and_reason(
    data: Path, line: bytes, reason: str
) -> None:
    write_lines(data / "amazon/2023/Kindle_Store.jsonl", [line, GOOD_2023.encode()])
    tables = ingested(data)
    assert rejected(tables) == [(1, reason)]
    assert tables["reviews_2023"].read()["line"].to_list() == [2]


def test_too_many_faulty_rows_of_one_file_stop_the_run_whatever_the_others_hold(
    data: Path,
) -> None:
    write_lines(data / "amazon/2018/Large.json.gz", [GOOD_2018.encode()] * 500)
    lines = [GOOD_2018.encode()] * 97 + [b'{"a":"b "c""}'] * 3
    write_lines(data / "amazon/2018/Small.json.gz", lines)
    with pytest.raises(SourceError, match=r"3 of 100 rows rejected.*not_json 3: amazon/2018/Small"):
        ingested(data, limit=0.01)
    assert ingested(data, limit=0.03)["rejected"].rows == 3


# --- files ----------------------------------------------------------------------------------


def test_a_cut_gzip_file_fails_with_its_name_and_leaves_no_table(data: Path) -> None:
    path = data / "amazon/2023/meta_Kindle_Store.jsonl.gz"
    write_lines(path, [meta_2023(f"B{n:09d}") for n in range(2_000)])
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(SourceError, match=r"whole gzip file was expected.*meta_Kindle_Store"):
        ingested(data)
    assert not Store(data.parent / "home").has("raw.amazon_reviews_2018")


@pytest.mark.parametrize("content", [b"", b"reviewerID,asin,overall\nA1,B00000000B,5\n"])
def test_an_empty_file_or_one_of_another_format_is_named(data: Path, content: bytes) -> None:
    (data / "amazon/2018/Other.json").write_bytes(content)
    with pytest.raises(SourceError, match=r"amazon/2018/Other\.json") as caught:
        ingested(data, limit=0.01)
    assert "expected one JSON object per line" in str(caught.value) or "not_json" in str(
        caught.value
    )


def test_a_file_that_changes_while_it_is_read_is_noticed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(data)
    world = prepare_world(settings)
    path = data / "amazon/2023/Kindle_Store.jsonl"
    real = AmazonSource.read

    def touched(self: AmazonSource, folder: Path, work: Any) -> Any:
        yield from real(self, folder, work)
        with path.open("ab") as file:
            file.write(b"\n")
        os.utime(path, (1, 1))

    monkeypatch.setattr(AmazonSource, "read", touched)
    with pytest.raises(SourceError, match="changed while it was read"):
        ingest("amazon", world, Store(settings.runtime.home), settings)


# --- which files ----------------------------------------------------------------------------


def test_files_are_sorted_out_by_folder_and_name(data: Path) -> None:
    (data / "amazon/2018/readme.txt").write_text("not a file of this source")
    found = find_files(data, settings_for(data).data.amazon)
    assert [(f.name, f.edition, f.kind, f.category) for f in found] == [
        ("amazon/2018/Books_5.json.gz", "2018", "reviews", "Books"),
        ("amazon/2018/meta_Books.json.gz", "2018", "meta", "Books"),
        ("amazon/2023/Kindle_Store.jsonl", "2023", "reviews", "Kindle_Store"),
        ("amazon/2023/meta_Kindle_Store.jsonl.gz", "2023", "meta", "Kindle_Store"),
    ]


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("books.jsonl.gz", "Books"),
        ("META_BOOKS.jsonl", "Books"),
        ("Kindle-Store.JSONL", "Kindle_Store"),
        ("reviews_Books_5.json.gz", "Books"),
        ("meta_sports & outdoors.json", "Sports_and_Outdoors"),
        ("AMAZON_FASHION.json", "AMAZON_FASHION"),
        ("Toys_small.json", "Toys_small"),
    ],
)
def test_categories_are_known_in_other_spellings(tmp_path: Path, name: str, category: str) -> None:
    write_lines(tmp_path / "amazon/2018" / name, [b"{}"])
    (found,) = find_files(tmp_path, settings_for(tmp_path).data.amazon)
    assert found.category == category
    assert found.kind == ("meta" if "meta" in name.lower() else "reviews")


def test_a_name_that_only_resembles_books_is_an_error(tmp_path: Path) -> None:
    write_lines(tmp_path / "amazon/2018/meta_Books_small.json", [b"{}"])
    with pytest.raises(SourceError, match=r"resembles a source file's \(Books, Kindle_Store\)"):
        find_files(tmp_path, settings_for(tmp_path).data.amazon)


def test_files_beside_the_folders_are_of_the_edition_that_their_suffix_says(tmp_path: Path) -> None:
    for name in ("Books.json", "Books.jsonl.gz"):
        write_lines(tmp_path / "amazon" / name, [b"{}"])
    found = find_files(tmp_path, settings_for(tmp_path).data.amazon)
    assert {f.path.name: f.edition for f in found} == {
        "Books.json": "2018",
        "Books.jsonl.gz": "2023",
    }


def test_categories_and_edition_are_a_choice(data: Path) -> None:
    tables = ingested(data, categories=["Books"])
    assert tables["reviews_2018"].rows == 2
    assert tables["reviews_2023"].rows == 0
    tables = ingested(data, edition="2023")
    assert (tables["reviews_2018"].rows, tables["reviews_2023"].rows) == (0, 1)
    with pytest.raises(SourceError, match=r"no files of Musik.*found: Books, Kindle_Store"):
        ingested(data, categories=["Books", "Musik"])


def test_two_files_of_the_same_reviews_are_refused(data: Path) -> None:
    write_lines(data / "amazon/2018/Books.json.gz", [review_2018("A1", A)])
    with pytest.raises(SourceError, match=r"two files of Books \(reviews, 2018\)"):
        ingested(data)


def test_named_files_stand_for_those_of_the_folder(data: Path, tmp_path: Path) -> None:
    elsewhere = write_lines(tmp_path / "disk/Books.jsonl.gz", [review_2023("AE7", A)])
    tables = ingested(data, reviews=[str(elsewhere)])
    assert tables["reviews_2018"].rows == 0
    assert tables["reviews_2023"].read().select("user_id", "file").rows() == [
        ("AE7", "Books.jsonl.gz")
    ]
    assert tables["meta_2018"].rows == 2  # only reviews were named
    with pytest.raises(SourceError, match=r"not the name of a file of meta"):
        ingested(data, meta=[str(elsewhere)])


def test_which_domains_there_are_follows_the_categories(data: Path) -> None:
    source = AmazonSource(settings_for(data))
    assert source.feeds(data) == {"books"}
    write_lines(data / "amazon/2023/meta_Toys_and_Games.jsonl", [meta_2023(B)])
    assert source.feeds(data) == {"books", "products"}
    assert not source.present(data / "nothing")
    assert source.feeds(data / "nothing") == frozenset()


def test_equal_files_are_read_once(data: Path) -> None:
    first, again = ingested(data), ingested(data)
    assert {k: v.version for k, v in first.items()} == {k: v.version for k, v in again.items()}
    assert again["meta_2018"].manifest.created_at == first["meta_2018"].manifest.created_at


# --- real files -----------------------------------------------------------------------------


@pytest.mark.pipeline
@pytest.mark.shared_data
def test_every_line_of_the_real_files_is_taken(shared_data: Path, tmp_path: Path) -> None:
    settings = Settings(world={"folder": shared_data}, runtime={"home": tmp_path / "home"})
    tables = ingest("amazon", prepare_world(settings), Store(tmp_path / "home"), settings)
    rows = {name.removeprefix("raw.amazon_"): s.rows for name, s in tables.items()}
    assert rows == {
        "reviews_2018": 2_972,
        "meta_2018": 1_547 + 3_385,
        "reviews_2023": 20 * 150 + 5,
        "meta_2023": 2_782,
        "rejected": 0,
    }
    magazines = (
        tables["raw.amazon_meta_2018"].read().filter(pl.col("category") == "Magazine_Subscriptions")
    )
    assert magazines["title"].str.starts_with('<span class="a-size-medium').sum() == 3_153
    assert magazines.height - magazines["asin"].n_unique() == 1_065
