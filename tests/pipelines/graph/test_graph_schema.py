"""Schemas: what each domain's graph may hold, and triples that break it."""

import polars as pl
import pytest

from pipelines.errors import ConfigError
from pipelines.graph import load_schema, schema_violations
from pipelines.graph._schema import domains

COLUMNS = ["head", "head_type", "relation", "tail", "tail_type"]
#: Node types as SimUSER's appendix D lists them.
TYPES = {
    "movies": {"User", "Movie", "Genre", "Director", "Actor", "Rating", "ReleaseYear",
               "Occupation", "Age"},
    "books": {"User", "Book", "Genre", "Author", "Publisher", "Tag", "ReviewSentiment", "Price",
              "ReleaseDate", "Age", "Occupation"},
    "games": {"User", "Game", "Genre", "Developer", "Publisher", "Tag", "ReviewSentiment",
              "Price", "ReleaseDate", "Age", "Occupation"},
}  # fmt: skip
#: Relations as it lists them (those of games and books without the inverses it leaves unnamed).
RELATIONS = {
    "movies": {"rated-by", "rated", "viewed-by", "viewed", "given-to", "gives-rating", "liked-by",
               "liked", "disliked-by", "disliked", "has-occupation", "released-in", "contains",
               "has-users", "belongs-to", "directed-by", "directed", "features", "acts-in",
               "has-age"},
    "games": {"reviewed-by", "reviewed", "viewed-by", "viewed", "purchased-by", "purchased",
              "liked-by", "liked", "disliked-by", "disliked", "developed-by", "published-by",
              "belongs-to-genre", "tagged-as", "has-review-sentiment", "has-price",
              "released-on-date", "has-age", "has-occupation"},
    "books": {"reviewed-by", "reviewed", "viewed-by", "viewed", "purchased-by", "purchased",
              "liked-by", "liked", "disliked-by", "disliked", "belongs-to-genre", "written-by",
              "published-by", "tagged-as", "has-review-sentiment", "has-price",
              "released-on-date", "has-age", "has-occupation", "tags", "tagged-by",
              "also-bought-by", "also-bought", "also-viewed-by", "also-viewed", "bought-by",
              "bought-together"},
}  # fmt: skip


def frame(*rows):
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def test_there_is_a_schema_for_each_domain():
    assert domains() == ("movies", "books", "own", "games")
    with pytest.raises(ConfigError, match=r"no graph schema .* music \(one of movies"):
        load_schema("music")


@pytest.mark.parametrize("domain", TYPES)
def test_node_types_and_relations_are_those_of_the_paper(domain):
    schema = load_schema(domain)
    assert set(schema.node_types) == TYPES[domain]
    names = {relation for _, relation, _ in schema.signatures}
    assert names >= RELATIONS[domain]
    unnamed = {"contains", "has-users", "wrote", "published", "developed"}
    assert names - RELATIONS[domain] <= unnamed


@pytest.mark.parametrize("domain", TYPES)
def test_a_step_and_its_inverse_undo_each_other(domain):
    schema = load_schema(domain)
    for kind, relation, tail in schema.signatures:
        step = schema.step(kind, relation)
        assert (step.head_type, step.relation, step.tail_type) == (kind, relation, tail)
        assert step.inverse.inverse == step
        assert schema.step(tail, step.inverse.relation) == step.inverse


def test_a_type_and_a_relation_decide_where_an_edge_leads():
    schema = load_schema("movies")
    assert schema.step("Genre", "contains").tail_type == "Movie"
    assert schema.step("ReleaseYear", "contains").edge.relation == "released-in"
    with pytest.raises(ConfigError, match=r"no relation rated leads from Movie.*belongs-to, "):
        schema.step("Movie", "rated")
    with pytest.raises(ConfigError, match=r"from Album.*node types are Actor, Age"):
        schema.step("Album", "rated")


def test_only_a_relation_without_an_inverse_is_walked_back_by_a_caret():
    schema = load_schema("movies")
    assert schema.step("Movie", "^given-to").tail_type == "Rating"
    with pytest.raises(ConfigError, match=r"no relation \^rated"):
        schema.step("Movie", "^rated")


def test_a_triple_that_breaks_the_schema_is_listed_with_the_reason():
    good = ("ml-user:1", "User", "liked", "ml:1", "Movie")
    swapped = ("ml:1", "Movie", "liked", "ml-user:1", "User")
    foreign = ("ml:1", "Movie", "written-by", "author:A", "Author")
    found = schema_violations(frame(good, swapped, foreign), "movies")
    assert found.columns == [*COLUMNS, "problem"]
    assert found.rows() == [
        (*swapped, "the movies graph has no relation liked from Movie to User"),
        (*foreign, "the movies graph has no relation written-by from Movie to Author"),
    ]
    assert schema_violations(frame(good), "movies").height == 0
    assert schema_violations(frame(good).lazy(), "books")["problem"].to_list() == [
        "the books graph has no relation liked from User to Movie"
    ]


@pytest.mark.parametrize("domain", domains())
def test_lines_of_a_schema_name_what_the_builder_has(domain):
    schema = load_schema(domain)
    origins = {"interactions", "ratings", "sentiments", "items", "users", "user_tags"}
    assert {edge.origin for edge in schema.edges} <= origins
    assert {edge.form for edge in schema.edges} <= {"text", "year", "month", "price"}
    assert all(edge.column for edge in schema.edges if edge.origin in ("items", "users"))
    assert schema.item_type in schema.node_types
    assert list(schema.price_bounds) == sorted(set(schema.price_bounds))
    starts = [(kind, relation) for kind, relation, _ in schema.signatures]
    assert len({*starts}) == len(starts)
