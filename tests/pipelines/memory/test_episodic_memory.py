"""Episodic memories: what begins them, what is added, and what a query brings back."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ConfigError, ContractError
from pipelines.memory import (
    EpisodicMemory,
    TextVectors,
    opinion_of,
    recall_many,
)

#: Unit vectors at 0, 60, 90 and 180 degrees.
ITEMS = np.array([[1, 0], [0.5, math.sqrt(0.75)], [0, 1], [-1, 0]], np.float32)


class Angles:
    """An encoder whose texts are angles in degrees; counts what it is asked."""

    name, dimension = "angles", 2

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts):
        self.asked += texts
        turned = np.radians([float(t) for t in texts])
        return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def memory(*items: int) -> EpisodicMemory:
    return EpisodicMemory.initial(np.array(items, int), [f"Saw {i}." for i in items], ITEMS)


def test_opinions_are_those_of_the_paper():
    ratings = [1, 2, 2.5, 3, 3.5, 4, 5]
    assert [opinion_of(r) for r in ratings] == [
        "disliked", "disliked", "neutral", "neutral", "neutral", "liked", "liked"
    ]  # fmt: skip


def test_entries_are_ranked_by_cosine():
    """Cosines with 0 degrees: item 0 has 1, item 1 0.5, item 2 0 and item 3 -1."""
    (found,) = recall_many([memory(3, 1, 0, 2)], [ITEMS[:1]], k=3)
    assert found.entries.tolist() == [2, 1, 3]
    assert found.scores.tolist() == pytest.approx([1.0, 0.5, 0.0])


def test_questions_are_merged_by_their_best_score():
    """Item 3 is opposite to the query, and exactly what the second question asks for."""
    (found,) = recall_many([memory(0, 1, 2, 3)], [ITEMS[[0, 3]]], k=3)
    assert found.entries.tolist() == [3, 0, 1]
    assert found.scores.tolist() == pytest.approx([1.0, 1.0, 0.5])


def test_ties_go_to_the_newer_entry():
    (found,) = recall_many([memory(1, 0, 1, 0)], [ITEMS[:1]], k=4)
    assert found.entries.tolist() == [3, 1, 2, 0]


def test_an_agent_recalls_the_same_alone_and_among_others():
    rng = np.random.default_rng(3)
    memories = [memory(*rng.integers(0, 4, size=n)) for n in (9, 1, 30, 4)]
    queries = [ITEMS[rng.integers(0, 4, size=n)] for n in (1, 4, 2, 3)]
    together = recall_many(memories, queries)
    for one, own, found in zip(memories, queries, together, strict=True):
        (alone,) = recall_many([one], [own])
        assert alone.entries.tolist() == found.entries.tolist()
        assert alone.scores.tolist() == found.scores.tolist()


def test_an_empty_memory_recalls_nothing():
    (found,) = recall_many([memory()], [ITEMS[:1]])
    assert found.entries.tolist() == []


def test_a_visit_extends_a_memory_and_leaves_the_first_as_it_was():
    before = memory(0, 1)
    after = before.extended(
        ["action", "reflection"], np.array([3, -1]), ["Left.", "I prefer 1."], ITEMS[[3, 1]]
    )
    assert (len(before), len(after)) == (2, 4)
    assert after.kinds == ("initial", "initial", "action", "reflection")
    assert after.items.tolist() == [0, 1, 3, -1]
    (found,) = recall_many([after], [ITEMS[3:]], k=1)
    assert after.texts[found.entries[0]] == "Left."


def test_texts_are_encoded_once():
    encoder = Angles()
    vectors = TextVectors(encoder)
    first = vectors(["0", "90", "0"])
    assert np.allclose(first, [[1, 0], [0, 1], [1, 0]], atol=1e-6)
    assert np.allclose(vectors(["90", "180"]), [[0, 1], [-1, 0]], atol=1e-6)
    assert encoder.asked == ["0", "90", "180"]
    assert vectors.encoded == 3


def embeddings(model: str = "angles", **by_item: list[float]) -> pl.DataFrame:
    return pl.DataFrame(
        {"item_id": list(by_item), "model": model, "vector": list(by_item.values())},
        schema={"item_id": pl.String, "model": pl.String, "vector": pl.List(pl.Float32)},
    )


def test_stored_vectors_of_items_are_in_the_order_asked_for():
    items = pl.DataFrame({"item_id": ["b", "c", "a"]})
    found = TextVectors(Angles()).of_items(items, embeddings(a=[0.6, 0.8], b=[0.0, 1.0]))
    assert np.allclose(found, [[0, 1], [0, 0], [0.6, 0.8]])


def test_an_item_without_a_vector_is_recalled_last_of_what_points_the_same_way():
    items = pl.DataFrame({"item_id": ["a", "b"]})
    vectors = TextVectors(Angles()).of_items(items, embeddings(a=[1.0, 0.0]))
    memories = [EpisodicMemory.initial(np.array([1, 0]), ["b", "a"], vectors)]
    (found,) = recall_many(memories, [ITEMS[:1]])
    assert found.scores.tolist() == [1.0, 0.0]


def test_wrong_input_is_named():
    vectors, items = TextVectors(Angles()), pl.DataFrame({"item_id": ["a"]})
    with pytest.raises(ConfigError, match="embedded by other"):
        vectors.of_items(items, embeddings("other", a=[1.0]))
    with pytest.raises(ConfigError, match="embedded by nothing"):
        vectors.of_items(items, embeddings())
    with pytest.raises(ContractError, match="k=0"):
        recall_many([memory(0)], [ITEMS[:1]], k=0)
    with pytest.raises(ContractError, match="no query"):
        recall_many([memory(0)], [ITEMS[:0]])
    with pytest.raises(ContractError, match="1 memories, 2 lists"):
        recall_many([memory(0)], [ITEMS[:1]] * 2)
    with pytest.raises(ContractError, match="one kind, item, text"):
        memory(0).extended(["action"], np.array([1]), [], ITEMS[:1])
    with pytest.raises(ConfigError, match="can't be held"):
        TextVectors(Angles(), size=0)
