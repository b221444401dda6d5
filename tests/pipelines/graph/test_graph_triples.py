"""Triples: a graph of five people and films worked by hand, and no leak."""

from datetime import UTC, datetime

import polars as pl
import pytest
from support.graphs import movie_triples

from pipelines.config import GraphSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError
from pipelines.graph import leaked, load_schema

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


def edges(frame, relation, head_type=None):
    rows = frame.filter(relation=relation)
    if head_type:
        rows = rows.filter(head_type=head_type)
    return set(rows.select("head", "tail").rows())


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
