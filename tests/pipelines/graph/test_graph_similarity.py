"""The table of similar items: scores worked by hand, ranks, ties, blocks, and what has none."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.config import GraphSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.graph import GraphIndex, MetaPaths, PathSim, item_similarity, load_metapaths
from pipelines.seeding import hash_text

COLUMNS = ["head", "head_type", "relation", "tail", "tail_type"]
MOVIES = load_metapaths("movies")
USERS_RELATIONS = ("rated", "viewed", "liked")
TWO = MetaPaths("movies", (MOVIES.items[0], MOVIES.items[4]), ())


def graph(rated, genres=()):
    rows = [(u, "User", "rated", m, "Movie") for u, m in rated]
    rows += [(m, "Movie", "belongs-to", g, "Genre") for m, g in genres]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def vectors(**rows):
    return pl.DataFrame(
        {"item_id": list(rows), "vector": list(rows.values())},
        schema_overrides={"vector": pl.List(pl.Float32)},
    )


def table(triples, embeddings=None, *, settings=None, **options):
    frames = item_similarity(triples, embeddings, settings or GraphSettings(), **options)
    found = pl.concat(frames)
    return CONTRACTS["movies.item_similarity"].validate(found)


#: As in the tests of PathSim: s(A,B) = 6/7, s(A,C) = 2/3, s(B,C) = 2/5.
SMALL = graph(
    [("1", "A"), ("1", "B"), ("2", "A"), ("2", "B"), ("2", "C")],
    [("A", "g"), ("A", "h"), ("B", "g"), ("C", "h")],
)


def random_world(seed, films=40, users=25, known=0.8):
    rng = np.random.default_rng(seed)
    names = [f"m{n}" for n in range(films)]
    rated = [(f"u{u}", m) for u in range(users) for m in names[2:] if rng.random() < 0.2]
    genres = [(m, f"g{n}") for m in names[2:] for n in np.flatnonzero(rng.random(4) < 0.4)]
    rows = rng.normal(size=(films, 8))
    kept = [n for n in range(films) if n == 0 or (n > 1 and rng.random() < known)]
    return graph(rated, genres), vectors(**{names[n]: rows[n].tolist() for n in kept})


def test_scores_worked_by_hand():
    """cos(A,B) = 0.6, cos(A,C) = 0, cos(B,C) = 0.8 with weights 0.8 and 0.25:
    A-B 0.8·6/7 + 0.15 = 0.835714, A-C 0.8·2/3 = 0.533333, B-C 0.32 + 0.2 = 0.52.
    """
    found = table(SMALL, vectors(A=[1, 0], B=[0.6, 0.8], C=[0, 1]), paths=TWO)
    assert found.select("item_id", "neighbour_id", "rank", "score").rows() == [
        ("A", "B", 1, 0.835714),
        ("A", "C", 2, 0.533333),
        ("B", "A", 1, 0.835714),
        ("B", "C", 2, 0.52),
        ("C", "A", 1, 0.533333),
        ("C", "B", 2, 0.52),
    ]
    first = found.row(0, named=True)
    assert (first["pathsim"], first["cosine"], first["instances"]) == (0.857143, 0.6, 3)
    assert first["paths"] == ["Movie-User-Movie Rate", "Movie-Genre-Movie"]
    assert first["path_counts"] == [2, 1]
    assert set(found["basis"]) == {"paths"}


def test_an_item_without_edges_has_neighbours_by_its_embedding_alone_and_says_so():
    found = table(SMALL, vectors(A=[1, 0], D=[0.6, 0.8]), paths=TWO)
    lone = found.filter(item_id="D").row(0, named=True)
    assert found.filter(item_id="D").height == 1
    assert (lone["neighbour_id"], lone["basis"], lone["score"]) == ("A", "embedding", 0.15)
    assert (lone["pathsim"], lone["instances"], lone["paths"]) == (0.0, 0, [])
    of_a = found.filter(item_id="A")
    assert of_a["neighbour_id"].to_list() == ["B", "C", "D"]
    assert of_a["cosine"].to_list() == [None, None, 0.6], "B and C have no embedding"
    assert of_a["basis"].to_list() == ["paths", "paths", "embedding"]


def test_ties_go_to_the_smaller_id_and_ranks_are_cut_at_top_k():
    """Every pair shares one user and nothing else, so all score the same."""
    alike = graph([("1", name) for name in "EBADC"])
    found = table(alike, top_k=2)
    assert found.filter(item_id="C")["neighbour_id"].to_list() == ["A", "B"]
    assert found.filter(item_id="A")["neighbour_id"].to_list() == ["B", "C"]
    assert found.group_by("item_id").len()["len"].to_list() == [2] * 5


def test_without_a_weight_for_embeddings_only_paths_decide():
    found = table(
        SMALL,
        vectors(A=[1, 0], D=[0.6, 0.8]),
        settings=GraphSettings(embedding_weight=0.0, alpha=1.0),
    )
    assert "D" not in set(found["item_id"]) | set(found["neighbour_id"])
    assert found["score"].equals(found["pathsim"].rename("score"))


def test_vectors_are_compared_by_angle_and_zero_vectors_count_as_none():
    long = table(SMALL, vectors(A=[5, 0], B=[3, 4], C=[0, 0]), paths=TWO)
    assert long.row(0, named=True)["cosine"] == 0.6
    assert long.filter(neighbour_id="C")["cosine"].to_list() == [None, None]


@pytest.mark.parametrize("seed", range(3))
def test_the_table_is_the_full_ranking_cut_short(seed):
    """Against all scores at once, ranked in Python."""
    triples, embeddings = random_world(seed)
    found = table(triples, embeddings, top_k=7, block=6)
    ids = sorted(set(embeddings["item_id"]) | set(triples.filter(tail_type="Movie")["tail"]))
    index = GraphIndex.from_triples(triples, "movies", nodes={"Movie": ids})
    similar = PathSim(index, MOVIES).similarity(np.arange(len(ids)))
    unit = {
        name: np.asarray(v, np.float32) / np.linalg.norm(np.asarray(v, np.float32))
        for name, v in embeddings.rows()
    }
    expected = []
    for x, name in enumerate(ids):
        row = []
        for y, other in enumerate(ids):
            both = name in unit and other in unit
            if x == y or not (both or similar[x, y] > 0):
                continue
            cosine = (
                float(np.dot(*(unit[n].astype(np.float64) for n in (name, other)))) if both else 0.0
            )
            row.append((-round(0.8 * similar[x, y] + 0.25 * cosine, 6), other))
        expected += [(name, other, rank) for rank, (_, other) in enumerate(sorted(row)[:7], 1)]
    assert found.select("item_id", "neighbour_id", "rank").rows() == expected
    assert "m0" in ids, "an item that nobody rated takes part"
    assert set(found.filter(item_id="m0")["basis"]) == {"embedding"}


@pytest.mark.parametrize(("block", "threads"), [(1, 1), (7, 1), (1000, 1), (3, 2), (None, 2)])
def test_neither_blocks_nor_threads_change_the_result(block, threads):
    triples, embeddings = random_world(11)
    whole = table(triples, embeddings)
    assert_frame_equal(table(triples, embeddings, block=block, threads=threads), whole)
    assert whole.equals(whole.sort("item_id", "rank"))


def test_the_order_of_rows_does_not_change_the_result():
    triples, embeddings = random_world(12)
    shuffled = [f.sample(fraction=1.0, shuffle=True, seed=1) for f in (triples, embeddings)]
    assert_frame_equal(table(*shuffled), table(triples, embeddings))
    assert_frame_equal(table(triples.lazy(), embeddings), table(triples, embeddings))


def test_bad_input_is_refused():
    with pytest.raises(ContractError, match=r"different lengths \(1, 2\): item_embeddings"):
        table(SMALL, vectors(A=[1, 0], B=[1]))
    with pytest.raises(ContractError, match="no triple fits the schema of movies"):
        table(SMALL.clear())
    with pytest.raises(ConfigError, match="no graph schema for this domain: music"):
        list(item_similarity(SMALL, None, GraphSettings(), domain="music"))


def test_popular_items_count_the_raters_with_the_lowest_hashes():
    """A has five raters and B four, C two; with three at most, A and B keep the first three of
    their own. A rater's edges stay or go together, whatever their relation."""
    raters = sorted("abcde", key=hash_text)
    rated = [(u, "A") for u in raters] + [(u, "B") for u in raters[1:]] + [("a", "C"), ("b", "C")]
    kept = {"A": raters[:3], "B": raters[1:4], "C": ["a", "b"]}

    def triples(pairs):
        rows = [(u, "User", relation, m, "Movie") for u, m in pairs for relation in USERS_RELATIONS]
        nodes = [(f"rating:{u}:4", "Rating", "given-to", m, "Movie") for u, m in pairs]
        # Edges from users to their rating nodes stay: alone they reach no item.
        gives = [(u, "User", "gives-rating", f"rating:{u}:4", "Rating") for u in raters]
        return pl.DataFrame([*rows, *nodes, *gives], schema=COLUMNS, orient="row")

    expected = table(triples([(u, m) for u, m in rated if u in kept[m]]))
    found = table(triples(rated), raters_per_item=3)
    same = [name for name in found.columns if name != "basis"]
    assert_frame_equal(found.select(same), expected.select(same))
    bases = {
        (one, other): basis
        for one, other, basis in found.select("item_id", "neighbour_id", "basis").iter_rows()
    }
    assert bases["A", "B"] == "sampled paths"
    assert set(expected["basis"]) == {"paths"}
    assert table(triples(rated), raters_per_item=5)["basis"].unique().to_list() == ["paths"]
