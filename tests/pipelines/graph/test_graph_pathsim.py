"""PathSim: graphs worked on paper, laws, and every path instance counted one by one."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ConfigError, ContractError
from pipelines.graph import (
    GraphIndex,
    MetaPaths,
    PathSim,
    load_metapaths,
    load_schema,
)

COLUMNS = ["head", "head_type", "relation", "tail", "tail_type"]
MOVIES = load_metapaths("movies")


def triples(domain, **edges):
    """Triples, both ways where there is an inverse, of pairs by `Type_relation`."""
    schema, rows = load_schema(domain), []
    for name, pairs in edges.items():
        kind, relation = name.split("_", 1)
        step = schema.step(kind, relation.replace("_", "-"))
        for head, tail in pairs:
            rows.append((head, kind, step.relation, tail, step.tail_type))
            if step.edge.inverse:
                rows.append((tail, step.tail_type, step.edge.inverse, head, kind))
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def chosen(*names):
    return MetaPaths(
        "movies",
        tuple(path for path in MOVIES.items if path.name in names),
        tuple(path for path in MOVIES.users if path.name in names),
    )


#: Films A, B, C; A and B rated by users 1 and 2, C by 2; genres A: g h, B: g, C: h.
SMALL = triples(
    "movies",
    User_rated=[("1", "A"), ("1", "B"), ("2", "A"), ("2", "B"), ("2", "C")],
    Movie_belongs_to=[("A", "g"), ("A", "h"), ("B", "g"), ("C", "h")],
)
RATE_AND_GENRE = ("Movie-User-Movie Rate", "Movie-Genre-Movie")


def every(sim):
    return sim.similarity(np.arange(sim.items))


def test_one_path_worked_by_hand():
    """Rows of W (users 1, 2): A 1 1, B 1 1, C 0 1. M = W·Wᵀ has AA 2, BB 2, CC 1, AB 2, AC 1,
    BC 1, so s(A,B) = 4/4, s(A,C) = 2/3, s(B,C) = 2/3.
    """
    sim = PathSim(GraphIndex.from_triples(SMALL, "movies"), chosen("Movie-User-Movie Rate"))
    expected = [[1, 1, 2 / 3], [1, 1, 2 / 3], [2 / 3, 2 / 3, 1]]
    np.testing.assert_allclose(every(sim), expected, rtol=1e-15)
    assert sim.round_trips.tolist() == [2, 2, 1]


def test_counts_of_several_paths_are_summed_before_the_ratio():
    """By rating AA 2, BB 2, CC 1, AB 2, AC 1, BC 1; by genre AA 2, BB 1, CC 1, AB 1, AC 1, BC 0.
    Together AA 4, BB 3, CC 2, AB 3, AC 2, BC 1: s(A,B) = 6/7, s(A,C) = 4/6, s(B,C) = 2/5.
    (The mean of the paths' own ratios would be 5/6 for A and B.)
    """
    sim = PathSim(GraphIndex.from_triples(SMALL, "movies"), chosen(*RATE_AND_GENRE))
    assert sim.counts(np.arange(3)).tolist() == [[4, 3, 2], [3, 3, 1], [2, 1, 2]]
    expected = [[1, 6 / 7, 2 / 3], [6 / 7, 1, 2 / 5], [2 / 3, 2 / 5, 1]]
    np.testing.assert_allclose(every(sim), expected, rtol=1e-15)


def test_similarity_of_a_user_and_an_item_by_the_same_counts():
    """User 1 rated A and B. To users 1, 2 over films: 2 2 (back to itself 8); to g, h: 2 1 (5).
    To A: 2+2 by users, 2+1 by genres = 7; B: 4+2 = 6; C: 2+1 = 3. Items back to themselves:
    A 2+2, B 2+1, C 1+1. s(1,A) = 14/(13+4), s(1,B) = 12/16, s(1,C) = 6/15.
    """
    paths = chosen("User-Movie-User-Movie Rate", "User-Movie-Genre-Movie")
    index = GraphIndex.from_triples(SMALL, "movies")
    sim = PathSim(index, paths)
    found = sim.user_similarity(index.code("User", "1"))
    np.testing.assert_allclose(found, [14 / 17, 3 / 4, 2 / 5], rtol=1e-15)
    assert [path.name for path in sim.user_paths] == [path.name for path in paths.users]


def test_a_path_that_does_not_come_back_enters_as_the_formula_has_it():
    """User 1 rated A only, and (a graph no source gives) its rating was given to A and B.
    A to B 1, A to A 1, B to anything 0: s(A,B) = 2·1/(1+0) = 2 and s(B,A) = 0, unclipped.
    """
    graph = triples(
        "movies",
        User_rated=[("1", "A")],
        User_gives_rating=[("1", "r")],
        Rating_given_to=[("r", "A"), ("r", "B")],
    )
    index = GraphIndex.from_triples(graph, "movies")
    assert every(PathSim(index, chosen("Movie-User-Rating-Movie"))).tolist() == [[1, 2], [0, 0]]


def test_the_index_numbers_ids_in_ascending_order_and_names_unknown_ones():
    index = GraphIndex.from_triples(SMALL, "movies", nodes={"Movie": ["D", "0"]})
    assert index.ids("Movie").to_list() == ["0", "A", "B", "C", "D"]
    assert index.code("Movie", "B") == 2
    assert index.adjacency("Movie", "rated-by").toarray()[[0, 4]].sum() == 0
    assert index.adjacency("User", "rated").dtype == np.float64
    with pytest.raises(ContractError, match=r"the movies graph has no User of this id: 9 "):
        index.code("User", "9")
    with pytest.raises(ConfigError, match="no relation wrote leads from Movie"):
        index.adjacency("Movie", "wrote")
    assert index.count("Actor") == 0
    with pytest.raises(ContractError, match=r"no triple fits the schema of books"):
        GraphIndex.from_triples(SMALL, "books")


# --- against counting one by one -----------------------------------------------------------


def world(rng, users=5, films=6):
    """Random triples of every kind a movie graph has."""

    def some(heads, tails, share):
        return [(h, t) for h in heads for t in tails if rng.random() < share]

    people, movies = [f"u{n}" for n in range(users)], [f"m{n}" for n in range(films)]
    rated = some(people, movies, 0.5) or [("u0", "m0")]
    value = {pair: int(rng.integers(1, 6)) for pair in rated}
    return triples(
        "movies",
        User_rated=rated,
        User_viewed=rated,
        User_liked=[pair for pair in rated if value[pair] >= 4],
        User_disliked=[pair for pair in rated if value[pair] <= 2],
        User_gives_rating=sorted({(u, f"{u}:{value[u, m]}") for u, m in rated}),
        Rating_given_to=[(f"{u}:{value[u, m]}", m) for u, m in rated],
        User_has_occupation=[(u, f"o{rng.integers(2)}") for u in people],
        User_has_age=[(u, f"a{rng.integers(2)}") for u in people],
        Movie_belongs_to=some(movies, ["g0", "g1", "g2"], 0.4),
        Movie_directed_by=some(movies, ["d0", "d1"], 0.3),
        Movie_features=some(movies, ["c0", "c1", "c2"], 0.3),
        Movie_released_in=[(m, f"y{rng.integers(2)}") for m in movies],
    )


def walked(graph, start, steps):
    """Ends of every walk along `steps`, one entry per walk, by following triples."""
    ends = [start]
    for step in steps:
        rows = graph.filter(relation=step.relation.removeprefix("^"))
        if step.relation.startswith("^"):
            pairs = rows.filter(tail_type=step.head_type).select("tail", "head").rows()
        else:
            pairs = rows.filter(head_type=step.head_type).select("head", "tail").rows()
        ends = [tail for end in ends for head, tail in pairs if head == end]
    return ends


@pytest.mark.parametrize("seed", range(3))
def test_similarities_agree_with_enumerating_every_path_instance(seed):
    graph = world(np.random.default_rng(seed))
    index = GraphIndex.from_triples(graph, "movies")
    sim, films = PathSim(index, MOVIES), index.ids("Movie").to_list()
    instances = {
        x: [end for path in MOVIES.items for end in walked(graph, x, path.steps)] for x in films
    }
    counted = [[instances[x].count(y) for y in films] for x in films]
    np.testing.assert_array_equal(sim.counts(np.arange(len(films))), counted)
    diagonal = np.diag(counted)
    np.testing.assert_array_equal(sim.round_trips, diagonal)
    ratio = 2 * np.array(counted) / (diagonal[:, None] + diagonal[None, :])
    np.testing.assert_allclose(every(sim), ratio, rtol=1e-15)


def test_user_similarities_agree_with_enumerating_every_path_instance():
    graph = world(np.random.default_rng(7))
    index = GraphIndex.from_triples(graph, "movies")
    sim, films = PathSim(index, MOVIES), index.ids("Movie").to_list()
    user = "u1"
    there = [e for p in MOVIES.users for e in walked(graph, user, p.steps)]
    # A round trip of the user: along `left` to some node and back from it to the user.
    own = [
        e
        for path in MOVIES.users
        for e in walked(graph, user, (*path.left, *(s.inverse for s in reversed(path.left))))
        if e == user
    ]
    for code, film in enumerate(films):
        back = [
            e
            for path in MOVIES.users
            for e in walked(graph, film, (*path.right, *(s.inverse for s in reversed(path.right))))
            if e == film
        ]
        expected = 2 * there.count(film) / (len(own) + len(back))
        assert sim.user_similarity(index.code("User", user))[code] == pytest.approx(expected)


# --- laws ----------------------------------------------------------------------------------

edges = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=20)


def random_graph(rated, genres, names=str):
    return triples(
        "movies",
        User_rated=[(f"u{u}", names(f"m{m}")) for m, u in sorted(rated)],
        Movie_belongs_to=[(names(f"m{m}"), f"g{g}") for m, g in sorted(genres)],
    )


@settings(max_examples=60, deadline=None)
@given(rated=edges, genres=edges)
def test_an_item_is_wholly_similar_to_itself_and_similarity_is_mutual_and_bounded(rated, genres):
    sim = PathSim(GraphIndex.from_triples(random_graph(rated, genres), "movies"), MOVIES)
    found = every(sim)
    np.testing.assert_array_equal(np.diag(found), np.ones(sim.items))
    np.testing.assert_array_equal(found, found.T)
    assert found.min() >= 0
    assert found.max() <= 1
    for user in range(sim.index.count("User")):
        own = sim.user_similarity(user)
        assert own.min() >= 0
        assert own.max() <= 1 + 1e-12
