"""`retrieve_many` and `user_similarity` against `retrieve`, one query at a time."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ContractError
from pipelines.graph import GraphMemory, Neighbours
from pipelines.graph import _search as search
from tests.pipelines.graph.test_graph_memory import (
    RATINGS,
    random_world,
    small,
)


def rows(found: Neighbours) -> list[list[tuple]]:
    """Neighbours by query, with None for NaN, as `retrieve` has them."""

    def value(x: float) -> float | None:
        return None if math.isnan(x) else x

    out = []
    for query, ids in enumerate(found.item_ids()):
        out.append(
            [
                (
                    name,
                    found.score[query, rank],
                    value(found.rating[query, rank]),
                    bool(found.own[query, rank]),
                    found.pathsim[query, rank],
                    value(found.user_similarity[query, rank]),
                    value(found.cosine[query, rank]),
                )
                for rank, name in enumerate(ids)
            ]
        )
    return out


def one_by_one(memories, users, items, k) -> list[list[tuple]]:
    return [
        [
            (n.item_id, n.score, n.rating, n.rating_of == "own", n.parts.pathsim,
             n.parts.user_similarity, n.parts.cosine)
            for n in memory.retrieve(user, item, k=k)
        ]
        for memory, user, item in zip(memories, users, items, strict=True)
    ]  # fmt: skip


def world(seed: int, embedded: bool = True, **more) -> GraphMemory:
    triples, items, embeddings = random_world(seed)
    rng = np.random.default_rng(seed)
    rated = triples.filter(relation="rated").select(user_id="head", item_id="tail")
    ratings = rated.with_columns(
        rating=pl.Series(rng.integers(1, 6, rated.height).astype(float)), scale=pl.lit("1-5")
    )
    return GraphMemory.from_tables(
        triples, items, interactions=ratings, embeddings=embeddings if embedded else None, **more
    )


def test_many_queries_have_the_scores_worked_out_by_hand():
    """The scores of `retrieve` for u:1 and film 1: 0.96 for film 2 and 0.48 for film 3."""
    found = small(interactions=RATINGS).retrieve_many(["u:1", None], ["m:1", "m:1"], k=3)
    assert found.item_ids() == [["m:2", "m:3"], ["m:2", "m:3"]]
    assert found.score[:, :2].tolist() == [[0.96, 0.48], [0.8, 0.4]]
    assert found.rating[0, :2].tolist() == [4.0, 3.5]
    assert found.own.tolist() == [[True, False, False], [False, False, False]]
    assert found.items[:, 2].tolist() == [-1, -1]
    assert np.isnan(found.score[:, 2]).all()


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("k", [1, 3, 40])
def test_many_queries_equal_one_at_a_time(k, embedded):
    memory = world(7, embedded)
    users = [None, *list(memory._index.codes("User"))[:9]]
    queries = list(product(users, (f"m:{n}" for n in range(1, 26))))
    np.random.default_rng(1).shuffle(queries)
    asked, items = (list(side) for side in zip(*queries, strict=True))
    found = memory.retrieve_many(asked, items, k=k)
    assert rows(found) == one_by_one([memory] * len(items), asked, items, k)


def test_chunks_and_blocks_do_not_change_answers(monkeypatch):
    memory = world(8)
    users = list(memory._index.codes("User"))[:9] * 12
    items = [f"m:{1 + n % 25}" for n in range(len(users))]
    whole = rows(memory.retrieve_many(users, items, k=4))
    monkeypatch.setattr(search, "_CHUNK_BYTES", 8 * 25 * 4)
    monkeypatch.setattr(search, "_BLOCK_BYTES", 1)
    monkeypatch.setattr(search, "_BLOCK_QUERIES", 2)
    assert rows(memory.retrieve_many(users, items, k=4)) == whole


@pytest.mark.pipeline
@settings(max_examples=40, deadline=None)
@given(
    given_=st.lists(
        st.tuples(
            st.sampled_from(["u:1", "u:2", "me"]),
            st.integers(1, 25).map("m:{}".format),
            st.integers(1, 5),
        ),
        max_size=8,
    )
)
def test_agents_with_copies_of_their_own_are_answered_as_if_alone(given_):
    """Each agent rates in its copy; queries of all agents are asked together."""
    memory = world(9)
    memory.add_user("me")
    copies = {user: memory.copy() for user in ("u:1", "u:2", "me")}
    for user, item, rating in given_:
        copies[user].rate(user, item, rating)
    queries = [(u, f"m:{n}") for u in copies for n in range(1, 26)]
    users, items = [u for u, _ in queries], [i for _, i in queries]
    memories = [copies[u] for u in users]
    found = memory.retrieve_many(users, items, k=3, memories=memories)
    assert rows(found) == one_by_one(memories, users, items, 3)
    similar = memory.user_similarity(users, items, memories=memories)
    assert similar.tolist() == [
        similarity(m, u, i) for m, (u, i) in zip(memories, queries, strict=True)
    ]


def similarity(memory: GraphMemory, user: str, item: str) -> float:
    """s(u, item) as it stands in the answer to any other query."""
    for other in range(1, 26):
        if f"m:{other}" != item:
            for n in memory.retrieve(user, f"m:{other}", k=25):
                if n.item_id == item and n.parts.user_similarity is not None:
                    return n.parts.user_similarity
    return 0.0


def test_user_similarity_is_worked_out_by_hand():
    """s(u:1, 2) = 8/10 and s(u:1, 3) = 4/10, as in the scores; film 4 has no edge."""
    found = small().user_similarity(["u:1", "u:1", "u:1", None], ["m:2", "m:3", "m:4", "m:2"])
    assert found.tolist() == [0.8, 0.4, 0.0, 0.0]


def test_no_queries_have_no_answers():
    found = small().retrieve_many([], [], k=3)
    assert (len(found), found.items.shape, found.item_ids()) == (0, (0, 3), [])


def test_wrong_queries_are_named():
    memory = small()
    with pytest.raises(ContractError, match="no item 'm:99'"):
        memory.retrieve_many(["u:1"], ["m:99"])
    with pytest.raises(ContractError, match="no user 'nobody'"):
        memory.retrieve_many(["nobody"], ["m:1"])
    with pytest.raises(ContractError, match="at least one neighbour"):
        memory.retrieve_many(["u:1"], ["m:1"], k=0)
    with pytest.raises(ContractError, match="1 users, 2 items"):
        memory.retrieve_many(["u:1"], ["m:1", "m:2"])
    with pytest.raises(ContractError, match="another graph"):
        memory.retrieve_many(["u:1"], ["m:1"], memories=[small()])
