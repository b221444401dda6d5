"""Triples of any domain from its tables, by the schema's lines alone."""

from datetime import UTC, date, datetime

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.graphs import movie_triples

from pipelines.config import GraphSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.graph import leaked, load_schema, schema_violations, triple_batches

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
    shuffled = {
        name: table.sample(fraction=1.0, shuffle=True, seed=5) for name, table in tables.items()
    }
    assert_frame_equal(whole, built(domain, shuffled, rows=rows))
    assert len(batches) == 1 if rows == 10_000 else len(batches) > 2
    assert all(batch.height for batch in batches)


def test_scans_give_what_frames_give():
    scans = {name: table.lazy() for name, table in BOOKS.items()}
    assert_frame_equal(built("books", scans), built("books", BOOKS))


def test_no_training_interaction_is_an_error():
    held_out = interactions([("steam-user:1", "steam:10", 3, "test")], purchased=[True])
    with pytest.raises(ContractError, match=r"no training interaction: games\.splits"):
        built("games", GAMES | held_out)


# -- films: five people and films, worked by hand ----------------------------------------------

ITEMS = pl.DataFrame(
    {
        "item_id": ["ml:1", "ml:2", "ml:3"],
        "year": [1995, None, 1995],
        "genres": [["Comedy", "Drama"], ["Drama"], []],
        "directors": [["Ann Lee", "Bo Roe"], [], []],
        "actors": [["Cy Day"], ["Ann Lee", "Cy Day"], []],
    },
    schema_overrides={n: pl.List(pl.String) for n in ("genres", "directors", "actors")},
)
USERS = pl.DataFrame(
    {
        "user_id": ["ml-user:1", "ml-user:2"],
        "age_band": [None, "25-34"],
        "occupation": [None, "artist"],
    }
)
RATED = [
    # user, film, stars, part; on 1-5 the stars are 5, 1, 4.11, 3.67
    ("ml-user:1", "ml:1", 5.0, "train"),
    ("ml-user:1", "ml:2", 0.5, "train"),
    ("ml-user:1", "ml:3", 4.0, "validation"),
    ("ml-user:2", "ml:1", 4.0, "train"),
    ("ml-user:2", "ml:2", 3.5, "train"),
    ("ml-user:2", "ml:3", 0.5, "test"),
]


def tables(rated=RATED, scale="0.5-5"):
    frame = pl.DataFrame(
        rated, schema=["user_id", "item_id", "rating", "split"], orient="row"
    ).with_columns(scale=pl.lit(scale), rated_at=pl.lit(datetime(2020, 1, 1, tzinfo=UTC)))
    return frame.drop("split"), frame.select("user_id", "item_id", "split")


def triples(rated=RATED, items=ITEMS, users=USERS, scale="0.5-5", **given):
    return movie_triples(items, *tables(rated, scale), users, GraphSettings(**given))


def test_interactions_of_the_training_split_in_both_directions():
    graph = triples()
    pairs = {(u, i) for u, i, _, part in RATED if part == "train"}
    for forward, backward in (("rated", "rated-by"), ("viewed", "viewed-by")):
        assert edges(graph, forward) == pairs
        assert edges(graph, backward) == {(i, u) for u, i in pairs}
    training = [row for row in RATED if row[3] == "train"]
    assert graph.equals(triples(training)), "held-out rows might as well not exist"


def test_liked_and_disliked_compare_the_rating_on_a_scale_of_five():
    graph = triples()
    # 3.5 stars are 3.67 of 5: neither.
    assert edges(graph, "liked") == {("ml-user:1", "ml:1"), ("ml-user:2", "ml:1")}
    assert edges(graph, "disliked") == {("ml-user:1", "ml:2")}
    assert edges(graph, "disliked-by") == {("ml:2", "ml-user:1")}
    strict = triples(liked_from=4.5, disliked_to=1.0)
    assert edges(strict, "liked") == {("ml-user:1", "ml:1")}
    assert edges(strict, "disliked") == {("ml-user:1", "ml:2")}


@pytest.mark.parametrize(
    ("scale", "rating", "expected"),
    [("1-5", 4.0, "liked"), ("1-5", 2.0, "disliked"), ("1-5", 3.0, None),
     ("0.5-5", 4.0, "liked"), ("0.5-5", 3.5, None), ("0.5-5", 1.5, "disliked"),
     ("0.5-5", 2.0, None),
     ("1-10", 7.0, None), ("1-10", 8.0, "liked"), ("1-10", 3.0, "disliked")],
)  # fmt: skip
def test_thresholds_are_met_exactly_on_every_scale(scale, rating, expected):
    """On 1-10, 7 is 3.67 of 5, 8 is 4.11 and 3 is 1.89; two stars of 0.5-5 are 2.33."""
    graph = triples([("ml-user:1", "ml:1", rating, "train")], scale=scale)
    found = set(graph["relation"]) & {"liked", "disliked"}
    assert found == ({expected} if expected else set())


