"""GraphMemory on graphs small enough to work out by hand, and against a graph built anew."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config import GraphSettings
from pipelines.errors import ConfigError, ContractError, ReleaseError
from pipelines.graph import GraphIndex, GraphMemory, PathSim, item_similarity, load_metapaths
from pipelines.graph._schema import load_schema, parse_metapaths

TYPES = {"u": "User", "m": "Movie", "genre": "Genre", "rating": "Rating", "director": "Director"}
INVERSE = {
    "rated": "rated-by", "viewed": "viewed-by", "liked": "liked-by", "disliked": "disliked-by",
    "belongs-to": "contains", "directed-by": "directed", "has-occupation": "has-users",
    "has-age": "has-users", "features": "acts-in", "released-in": "contains",
}  # fmt: skip


def kind(name: str) -> str:
    return TYPES.get(name.partition(":")[0], "User")


def graph(*edges: tuple[str, str, str]) -> pl.DataFrame:
    """Triples with their inverses."""
    rows = []
    for head, relation, tail in edges:
        rows.append((head, kind(head), relation, tail, kind(tail)))
        if relation in INVERSE:
            rows.append((tail, kind(tail), INVERSE[relation], head, kind(head)))
    names = ["head", "head_type", "relation", "tail", "tail_type"]
    return pl.DataFrame(rows, schema=names, orient="row").unique().sort("head", "relation", "tail")


def films(count: int, years: bool = True) -> pl.DataFrame:
    frame = pl.DataFrame(
        {"item_id": [f"m:{n}" for n in range(1, count + 1)],
         "title": [f"Film {n}" for n in range(1, count + 1)]}
    )  # fmt: skip
    return frame.with_columns(year=pl.Series(range(1990, 1990 + count))) if years else frame


def vectors(**by_item: list[float]) -> pl.DataFrame:
    return pl.DataFrame(
        {"item_id": [f"m:{name[1:]}" for name in by_item], "vector": list(by_item.values())},
        schema={"item_id": pl.String, "vector": pl.List(pl.Float32)},
    )


def paths(items: list[dict], users: list[dict] = ()):  # type: ignore[assignment]
    return parse_metapaths(load_schema("movies"), {"items": items, "users": list(users)})


RATED = [{"name": "R", "path": ["rated-by", "rated"]}]
RATED_BY_USER = [{"name": "UR", "user": ["rated", "rated-by"], "item": ["rated-by"]}]
#: u:1 rated films 1 and 2; u:2 rated 1, 2 and 3; u:3 rated 3.
SMALL = [
    ("u:1", "rated", "m:1"), ("u:1", "rated", "m:2"), ("u:2", "rated", "m:1"),
    ("u:2", "rated", "m:2"), ("u:2", "rated", "m:3"), ("u:3", "rated", "m:3"),
]  # fmt: skip


def small(**more) -> GraphMemory:
    given_ = {"paths": paths(RATED, RATED_BY_USER), **more}
    return GraphMemory.from_tables(graph(*SMALL), films(4), **given_)


def summary(found):
    return [(n.item_id, n.score, n.parts, n.basis, n.paths, n.rating, n.rating_of) for n in found]


def test_scores_are_those_worked_out_by_hand():
    """Films by raters: 1 = {1, 2}, 2 = {1, 2}, 3 = {2, 3}; u:1 rated 1 and 2.

    s(1, 2) = 2·2 / (2 + 2) = 1 and s(1, 3) = 2·1 / (2 + 2) = 1/2.

    u:1's walks rated, rated-by: to u:1 twice (over films 1 and 2) and to u:2 twice, so
    |p_u→u| = 4 + 4 = 8. Film 2 is reached 2 + 2 = 4 times, |p_2→2| = 2: s(u, 2) = 8 / 10;
    film 3 is reached by u:2 alone, twice: s(u, 3) = 4 / 10.

    Scores: 0.8·1 + 0.2·0.8 = 0.96 and 0.8·0.5 + 0.2·0.4 = 0.48. Film 4 has no edge.
    """
    found = small().retrieve("u:1", "m:1", k=5)
    assert [(n.item_id, n.title, n.year, n.score, n.basis) for n in found] == [
        ("m:2", "Film 2", 1991, 0.96, "paths"),
        ("m:3", "Film 3", 1992, 0.48, "paths"),
    ]
    assert found[1].parts.pathsim == 0.5
    assert found[1].parts.user_similarity == pytest.approx(0.4)
    assert found[1].parts.cosine is None
    assert found[0].paths == {"R": 1.0}


def test_weights_of_the_three_parts_are_the_settings():
    embeddings = vectors(m1=[1.0, 0.0], m2=[0.6, 0.8], m3=[0.0, 1.0])
    chosen = GraphSettings(alpha=0.5, embedding_weight=2.0)
    found = small(embeddings=embeddings, settings=chosen).retrieve("u:1", "m:1", k=5)
    assert [(n.item_id, n.score) for n in found] == [
        ("m:2", pytest.approx(0.5 * 1 + 0.5 * 0.8 + 2 * 0.6)),
        ("m:3", pytest.approx(0.5 * 0.5 + 0.5 * 0.4)),
    ]
    assert found[1].parts.cosine == 0.0


def ratings_of(*rows: tuple[str, str, float], scale: str = "1-5") -> pl.DataFrame:
    names = ["user_id", "item_id", "rating"]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(scale=pl.lit(scale))


RATINGS = ratings_of(
    ("u:1", "m:1", 5.0), ("u:1", "m:2", 4.0), ("u:2", "m:1", 2.0), ("u:2", "m:2", 1.0),
    ("u:2", "m:3", 3.0), ("u:3", "m:3", 4.0), ("u:1", "m:3", 1.0),
)  # fmt: skip


def test_the_rating_is_the_users_own_or_else_the_mean_of_the_others():
    memory = small(interactions=RATINGS)
    found = {n.item_id: (n.rating, n.rating_of) for n in memory.retrieve("u:1", "m:1", k=5)}
    assert found == {"m:2": (4.0, "own"), "m:3": (3.5, "others")}, "u:1 and m:3 is held out"
    found = {n.item_id: (n.rating, n.rating_of) for n in memory.retrieve("u:3", "m:1", k=5)}
    assert found == {"m:2": (2.5, "others"), "m:3": (4.0, "own")}


def test_ratings_of_pairs_that_the_graph_does_not_join_are_never_seen():
    memory = small(interactions=ratings_of(("u:3", "m:1", 1.0), ("u:1", "m:1", 5.0)))
    (found,) = (n for n in memory.retrieve("u:3", "m:2", k=5) if n.item_id == "m:1")
    assert (found.rating, found.rating_of) == (5.0, "others")


def test_ratings_are_on_one_scale():
    mixed = pl.concat(
        [ratings_of(("u:1", "m:2", 10.0), scale="1-10"), ratings_of(("u:2", "m:2", 3.0))]
    )
    memory = small(interactions=mixed)
    assert memory.scale.name == "1-5"
    (found,) = (n for n in memory.retrieve("u:3", "m:1", k=5) if n.item_id == "m:2")
    assert found.rating == 4.0
    assert small(interactions=RATINGS, scale="1-10").retrieve("u:1", "m:1")[0].rating == 7.75


def test_paths_share_the_similarity_that_they_make():
    """Films 1 and 2 share two raters and one of film 1's two genres.

    Counts 2 + 1 = 3; round trips 2 + 2 = 4 and 2 + 1 = 3: s = 6/7, of which 4/7 and 2/7.
    """
    edges = [*SMALL, ("m:1", "belongs-to", "genre:A"), ("m:1", "belongs-to", "genre:B"),
             ("m:2", "belongs-to", "genre:A")]  # fmt: skip
    both = paths([*RATED, {"name": "G", "path": ["belongs-to", "contains"]}])
    memory = GraphMemory.from_tables(graph(*edges), films(4), paths=both)
    first, second = memory.retrieve(None, "m:1")
    assert first.paths == {"R": pytest.approx(4 / 7), "G": pytest.approx(2 / 7)}
    assert list(first.paths) == ["R", "G"]
    assert sum(first.paths.values()) == pytest.approx(first.parts.pathsim) == pytest.approx(6 / 7)
    assert list(second.paths) == ["R"]


def test_an_item_without_edges_is_answered_for_by_its_embedding_alone():
    embeddings = vectors(m1=[1.0, 0.0], m2=[0.6, 0.8], m4=[0.8, 0.6])
    memory = small(embeddings=embeddings, interactions=RATINGS)
    found = memory.retrieve("u:1", "m:4", k=5)
    assert [(n.item_id, n.score, n.basis) for n in found] == [
        ("m:2", pytest.approx(0.25 * 0.96), "embedding"),
        ("m:1", pytest.approx(0.25 * 0.8), "embedding"),
    ]
    assert all(n.parts.user_similarity is None and n.paths == {} for n in found)
    assert (found[0].rating, found[0].rating_of) == (4.0, "own"), "ratings are known all the same"


def test_an_item_without_edges_and_embedding_has_no_neighbours():
    assert small().retrieve("u:1", "m:4") == []
    assert small(embeddings=vectors(m1=[1.0], m2=[1.0])).retrieve("u:1", "m:4") == []


def test_a_neighbour_that_no_path_joins_says_what_found_it():
    edges = [*SMALL, ("u:4", "rated", "m:4"), ("u:1", "rated", "m:4")]
    embeddings = vectors(m1=[1.0, 0.0], m5=[0.5, math.sqrt(0.75)])
    memory = GraphMemory.from_tables(
        graph(*edges[:-1]), films(5), embeddings=embeddings, paths=paths(RATED, RATED_BY_USER)
    )
    found = {n.item_id: n.basis for n in memory.retrieve("u:4", "m:1", k=9)}
    assert found == {"m:2": "paths", "m:3": "paths", "m:4": "user", "m:5": "embedding"}


def test_unknown_names_are_named_and_nothing_is_added():
    memory = small()
    for call in (
        lambda: memory.retrieve("u:1", "m:99"),
        lambda: memory.add("u:1", "rated", "m:99"),
        lambda: memory.rate("u:1", "m:99", 4),
    ):
        with pytest.raises(ContractError, match="no item 'm:99'") as caught:
            call()
        assert caught.value.details == {"item": "m:99"}
    for call in (
        lambda: memory.retrieve("nobody", "m:1"),
        lambda: memory.add("nobody", "rated", "m:1"),
        lambda: memory.rate("nobody", "m:1", 4),
    ):
        with pytest.raises(ContractError, match="no user 'nobody'"):
            call()
    with pytest.raises(ConfigError, match="no relation adores leads from User"):
        memory.add("u:1", "adores", "m:1")
    for rating in (0.5, 6, math.nan):
        with pytest.raises(ContractError, match="off the scale"):
            memory.rate("u:1", "m:4", rating)
    with pytest.raises(ContractError, match="at least one neighbour"):
        memory.retrieve("u:1", "m:1", k=0)
    assert added_to(memory).height == 0


def test_what_a_user_does_changes_its_answers_as_worked_out_by_hand():
    """A new user rates films 1 and 4. How films are like each other stays: s(1, 2) = 1.

    My walks rated, rated-by: to u:1 and u:2 once each (film 1), to me twice: |p_u→u| = 6.
    Film 2: 1 + 1 = 2 and |p| = 2: s(u, 2) = 4/8. Film 4: 2 (me) and |p| = 1: s(u, 4) = 4/7.
    Scores: 0.8·1 + 0.2·0.5 = 0.9 and, as no path joins films 1 and 4, 0.2·4/7 = 0.114286.
    Film 3: s(1, 3) = 1/2, reached by u:2 once: s(u, 3) = 2·1 / (6 + 2): 0.4 + 0.05.
    """
    memory = small(interactions=RATINGS)
    memory.add_user("me")
    assert memory.retrieve("me", "m:1")[0].rating_of == "others"
    assert memory.add("me", "rated", "m:1")
    assert memory.add("me", "rated", "m:4")
    found = memory.retrieve("me", "m:1", k=9)
    assert [(n.item_id, n.score, n.basis) for n in found] == [
        ("m:2", 0.9, "paths"),
        ("m:3", 0.45, "paths"),
        ("m:4", 0.114286, "user"),
    ]


def test_adding_what_is_there_changes_nothing():
    memory = small()
    before = summary(memory.retrieve("u:3", "m:1", k=9))
    assert not memory.add("u:3", "rated", "m:3")
    assert memory.add("u:3", "rated", "m:1")
    assert not memory.add("u:3", "rated", "m:1")
    assert summary(memory.retrieve("u:3", "m:1", k=9)) != before


def test_the_newest_rating_is_the_one_that_is_answered():
    memory = small(interactions=RATINGS)
    memory.rate("u:3", "m:2", 5)
    memory.rate("u:3", "m:2", 2)
    (own,) = (n for n in memory.retrieve("u:3", "m:1", k=9) if n.item_id == "m:2")
    assert (own.rating, own.rating_of) == (2.0, "own")


def added_to(memory: GraphMemory) -> pl.DataFrame:
    """Triples of what was added, in both directions."""
    rows = []
    for edge, head, tail in memory._added:
        rows.append((head, edge.head_type, edge.relation, tail, edge.tail_type))
        if edge.inverse:
            rows.append((tail, edge.tail_type, edge.inverse, head, edge.head_type))
    names = ["head", "head_type", "relation", "tail", "tail_type"]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def test_rating_adds_edges_and_their_inverses():
    memory = small()
    memory.add_user("me")
    memory.rate("me", "m:4", 4)
    assert set(added_to(memory).select("head", "relation", "tail").rows()) == {
        ("me", "rated", "m:4"), ("m:4", "rated-by", "me"),
        ("me", "viewed", "m:4"), ("m:4", "viewed-by", "me"),
        ("me", "liked", "m:4"), ("m:4", "liked-by", "me"),
        ("me", "gives-rating", "rating:me:4"), ("rating:me:4", "given-to", "m:4"),
    }  # fmt: skip
    assert load_schema("movies").signatures >= set(
        added_to(memory).select("head_type", "relation", "tail_type").rows()
    )


# Against a graph built from scratch.

RELATIONS = st.sampled_from(["rated", "viewed", "liked", "disliked"])
FILMS = st.sampled_from(["m:1", "m:2", "m:3", "m:4", "m:5"])
TRAITS = st.sampled_from(
    [("has-occupation", "occupation:a"), ("has-occupation", "occupation:b"), ("has-age", "age:old")]
)
ATTRIBUTES = [
    ("m:1", "belongs-to", "genre:A"), ("m:2", "belongs-to", "genre:A"),
    ("m:3", "belongs-to", "genre:B"), ("m:4", "belongs-to", "genre:B"),
    ("m:1", "directed-by", "director:D"), ("m:4", "directed-by", "director:D"),
    ("u:1", "has-occupation", "occupation:a"),
]  # fmt: skip
TYPES.update({"occupation": "Occupation", "age": "Age"})


@pytest.mark.pipeline
@settings(max_examples=100, deadline=None)
@given(
    base=st.lists(st.tuples(st.sampled_from(["u:1", "u:2", "u:3"]), RELATIONS, FILMS), max_size=12),
    user=st.sampled_from(["u:1", "u:3", "me"]),
    added=st.lists(st.one_of(st.tuples(RELATIONS, FILMS), TRAITS), max_size=8),
)
def test_a_users_similarity_is_that_of_a_graph_built_with_what_it_did(base, user, added):
    start = graph(*base, *ATTRIBUTES)
    grown = GraphMemory.from_tables(start, films(5), users=["u:1", "u:2", "u:3"])
    grown.add_user(user)
    items = [f"m:{n}" for n in range(1, 6)]
    for relation, end in added:
        grown.add(user, relation, end)
        # Nothing that is kept from a query may be served later.
        grown.user_similarity([user] * 5, items)
    edges = [*base, *ATTRIBUTES, *((user, *edge) for edge in added)]
    anew = GraphIndex.from_triples(
        graph(*edges), "movies", nodes={"Movie": items, "User": [user, "u:2"]}
    )
    expected = PathSim(anew, load_metapaths("movies")).user_similarity(anew.code("User", user))
    found = grown.user_similarity([user] * 5, items)
    assert found.tolist() == pytest.approx(expected.tolist())
    table = pl.concat([start, added_to(grown)]).unique().sort("head", "relation", "tail")
    assert table.equals(graph(*edges))
    for item in items:
        for neighbour in grown.retrieve(user, item, k=9):
            similar = neighbour.parts.user_similarity
            assert similar is None or similar == found[items.index(neighbour.item_id)]


# Copies.


def test_copies_share_the_graph_and_keep_their_own_additions():
    memory = small()
    memory.add_user("me")
    memory.add("me", "rated", "m:4")
    one, two = memory.copy(), memory.copy()
    before = summary(memory.retrieve("me", "m:1", k=9))
    one.add("me", "rated", "m:1")
    two.add_user("you")
    two.add("you", "rated", "m:4")
    memory.add("u:3", "rated", "m:1")
    assert {added_to(m).height for m in (memory, one, two)} == {4}
    assert summary(two.retrieve("me", "m:1", k=9)) == before
    with pytest.raises(ContractError, match="no user 'you'"):
        one.retrieve("you", "m:1")
    third = two.copy()
    assert summary(third.retrieve("you", "m:4", k=9)) == summary(two.retrieve("you", "m:4", k=9))
    seen = [m.user_similarity(["me"], ["m:2"]).item() > 0 for m in (memory, one)]
    assert seen == [False, True]


# Against the bulk table and PathSim.


def random_world(seed: int, users: int = 30, items: int = 25):
    rng = np.random.default_rng(seed)
    edges: set[tuple[str, str, str]] = set()
    for u, m in rng.integers(1, [users, items], size=(150, 2)):
        edges.add((f"u:{u}", "rated", f"m:{m}"))
        edges.add((f"u:{u}", str(rng.choice(["viewed", "liked", "disliked"])), f"m:{m}"))
        node = f"rating:u:{u}:{rng.integers(1, 6)}"
        edges |= {(f"u:{u}", "gives-rating", node), (node, "given-to", f"m:{m}")}
    for m in range(1, items - 2):
        edges.add((f"m:{m}", "belongs-to", f"genre:{rng.integers(4)}"))
        edges.add((f"m:{m}", "directed-by", f"director:{rng.integers(9)}"))
    for u in range(1, users):
        edges.add((f"u:{u}", "has-occupation", f"occupation:{rng.integers(3)}"))
        edges.add((f"u:{u}", "has-age", f"age:{rng.integers(3)}"))
    raw = rng.normal(size=(items, 6))
    unit = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    embeddings = pl.DataFrame(
        {"item_id": [f"m:{n}" for n in range(1, items + 1)], "vector": unit.tolist()},
        schema={"item_id": pl.String, "vector": pl.List(pl.Float32)},
    )
    return graph(*edges), films(items), embeddings


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_answers_without_a_user_are_the_table_of_similar_items(seed):
    triples, items, embeddings = random_world(seed)
    memory = GraphMemory.from_tables(triples, items, embeddings=embeddings)
    table = pl.concat(item_similarity(triples, embeddings, GraphSettings(), top_k=7))
    for item in items["item_id"]:
        rows = table.filter(item_id=item).sort("rank")
        found = memory.retrieve(None, item, k=7)
        assert [n.item_id for n in found] == rows["neighbour_id"].to_list()
        assert [n.score for n in found] == rows["score"].to_list()
        assert [n.basis for n in found] == rows["basis"].to_list()
        for neighbour, names in zip(found, rows["paths"], strict=True):
            assert set(names) <= set(neighbour.paths)


# Opening.


def test_opening_takes_a_mapping_of_frames():
    memory = GraphMemory.open(
        {"graph_triples": graph(*SMALL), "items": films(4).lazy(), "interactions": RATINGS}
    )
    assert memory.retrieve("u:1", "m:1")[0].rating == 4.0
    assert repr(memory) == "<GraphMemory movies: 4 items, 3 users, 0 edges added>"


def test_tables_that_are_missing_or_do_not_fit_are_refused():
    with pytest.raises(ReleaseError, match="needs the table graph_triples"):
        GraphMemory.open({"items": films(2)})
    with pytest.raises(ReleaseError, match="neither a release nor tables"):
        GraphMemory.open(3)
    with pytest.raises(ContractError, match="different lengths"):
        small(embeddings=vectors(m1=[1.0], m2=[1.0, 0.0]))
    with pytest.raises(ConfigError, match="no meta-paths"):
        small(domain="songs", paths=None)
    with pytest.raises(ConfigError, match="unknown rating scale"):
        small(scale="0-1000")
