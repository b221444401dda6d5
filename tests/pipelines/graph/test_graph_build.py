"""Triples of any domain from its tables, by the schema's lines alone."""

from datetime import UTC, date, datetime

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.config import GraphSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.graph import leaked, schema_violations, triple_batches

CONTRACT = CONTRACTS["movies.graph_triples"]


def interactions(rated, **extra):
    """Tables `interactions` and `splits` from (user, item, rating, part), on 1-5."""
    frame = pl.DataFrame(
        rated, schema=["user_id", "item_id", "rating", "split"], orient="row"
    ).with_columns(
        pl.col("rating").cast(pl.Float64),
        scale=pl.lit("1-5"),
        rated_at=pl.lit(datetime(2020, 1, 1, tzinfo=UTC)),
        **{name: pl.Series(values) for name, values in extra.items()},
    )
    return {
        "interactions": frame.drop("split"),
        "splits": frame.select("user_id", "item_id", "split"),
    }


BOOKS = {
    "items": pl.DataFrame(
        {
            "item_id": ["asin:A", "asin:B", "asin:C"],
            "title": ["One", "Two", "Three"],
            "genres": [["Crime"], ["Crime", "Poetry"], None],
            "authors": [["Ann Lee"], ["Ann Lee", "Bo Roe"], []],
            "publisher": ["Pine", None, " "],
            "tags": [["slow"], [], ["slow"]],
            "price": [0.0, 4.99, 5.0],
            "release_date": [date(1999, 5, 1), date(1999, 12, 31), None],
            "also_bought": [["asin:B", "asin:A", "asin:Z"], ["asin:C"], None],
            "also_viewed": [[], ["asin:A"], []],
        },
        schema_overrides={
            name: pl.List(pl.String)
            for name in ("genres", "authors", "tags", "also_bought", "also_viewed")
        },
    ),
    "users": pl.DataFrame(
        {"user_id": ["az:1", "az:2"], "age_band": [None, "25-34"], "occupation": [None, None]},
        schema_overrides={"occupation": pl.String},
    ),
    "user_tags": pl.DataFrame({"user_id": ["az:1"], "tag": ["slow"]}),
    **interactions(
        [
            ("az:1", "asin:A", 5, "train"),
            ("az:1", "asin:B", 3, "train"),
            ("az:1", "asin:C", 1, "test"),
            ("az:2", "asin:A", 1, "train"),
        ],
        verified_purchase=[True, False, True, None],
    ),
}
GAMES = {
    "items": pl.DataFrame(
        {
            "item_id": ["steam:10", "steam:20", "steam:30"],
            "genres": [["Action"], ["Action", "Indie"], []],
            "developer": ["Valve", "Tiny", None],
            "tags": [["FPS"], ["FPS"], None],
            "price": [9.99, None, 59.99],
            "release_date": ["2000-11-01", "2000-11-30", None],
        }
    ).with_columns(pl.col("release_date").str.to_date()),
    "users": pl.DataFrame({"user_id": ["steam-user:1"], "age_band": [None], "occupation": [None]}),
    **interactions(
        [("steam-user:1", "steam:10", 5, "train"), ("steam-user:1", "steam:20", 1, "train")],
        purchased=[True, True],
    ),
}


def built(domain, tables, **given):
    return pl.concat(triple_batches(domain, tables, GraphSettings(), **given))


def edges(frame, relation, head_type=None):
    rows = frame.filter(relation=relation)
    if head_type:
        rows = rows.filter(head_type=head_type)
    return set(rows.select("head", "tail").rows())


def test_books_become_triples_by_the_lines_of_the_schema():
    graph = built("books", BOOKS)
    CONTRACT.validate(graph)
    assert schema_violations(graph, "books").height == 0
    assert leaked(graph, BOOKS["splits"], "books").height == 0
    assert edges(graph, "reviewed", "User") == {
        ("az:1", "asin:A"), ("az:1", "asin:B"), ("az:2", "asin:A")
    }  # fmt: skip
    # A null flag is no purchase, and the purchase of C is held out.
    assert edges(graph, "purchased") == {("az:1", "asin:A")}
    assert edges(graph, "purchased-by") == {("asin:A", "az:1")}
    assert edges(graph, "liked") == {("az:1", "asin:A")}
    assert edges(graph, "disliked-by") == {("asin:A", "az:2")}
    assert edges(graph, "wrote") == {
        ("author:Ann Lee", "asin:A"), ("author:Ann Lee", "asin:B"), ("author:Bo Roe", "asin:B")
    }  # fmt: skip
    # Blank publishers, null genres and unknown occupations leave nothing.
    assert edges(graph, "published-by") == {("asin:A", "publisher:Pine")}
    assert edges(graph, "has-age") == {("az:2", "age:25-34")}
    assert not edges(graph, "has-occupation")
    assert edges(graph, "tags") == {("az:1", "tag:slow")}
    assert edges(graph, "contains", "Tag") == {("tag:slow", "asin:A"), ("tag:slow", "asin:C")}