def test_a_rating_node_is_one_whole_rating_of_one_user():
    """User 2 gave 4 and 3.5 stars: 4.11 and 3.67 of 5, both 4 as whole ratings."""
    graph = triples()
    assert edges(graph, "gives-rating") == {
        ("ml-user:1", "rating:ml-user:1:5"),
        ("ml-user:1", "rating:ml-user:1:1"),
        ("ml-user:2", "rating:ml-user:2:4"),
    }
    assert edges(graph, "given-to") == {
        ("rating:ml-user:1:5", "ml:1"),
        ("rating:ml-user:1:1", "ml:2"),
        ("rating:ml-user:2:4", "ml:1"),
        ("rating:ml-user:2:4", "ml:2"),
    }


def test_attributes_of_films_in_both_directions():
    graph = triples()
    assert edges(graph, "belongs-to") == {
        ("ml:1", "genre:Comedy"),
        ("ml:1", "genre:Drama"),
        ("ml:2", "genre:Drama"),
    }
    assert edges(graph, "contains", "ReleaseYear") == {("year:1995", "ml:1"), ("year:1995", "ml:3")}
    assert edges(graph, "directed") == {("director:Ann Lee", "ml:1"), ("director:Bo Roe", "ml:1")}
    assert edges(graph, "acts-in") == {
        ("actor:Cy Day", "ml:1"),
        ("actor:Ann Lee", "ml:2"),
        ("actor:Cy Day", "ml:2"),
    }


def test_what_a_source_does_not_know_is_absent():
    graph = triples()
    assert edges(graph, "has-occupation") == {("ml-user:2", "occupation:artist")}
    assert edges(graph, "has-users") == {
        ("occupation:artist", "ml-user:2"),
        ("age:25-34", "ml-user:2"),
    }
    blank = USERS.with_columns(age_band=pl.lit(None, pl.String), occupation=pl.lit(None, pl.String))
    without = set(triples(users=blank)["relation"])
    assert without.isdisjoint({"has-occupation", "has-age", "has-users"})
    ids = triples().select(pl.concat([pl.col("head"), pl.col("tail")]).unique()).to_series()
    assert not ids.str.contains(r"(?i)null|none|:$").any()


def test_the_result_keeps_the_contract_and_its_order():
    graph = triples()
    assert CONTRACTS["movies.graph_triples"].validate(graph).equals(graph)
    assert graph.equals(graph.sort("head", "relation", "tail"))


def test_every_relation_of_the_schema_has_its_inverse_edge_for_edge():
    graph = triples()
    for edge in (e for e in load_schema("movies").edges if e.inverse):
        there = graph.filter(
            head_type=edge.head_type, relation=edge.relation, tail_type=edge.tail_type
        )
        back = graph.filter(
            head_type=edge.tail_type, relation=edge.inverse, tail_type=edge.head_type
        )
        assert there.height == back.height > 0
        assert set(there.select("head", "tail").rows()) == set(back.select("tail", "head").rows())


def test_leaked_lists_held_out_pairs_in_either_direction():
    graph = triples()
    bad = pl.DataFrame(
        [
            ("ml-user:1", "User", "liked", "ml:3", "Movie"),
            ("ml:3", "Movie", "rated-by", "ml-user:2", "User"),
            ("ml-user:1", "User", "viewed", "ml:1", "Movie"),
            ("rating:ml-user:2:1", "Rating", "given-to", "ml:3", "Movie"),
            ("rating:ml-user:2:4", "Rating", "given-to", "ml:1", "Movie"),
        ],
        schema=graph.columns,
        orient="row",
    )
    found = leaked(bad, tables()[1])
    assert found.select("relation", "split").rows() == [
        ("liked", "validation"),
        ("rated-by", "test"),
        ("given-to", "test"),
    ]


def test_rows_that_belong_nowhere_are_refused():
    interactions, splits = tables()
    with pytest.raises(ContractError, match="1 interactions have no split") as caught:
        movie_triples(ITEMS, interactions, splits.head(5), USERS, GraphSettings())
    assert caught.value.details["rows"] == [{"user_id": "ml-user:2", "item_id": "ml:3"}]
    with pytest.raises(ContractError, match="2 interactions are of items that are not in"):
        movie_triples(ITEMS.head(2), interactions, splits, USERS, GraphSettings())


def test_a_pair_that_is_in_two_splits_is_caught_as_a_leak():
    interactions, splits = tables()
    doubled = pl.concat([splits, splits.head(1).with_columns(split=pl.lit("test"))])
    with pytest.raises(ContractError, match="held-out interactions are in the graph"):
        movie_triples(ITEMS, interactions, doubled, USERS, GraphSettings())
