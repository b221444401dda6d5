"""Anybody's items and ratings: what formats, names of columns and scales are read as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.given_worlds import GivenWorld

from pipelines.config import Settings
from pipelines.errors import ConfigError, SourceError
from pipelines.sources import open_source
from pipelines.sources.testing import check_source
from pipelines.worlds import prepare_world

ITEMS = "item,title,genre\na,Soup,Thai\nb,Cake,French\n"
RATINGS = "user,item,rating\nu,a,4\nu,b,2\n"


@pytest.fixture
def world(tmp_path: Path) -> GivenWorld:
    return GivenWorld(tmp_path, "own")


def read(
    world: GivenWorld, items: str | bytes, ratings: str | bytes, *names: str, **own: Any
) -> Any:
    """Rows of the items and the ratings, and the rejected rows."""
    world.write(f"own/{names[0] if names else 'items.csv'}", items)
    world.write(f"own/{names[1] if names else 'ratings.csv'}", ratings)
    found = world.ingest(data={"own": own}, ingest={"max_rejected_share": 0.9})
    tables = [found[f"raw.own_{name}"].read() for name in ("items", "ratings")]
    return *tables, world.rejected(found)


def test_recbole_atomic_files(world: GivenWorld) -> None:
    world.write("own/x.user", "user_id:token\tage:token\tgender:token\n7\t24\tM\n")
    items, ratings, rejected = read(
        world,
        'item_id:token\tmovie_title:token_seq\tclass:token_seq\n1\tToy "Story"\tWar Comedy\n',
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n7\t1\t3\t881250949.0\n",
        "x.item",
        "x.inter",
    )
    assert items.rows() == [("1", 'Toy "Story"', None, ["Comedy", "War"], None, [])]
    assert ratings.rows() == [("7", "1", 3.0, 1.0, 5.0, 881250949)]
    assert world.store.current("raw.own_users").read().rows() == [("7", "20-29", "M", None)]
    assert rejected == []


def test_book_crossing_is_quoted_latin1_with_semicolons(world: GivenWorld) -> None:
    items, ratings, rejected = read(
        world,
        '"ISBN";"Book-Title";"Book-Author";"Year-Of-Publication";"Publisher"\r\n'
        '"0X";"Café; a \\"story\\"";"King, Stephen";"1999";"Tor"\r\n'
        '"1X";"Two\r\nlines";"Poe";"0";"Tor"\r\n'.encode("cp1252"),
        '"User-ID";"ISBN";"Book-Rating"\r\n"3";"0X";"0"\r\n"3";"1X";"10"\r\n',
    )
    assert items["title"].to_list() == ['Café; a "story"', "Two\r\nlines"]
    assert items["genres"].to_list() == [["King, Stephen"], ["Poe"]]
    assert items["year"].to_list() == [1999, None]
    assert items["attributes"].to_list() == [["Publisher: Tor"]] * 2
    assert ratings.select("low", "high").row(0) == (0.0, 10.0)
    assert ratings["timestamp"].to_list() == [None, None]
    assert rejected == []


def test_json_lines_have_lists_and_numbers(world: GivenWorld) -> None:
    dish = {"recipe_id": 7, "name": "Soup", "cuisine": "Thai", "ingredients": ["lime", "rice"]}
    rated = {"user": "u", "recipe_id": 7, "rating": 4, "date": "2003-02-17"}
    items, ratings, rejected = read(
        world,
        f"{json.dumps(dish)}\nno JSON\n[1]\n",
        json.dumps(rated),
        "items.jsonl",
        "ratings.jsonl",
    )
    assert items["attributes"].to_list() == [["ingredients: lime", "ingredients: rice"]]
    assert ratings.row(0) == ("u", "7", 4.0, 1.0, 5.0, 1045440000)
    assert rejected == [("own/items.jsonl", 2, "not_json"), ("own/items.jsonl", 3, "not_object")]


def test_parquet(world: GivenWorld) -> None:
    world.write("own/x", "")
    frame = pl.DataFrame({"id": [1.0], "name": ["Soup"], "tags": [["hot", "red"]]})
    frame.write_parquet(world.folder / "own" / "items.parquet")
    world.write("own/ratings.tsv", "user\titem\tstars\nu\t1.0\t0.5\n")
    found = world.ingest()
    assert found["raw.own_items"].read()["genres"].to_list() == [["hot", "red"]]
    assert found["raw.own_ratings"].read().row(0) == ("u", "1", 0.5, 0.0, 1.0, None)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["Thai|Hot", "Thai"], [["Hot", "Thai"], ["Thai"]]),
        (["Thai; Hot", "Thai"], [["Hot", "Thai"], ["Thai"]]),
        (['"Thai, Hot"', "Thai"], [["Hot", "Thai"], ["Thai"]]),
        (["\"['Thai', 'Hot']\"", "[]"], [["Hot", "Thai"], []]),
        (["Thai Soup", ""], [["Thai Soup"], []]),
    ],
)
def test_genres_are_separated_by_anything(
    world: GivenWorld, cells: list[str], expected: list[list[str]]
) -> None:
    rows = "".join(f"{n},{cell}\n" for n, cell in enumerate(cells))
    items, *_ = read(world, f"item,genres\n{rows}", "user,item,rating\nu,0,4\n")
    assert items["genres"].to_list() == expected


@pytest.mark.parametrize(
    ("ratings", "ends"),
    [
        ((2, 4), (1, 5)),
        ((0.5, 4.5), (0.5, 5)),
        ((0, 1), (0, 1)),
        ((0, 9), (0, 10)),
        ((-3, 8), (-3, 8)),
    ],
)
def test_scale_is_the_smallest_usual_one(
    world: GivenWorld, ratings: tuple[float, float], ends: tuple[float, float]
) -> None:
    rows = "".join(f"u,{item},{r}\n" for item, r in zip("ab", ratings, strict=True))
    found = read(world, ITEMS, f"user,item,rating\n{rows}")[1]
    assert found.select("low", "high").row(0) == ends


def test_stated_scale_rejects_what_lies_beyond(world: GivenWorld) -> None:
    _, ratings, rejected = read(world, ITEMS, RATINGS, scale="1-3")
    assert ratings.rows() == [("u", "b", 2.0, 1.0, 3.0, None)]
    assert rejected == [("own/ratings.csv", 2, "off_scale")]


@pytest.mark.parametrize(
    "time", ["1000000000", "1000000000000", "2001-09-09 01:46:40", "2001-09-09T01:46:40Z"]
)
def test_times_in_any_unit_are_seconds(world: GivenWorld, time: str) -> None:
    found = read(world, ITEMS, f"user,item,rating,date\nu,a,4,{time}\n")[1]
    assert found["timestamp"].to_list() == [1_000_000_000]


def test_rejected_rows_name_line_reason_field_and_value(world: GivenWorld) -> None:
    ratings = "user,item,rating,time\nu,a,4,\n,a,4,\nu,a,good,\nu,b,4,soon\nu,b\n\nu,b,1,\n"
    *_, rejected = read(world, ITEMS, ratings)
    file = "own/ratings.csv"
    reasons = ["bad_id", "bad_rating", "bad_timestamp", "wrong_columns", "blank_line"]
    assert rejected == [(file, line, why) for line, why in enumerate(reasons, start=3)]
    shown = world.store.current("raw.own_rejected").read(["field", "value"]).rows()
    assert shown[:3] == [("user", None), ("rating", "good"), ("time", "soon")]


def test_latest_rating_and_first_item_of_a_key_stay_and_others_are_counted(
    world: GivenWorld,
) -> None:
    _, ratings, rejected = read(
        world,
        f"{ITEMS}a,Again,Thai\n",
        "user,item,rating,timestamp\nu,a,4,1000000009\nu,a,2,1000000001\n",
    )
    assert ratings["rating"].to_list() == [4.0]
    assert rejected == []
    stats = {d: world.store.current(d).manifest.stats for d in ("raw.own_items", "raw.own_ratings")}
    assert stats["raw.own_items"]["filtered"] == {"repeated_item": 1}
    assert stats["raw.own_ratings"]["filtered"] == {"repeated_rating": 1}


def test_columns_of_other_names_are_mapped(world: GivenWorld) -> None:
    columns = {"user": "who", "item": "what", "rating": "how", "genres": "sort"}
    _, ratings, _ = read(world, "what,sort\na,Thai\n", "how,who,what\n4,u,a\n", columns=columns)
    assert ratings.row(0)[:3] == ("u", "a", 4.0)


def test_missing_column_is_named_with_those_that_are_there(world: GivenWorld) -> None:
    with pytest.raises(SourceError) as caught:
        read(world, ITEMS, "who,item,rating\nu,a,4\n")
    assert "no column of user in the file of ratings" in str(caught.value)
    assert caught.value.hint == (
        "its columns are who, item, rating; name one in --columns (user: COLUMN)"
    )


def test_unknown_meaning_is_refused(world: GivenWorld) -> None:
    with pytest.raises(ConfigError, match="unknown meaning of a column: stars"):
        read(world, ITEMS, RATINGS, columns={"stars": "rating"})


def test_named_files_are_the_whole_world(tmp_path: Path) -> None:
    for name, text in (("i.csv", ITEMS), ("r.csv", RATINGS)):
        (tmp_path / name).write_text(text)
    own = {"name": "meals", "items": str(tmp_path / "i.csv"), "ratings": str(tmp_path / "r.csv")}
    settings = Settings(data={"own": {**own, "terms": "CC0"}}, runtime={"home": tmp_path / "home"})
    world = prepare_world(settings)
    assert (world.name, world.domains) == ("meals", {"own"})
    assert open_source("own", settings).licence.line == "Terms of the data's owner: CC0"


def test_ratings_without_items_are_refused(world: GivenWorld) -> None:
    world.write("own/ratings.csv", RATINGS)
    with pytest.raises(SourceError, match="no file of items"):
        world.ingest()


PUBLISHER = """
from pipelines.licences import Licence
from pipelines.sources.own import OwnSource
class Cookbook(OwnSource):
    file_names = {"items": "RAW_recipes.csv", "ratings": "RAW_interactions.csv"}
    columns = {"item": "nr", "genres": "sort"}
    scale = "0-5"
    licence = Licence("CC0", "https://example.org", "Public domain.")
"""


def test_publisher_is_a_declaration(world: GivenWorld, tmp_path: Path) -> None:
    (tmp_path / "cookbook.py").write_text(PUBLISHER)
    world.write("own/RAW_recipes.csv", "nr,name,sort\n1,Soup,Thai\n")
    world.write("own/RAW_interactions.csv", "user_id,nr,stars\nu,1,4\n")
    source = {"source": f"{tmp_path}/cookbook.py:Cookbook"}
    assert check_source(source["source"], world.folder)["raw.own_ratings"] == 1
    found = world.ingest(data={"own": source})
    assert found["raw.own_ratings"].read().row(0) == ("u", "1", 4.0, 0.0, 5.0, None)
    stats = found["raw.own_items"].manifest.stats
    assert stats["licence"] == "CC0: Public domain. https://example.org"