def test_prices_fall_into_bands_and_dates_into_years_or_months():
    """Of 5, 10, 20, 40: 4.99 is 0-5, 5.00 is 5-10, 9.99 is 5-10, 59.99 is 40+."""
    books, games = built("books", BOOKS), built("games", GAMES)
    assert edges(books, "has-price") == {
        ("asin:A", "price:free"), ("asin:B", "price:0-5"), ("asin:C", "price:5-10")
    }  # fmt: skip
    assert edges(books, "released-on-date") == {("asin:A", "date:1999"), ("asin:B", "date:1999")}
    assert edges(games, "has-price") == {("steam:10", "price:5-10"), ("steam:30", "price:40+")}
    assert edges(games, "released-on-date") == {
        ("steam:10", "date:2000-11"), ("steam:20", "date:2000-11")
    }  # fmt: skip
    bad = GAMES | {"items": GAMES["items"].with_columns(price=pl.lit(-1.0))}
    with pytest.raises(ContractError, match=r"3 prices are below 0: games.items.price"):
        built("games", bad)


def test_lists_of_other_books_join_books_of_the_catalogue():
    """A's list names B, itself and a book nobody has: one edge."""
    graph = built("books", BOOKS)
    assert edges(graph, "also-bought") == {("asin:A", "asin:B"), ("asin:B", "asin:C")}
    assert edges(graph, "also-bought-by") == {("asin:B", "asin:A"), ("asin:C", "asin:B")}
    assert edges(graph, "also-viewed") == {("asin:B", "asin:A")}
    assert not edges(graph, "bought-together"), "the source has no such column"


def test_sentiment_nodes_are_what_one_user_felt():
    graph = built("books", BOOKS)
    assert edges(graph, "has-review-sentiment") == {
        ("az:1", "sentiment:az:1:positive"),
        ("az:1", "sentiment:az:1:neutral"),
        ("az:2", "sentiment:az:2:negative"),
    }
    assert edges(graph, "reviewed", "ReviewSentiment") == {
        ("sentiment:az:1:positive", "asin:A"),
        ("sentiment:az:1:neutral", "asin:B"),
        ("sentiment:az:2:negative", "asin:A"),
    }


def test_games_become_triples_by_the_lines_of_the_schema():
    graph = built("games", GAMES)
    CONTRACT.validate(graph)
    assert schema_violations(graph, "games").height == 0
    assert edges(graph, "developed") == {
        ("developer:Valve", "steam:10"), ("developer:Tiny", "steam:20")
    }  # fmt: skip
    assert len(edges(graph, "purchased")) == 2
    assert not edges(graph, "published-by")


def test_a_column_that_must_be_there_is_missed_by_name():
    bare = BOOKS | {"items": BOOKS["items"].drop("authors")}
    with pytest.raises(
        ContractError, match=r"no column authors for Book written-by: books\.items .*schema\.yaml"
    ):
        built("books", bare)
    without = {name: table for name, table in BOOKS.items() if name != "user_tags"}
    assert not edges(built("books", without), "tags"), "an optional table may be missing"
    no_flag = BOOKS | {"interactions": BOOKS["interactions"].drop("verified_purchase")}
    assert not edges(built("books", no_flag), "purchased")
    with pytest.raises(ConfigError, match="no graph schema for this domain: music"):
        built("music", BOOKS)


@pytest.mark.parametrize("rows", [1, 2, 7, 10_000])
@pytest.mark.parametrize(("domain", "tables"), [("books", BOOKS), ("games", GAMES)])
def test_batches_are_one_ordered_table_whatever_their_size(domain, tables, rows):
    batches = list(triple_batches(domain, tables, GraphSettings(), rows=rows))
    whole = pl.concat(batches)
    assert whole.equals(whole.sort("head", "relation", "tail"))
    assert_frame_equal(whole, built(domain, tables))
    assert len(batches) == 1 if rows == 10_000 else len(batches) > 2
    assert all(batch.height for batch in batches)


def test_scans_give_what_frames_give():
    scans = {name: table.lazy() for name, table in BOOKS.items()}
    assert_frame_equal(built("books", scans), built("books", BOOKS))


def movie_world(users, films, rng):
    """A random world whose ids are not in the order of their numbers."""
    cells = [(u, i) for u in range(users) for i in range(films) if rng.random() < 0.4]
    rated = [
        (f"ml-user:{u}", f"ml:{i}", float(rng.integers(1, 6)),
         str(rng.choice(["train", "validation", "test"], p=[0.8, 0.1, 0.1])))
        for u, i in cells
    ]  # fmt: skip
    names = [[f"N{n}" for n in np.flatnonzero(rng.random(4) < 0.5)] for _ in range(films)]
    items = pl.DataFrame(
        {
            "item_id": [f"ml:{i}" for i in range(films)],
            "genres": names,
            "directors": names,
            "actors": names,
            "year": [1990 + int(n) for n in rng.integers(0, 3, films)],
        },
        schema_overrides={n: pl.List(pl.String) for n in ("genres", "directors", "actors")},
    )
    people = pl.DataFrame(
        {
            "user_id": [f"ml-user:{u}" for u in range(users)],
            "age_band": ["young", "old"] * (users // 2),
            "occupation": [None, "artist"] * (users // 2),
        }
    )
    return {"items": items, "users": people, **interactions(rated)}


def test_no_training_interaction_is_an_error():
    tables = movie_world(2, 2, np.random.default_rng(0))
    with pytest.raises(ContractError, match=r"no training interaction: movies\.splits"):
        built("movies", tables | interactions([("ml-user:0", "ml:0", 3, "test")]))
    with pytest.raises(ContractError, match="1 interactions have no split"):
        built(
            "movies",
            tables
            | {
                "interactions": interactions([("ml-user:0", "ml:0", 3, "test")])["interactions"],
                "splits": pl.DataFrame(
                    schema={"user_id": pl.String, "item_id": pl.String, "split": pl.String}
                ),
            },
        )
