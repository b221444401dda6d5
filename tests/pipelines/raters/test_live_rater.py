"""Bound raters rate as raters of tables do, whatever stands in the other rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ContractError
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.raters import (
    SCALES,
    BoundRater,
    LiveStatistical,
    LLMRater,
    MeanRater,
    StatisticalRater,
    bind,
    fit_statistical,
)

#: `rate` multiplies vectors in single precision, in an order that depends on the batch.
SINGLE = 5e-8


@pytest.fixture(scope="module")
def rater(small_world: Any) -> StatisticalRater:
    return fit_statistical(scale=SCALES["1-10"], **small_world.tables, **small_world.vectors)


@pytest.fixture(scope="module")
def plain(small_world: Any) -> StatisticalRater:
    """The same without text vectors."""
    return fit_statistical(scale=SCALES["1-10"], **small_world.tables)


def questions(world: Any, seed: int, rows: int, k: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    people, things = world.personas.height, world.items.height
    past = rng.integers(0, things, (rows, k))
    # Some memories are shorter, some are empty.
    length = rng.integers(0, k + 1, rows)
    past[np.arange(k)[None, :] >= length[:, None]] = -1
    ratings = rng.integers(1, 11, (rows, k)).astype(float)
    return rng.integers(0, people, rows), rng.integers(0, things, rows), past, ratings


def one_by_one(
    rater: StatisticalRater, world: Any, asked: tuple[np.ndarray, ...]
) -> list[np.ndarray]:
    """Results of `rate` for each row alone."""
    out = []
    for persona, item, past, ratings in zip(*asked, strict=True):
        there = past >= 0
        history = pl.DataFrame(
            {
                "persona_id": [world.personas["persona_id"][int(persona)]] * int(there.sum()),
                "item_id": world.items["item_id"].gather(past[there]),
                "rating": ratings[there],
            }
        )
        one = world.personas[int(persona)], world.items[int(item)]
        out.append(rater.rate(*one, history).probabilities[0])
    return out


@pytest.mark.parametrize("k", [1, 7, 40])
@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("text", [True, False])
def test_the_statistical_rater_is_the_same_live(
    k: int, table: bool, text: bool, small_world: Any, rater: Any, plain: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not table:
        monkeypatch.setattr("pipelines.raters.statistical.rater._TABLE", 0)
    chosen = rater if text else plain
    live = LiveStatistical(chosen, small_world.personas, small_world.items)
    asked = questions(small_world, k, 40, k)
    alone = one_by_one(chosen, small_world, asked)
    np.testing.assert_allclose(live.rate(*asked).probabilities, alone, rtol=0, atol=SINGLE)


def test_without_a_memory_it_is_the_same_to_the_last_digits(small_world: Any, plain: Any) -> None:
    live = LiveStatistical(plain, small_world.personas, small_world.items)
    who, what, _, _ = questions(small_world, 0, 60, 1)
    nothing = np.full((60, 0), -1), np.zeros((60, 0))
    pairs = np.stack([who, what], axis=1)
    whole = plain.rate(small_world.personas, small_world.items, pairs=pairs).probabilities
    found = live.rate(who, what, *nothing).probabilities
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-9)
    empty = np.full((60, 5), -1), np.zeros((60, 5))
    np.testing.assert_array_equal(live.rate(who, what, *empty).probabilities, found)


@pytest.mark.parametrize("k", [3, 60])
def test_beliefs_are_the_posterior_of_the_taste_model(k: int, small_world: Any, plain: Any) -> None:
    """In double precision throughout, both in the dual and in the primal form."""
    plain = replace(plain, taste="mean")
    live = LiveStatistical(plain, small_world.personas, small_world.items)
    who, _, past, ratings = questions(small_world, 5, 20, k)
    taste, variance = live.beliefs(who, past, ratings)
    lower = np.linalg.cholesky(plain.persona_prior.covariance)
    for row in range(20):
        if (past[row] < 0).all():
            continue
        there = past[row] >= 0
        history = pl.DataFrame(
            {
                "persona_id": [small_world.personas["persona_id"][int(who[row])]] * there.sum(),
                "item_id": small_world.items["item_id"].gather(past[row][there]),
                "rating": ratings[row][there],
            }
        )
        one = small_world.personas[int(who[row])]
        before, after = plain._profiles(one, None), plain._profiles(one, history)
        weights = lower @ taste[row]
        np.testing.assert_allclose(
            weights[0], after.leniency[0] - before.leniency[0], rtol=0, atol=1e-9
        )
        np.testing.assert_allclose(weights[1:], after.tastes[0, 1:], rtol=0, atol=1e-9)
        np.testing.assert_allclose(variance[row], after.variance[0], rtol=0, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 40), k=st.integers(0, 12))
def test_a_row_is_the_same_to_the_last_bit_in_any_company(
    seed: int, rows: int, k: int, small_world: Any, rater: Any
) -> None:
    live = bind(rater, small_world.personas, small_world.items)
    asked = questions(small_world, seed, rows, k)
    whole = live.rate(*asked)
    for row in range(rows):
        alone = live.rate(*(part[row : row + 1] for part in asked))
        np.testing.assert_array_equal(alone.probabilities[0], whole.probabilities[row])
        assert alone.expected[0] == whole.expected[row]


def test_unknown_items_are_average_as_memories_and_rated_by_their_genres(
    small_world: Any, rater: Any
) -> None:
    new = small_world.items.with_columns(
        item_id=pl.when(pl.int_range(pl.len()) % 3 == 0)
        .then(pl.format("new:{}", "item_id"))
        .otherwise("item_id")
    )
    live = LiveStatistical(rater, small_world.personas, new)
    asked = questions(small_world, 9, 30, 6)
    tables = BoundRater(rater, small_world.personas, new)
    np.testing.assert_allclose(
        live.rate(*asked).probabilities, tables.rate(*asked).probabilities, rtol=0, atol=SINGLE
    )


def test_a_sweep_is_a_question_about_every_item(small_world: Any, rater: Any) -> None:
    live = LiveStatistical(rater, small_world.personas, small_world.items)
    past, ratings = np.array([4, 9, -1]), np.array([10.0, 2.0, 1.0])
    things = np.arange(small_world.items.height)
    again = (len(things), 3)
    asked = live.rate(
        np.zeros(len(things), np.int64),
        things,
        np.broadcast_to(past, again),
        np.broadcast_to(ratings, again),
    )
    swept = live.sweep(0, past, ratings)
    np.testing.assert_array_equal(swept, asked.expected)


def test_effects_are_those_of_the_rater(small_world: Any, rater: Any) -> None:
    live = LiveStatistical(rater, small_world.personas, small_world.items)
    history = pl.DataFrame(
        {
            "persona_id": [small_world.personas["persona_id"][1]] * 2,
            "item_id": small_world.items["item_id"].gather([3, 8]),
            "rating": [9.0, 2.0],
        }
    )
    single_row = rater.effects(small_world.personas[1], small_world.items[5], history)
    found = live.explain(1, 5, np.array([3, 8, -1]), np.array([9.0, 2.0, 1.0]))
    assert found.keys() == single_row.keys()
    for effect, value in found.items():
        assert value == pytest.approx(float(single_row[effect][0]), abs=1e-6)


def test_a_memory_off_the_scale_is_refused_and_padding_is_not_looked_at(
    small_world: Any, rater: Any
) -> None:
    live = LiveStatistical(rater, small_world.personas, small_world.items)
    one = np.zeros(1, np.int64)
    live.rate(one, one, np.array([[2, -1]]), np.array([[5.0, 99.0]]))
    with pytest.raises(ContractError, match="not on the scale: 1-10"):
        live.rate(one, one, np.array([[2, 3]]), np.array([[5.0, 11.0]]))


def test_a_model_is_asked_once_about_all_rows_even_of_one_persona(small_world: Any) -> None:
    """Two environments may hold the same persona with different memories."""
    calls: list[int] = []

    class Counted(ScriptedEngine):
        def submit(self, requests: Any) -> Any:
            calls.append(1)
            return super().submit(requests)

    def script(request: Any) -> dict[str, float]:
        # Film 1 is remembered in the first row only, and said so in that prompt only.
        shown = any("Film 1 " in m.content or "Film 1\n" in m.content for m in request.messages)
        return {"5": 1.0} if shown else {"1": 1.0}

    items = small_world.items.with_columns(
        title=pl.format("Film {} ", pl.int_range(1, pl.len() + 1))
    )
    llm = LLMRater(Counted(script), SCALES["1-5"], catalogue=items)
    live = bind(llm, small_world.personas, items)
    batch = live.rate(
        np.array([2, 2, 1]),
        np.array([5, 5, 5]),
        np.array([[0], [7], [-1]]),
        np.array([[5.0], [5.0], [1.0]]),
    )
    assert batch.expected.tolist() == [5.0, 1.0, 1.0]
    assert len(calls) == 1


def test_a_model_is_told_how_often_the_two_met(small_world: Any) -> None:
    asked: list[str] = []

    def script(request: Any) -> dict[str, float]:
        asked.append(request.messages[-2].content.rpartition("This is ")[2])
        return {"3": 1.0}

    llm = LLMRater(ScriptedEngine(script), SCALES["1-5"])
    live = bind(llm, small_world.personas, small_world.items)
    nothing = np.full((2, 0), -1), np.zeros((2, 0))
    live.rate(np.array([0, 1]), np.array([3, 3]), *nothing, met=np.array([0, 2]))
    assert sorted(rank for prompt in asked for rank in ("1st", "3rd") if rank in prompt) == [
        "1st",
        "3rd",
    ]


def test_other_raters_are_asked_in_layers_and_rows_stay_in_place(small_world: Any) -> None:
    mean = MeanRater(small_world.item_stats, SCALES["1-10"], SCALES["0.5-5"])
    live = bind(mean, small_world.personas, small_world.items)
    who, what = np.array([1, 1, 0, 1]), np.array([4, 9, 2, 4])
    found = live.rate(who, what, np.full((4, 1), -1), np.ones((4, 1)))
    pairs = np.stack([who, what], axis=1)
    whole = mean.rate(small_world.personas, small_world.items, pairs=pairs)
    np.testing.assert_allclose(found.probabilities, whole.probabilities)
    assert list(found.status) == ["ok"] * 4
