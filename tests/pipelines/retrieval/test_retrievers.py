"""Retrievers: the contract, and formulas worked by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.retrieval import (
    ItemFeatures,
    Retriever,
    newest_best,
    open_retriever,
)
from pipelines.retrieval.testing import RetrieverContract, contract_items
from pipelines.scales import SCALES
from pipelines.seams import RETRIEVERS

ROW = np.zeros(1, np.int64)


def vectors(rows: list[list[float]], ids: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"item_id": ids, "vector": rows})


def triples(edges: list[tuple[str, str, str, str, str]]) -> pl.DataFrame:
    names = ["head", "head_type", "relation", "tail", "tail_type"]
    return pl.DataFrame(edges, schema=names, orient="row")


def genre_edges(items: pl.DataFrame) -> pl.DataFrame:
    return triples(
        [
            (item, "Movie", "belongs-to", f"genre:{genre}", "Genre")
            for item, genres in items.select("item_id", "genres").iter_rows()
            for genre in genres
        ]
    )


class TestNone(RetrieverContract):
    def make(self) -> Retriever:
        return open_retriever("none", items=contract_items())


class TestRecent(RetrieverContract):
    def make(self) -> Retriever:
        return open_retriever("recent", items=contract_items())


class TestFeatures(RetrieverContract):
    def make(self) -> Retriever:
        return open_retriever("features", items=contract_items())


class TestEmbedding(RetrieverContract):
    def make(self) -> Retriever:
        rows = np.random.default_rng(1).normal(size=(11, 5)).tolist()
        ids = contract_items()["item_id"].to_list()[:11]
        return open_retriever(
            "embedding", items=contract_items(), item_embeddings=vectors(rows, ids)
        )


class TestGraph(RetrieverContract):
    def make(self) -> Retriever:
        items = contract_items()
        return open_retriever("graph", items=items, release={"graph_triples": genre_edges(items)})


@pytest.fixture(scope="module")
def films() -> ItemFeatures:
    """Four films: two much alike, one of another kind, one of which nothing is known."""
    items = pl.DataFrame(
        {
            "item_id": ["a", "b", "c", "d"],
            "genres": [["Crime", "Drama", "War"], ["Crime", "Drama"], ["Comedy"], []],
            # Only the two main actors count: C stands behind them.
            "actors": [["A", "B", "C"], ["B", "C"], ["C"], []],
            "directors": [["X"], ["X", "Y"], ["Z"], []],
        }
    )
    stats = pl.DataFrame({"item_id": ["a", "b", "d"], "train_mean_rating": [4.0, 3.1, 2.2]})
    return ItemFeatures.of(items, stats, SCALES["0.5-5"])


def test_features_are_compared_term_by_term(films: ItemFeatures) -> None:
    # Genres 2·2/(3+2), actors {A,B} and {B,C} 2·1/4, means 1-0.9/4.5, director X in both.
    by_hand = (0.8 + 0.5 + 0.8 + 1.0) / 4
    assert films.similarity(np.array([0]), np.array([1]))[0] == pytest.approx(by_hand)


def test_a_feature_that_either_lacks_is_left_out_and_not_taken_as_equal(
    films: ItemFeatures,
) -> None:
    # c has no mean rating: genres 0, actors {B,C} and {C} 2/3, other director.
    assert films.similarity(np.array([1]), np.array([2]))[0] == pytest.approx((0 + 2 / 3 + 0) / 3)
    # d has a mean rating and nothing else: 1 - 1.8/4.5.
    assert films.similarity(np.array([3]), np.array([0]))[0] == pytest.approx(0.6)
    # Of c and d nothing is known of both: they are not alike, and not unlike either.
    assert np.isnan(films.similarity(np.array([2]), np.array([3]))[0])


def test_books_are_compared_by_their_authors() -> None:
    books = pl.DataFrame(
        {
            "item_id": ["a", "b", "c"],
            "genres": [["History"], ["History"], ["History"]],
            "authors": [["Q"], ["Q", "R"], ["S"]],
        }
    )
    features = ItemFeatures.of(books)
    assert features.similarity(ROW, np.array([1]))[0] == 1.0
    assert features.similarity(ROW, np.array([2]))[0] == 0.5


def test_cosine_ranks_by_direction_and_items_without_a_vector_come_last() -> None:
    items = pl.DataFrame({"item_id": ["a", "b", "c", "d", "e"]})
    given_vectors = vectors([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0], [5.0, 0.5]], ["a", "b", "c", "e"])
    retriever = open_retriever("embedding", items=items, item_embeddings=given_vectors)
    memory = np.array([[4, 2, 3, 1]])
    # To a = (2, 0): e is nearest, then b, then c; d has none.
    for k, picked in ((1, [0]), (2, [0, 3]), (3, [0, 1, 3])):
        assert retriever.select(ROW, memory, np.ones((1, 4)), k)[0].tolist() == picked
    # A query without a vector is met with the last items.
    assert retriever.select(np.array([3]), memory, np.ones((1, 4)), 2)[0].tolist() == [2, 3]


def test_graph_memory_ranks_by_pathsim() -> None:
    items = pl.DataFrame({"item_id": [f"ml:{n}" for n in range(1, 5)]})
    genres = {"ml:1": ["a", "b"], "ml:2": ["a", "b"], "ml:3": ["a"], "ml:4": ["c"]}
    frame = items.with_columns(genres=pl.Series([genres[i] for i in items["item_id"]]))
    retriever = open_retriever("graph", items=items, release={"graph_triples": genre_edges(frame)})
    # Over shared genres: s(1,2) = 2·2/(2+2) = 1, s(1,3) = 2·1/(2+1), s(1,4) = 0.
    found = retriever.similarity(ROW, np.array([[1, 2, 3]]))  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, [[1.0, 2 / 3, 0.0]], rtol=1e-6)
    assert retriever.select(ROW, np.array([[3, 1, 2]]), np.ones((1, 3)), 1).tolist() == [[1]]


@given(
    scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, float("nan")]), min_size=1, max_size=12),
    k=st.integers(0, 13),
)
def test_the_best_are_picked_and_of_equal_ones_the_newest(scores: list[float], k: int) -> None:
    history = np.arange(len(scores))[None]
    found = newest_best(np.array([scores]), history, k)[0]
    key = [-np.inf if np.isnan(s) else s for s in scores]
    best = sorted(range(len(scores)), key=lambda n: (-key[n], -n))[:k]
    assert found[found >= 0].tolist() == sorted(best)


def test_an_unknown_retriever_or_one_without_its_table_is_a_named_error() -> None:
    items = contract_items()
    with pytest.raises(ConfigError, match="did you mean embedding"):
        open_retriever("embeding", items=items)
    with pytest.raises(ConfigError, match="no item embeddings"):
        open_retriever("embedding", items=items)
    with pytest.raises(ConfigError, match="graph_triples"):
        open_retriever("graph", items=items, release={})
    assert len(RETRIEVERS) == 5
