"""Metrics of lifetimes: worked examples and laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ConfigError
from sim.dialogue import DialogueWorld, Facet, Lifetimes, open_agent, open_customer, play
from sim.dialogue._metrics import (
    METRICS,
    Values,
    agreement,
    answers_used,
    calibration,
    faithfulness,
    gap_closed,
    paired,
    values_of,
)
from sim.dialogue.testing import sample_world


def episodes(regrets: Any, *, chance: float = 40.0, ranks: Any = None) -> pl.DataFrame:
    """Episodes with these regrets by lifetime; None failed."""
    rows = []
    for seed, own in enumerate(regrets):
        for n, regret in enumerate(own):
            rank = None if regret is None else ranks[seed][n] if ranks else 1 + int(regret)
            rows.append(
                {
                    "seed": seed,
                    "episode": n + 1,
                    "regret": regret,
                    "random_regret": chance,
                    "rank": rank,
                    "questions": n,
                    "status": "failed" if regret is None else "ok",
                }
            )
    return pl.DataFrame(rows, schema_overrides={"regret": pl.Float64})


def test_top_shares_count_ties() -> None:
    found = episodes([[0.0, 0.0, 5.0]], ranks=[[1, 1, 5]])
    assert values_of(found, "top_1").values.tolist() == [[1, 1, 0]]
    assert values_of(found, "top_3").values.tolist() == [[1, 1, 0]]
    assert values_of(found, "top_5").values.tolist() == [[1, 1, 1]]


def test_regrets_add_up_until_an_episode_fails() -> None:
    found = values_of(episodes([[1.0, 2.0, 4.0], [1.0, None, 4.0]]), "cumulative_regret")
    np.testing.assert_array_equal(found.values, [[1, 3, 7], [1, np.nan, np.nan]])


def test_failed_episodes_are_left_out_and_counted() -> None:
    found = episodes([[10.0, None], [20.0, 30.0]])
    curve = values_of(found, "regret").curve()
    assert [f.value for f in curve] == [15.0, 30.0]
    assert values_of(found, "regret").lifetimes.tolist() == [2, 1]
    assert [f.value for f in values_of(found, "failed").curve()] == [0.0, 0.5]


def test_random_has_a_normalised_regret_of_one() -> None:
    found = values_of(episodes([[40.0, 20.0], [40.0, 0.0]]), "normalised_regret")
    assert found.values.tolist() == [[1.0, 0.5], [1.0, 0.0]]


def test_slopes_are_per_episode_of_a_lifetime() -> None:
    found = values_of(episodes([[9.0, 7.0, 5.0], [1.0, None, 5.0], [None, None, 3.0]]), "regret")
    np.testing.assert_allclose(found.slope().values[:, 0], [-2.0, 2.0, np.nan])


def test_gap_closed_is_the_way_from_random_to_the_oracle() -> None:
    found = gap_closed(episodes([[25.0, 35.0]] * 4), episodes([[10.0, 10.0]] * 4))
    assert found.value == pytest.approx((40 - 30) / (40 - 10))
    assert found.low == pytest.approx(found.high)


def test_paired_differences_are_of_the_same_lifetimes_and_episodes() -> None:
    left, right = episodes([[5.0, 6.0]] * 6), episodes([[7.0, 9.0]] * 5)
    found, p = paired(values_of(left, "regret"), values_of(right, "regret"))
    assert found.values.tolist() == [[-2.0, -3.0]] * 5
    assert p == pytest.approx(2 / 32)
    assert [f.value for f in found.curve()] == [-2.0, -3.0]


def test_intervals_cover_the_mean_of_lifetimes() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(60):
        values = Values(np.arange(40), np.zeros(1), rng.normal(3.0, 1.0, (40, 1)))
        found = values.overall(seed=seed)
        hits += found.low <= 3.0 <= found.high
    assert hits >= 51


def test_calibration_is_by_event_and_episode() -> None:
    none = dict.fromkeys(("top_5", "regret_5", "regret_20", "regret_30"))
    turns = pl.DataFrame(
        [
            {"seed": n, "episode": 1, "kind": "recommend", "rank": rank, "regret": regret, **none}
            | {"top_1": c, "regret_10": 1.0}
            for n, (c, rank, regret) in enumerate(
                [(0.95, 1, 0.0), (0.95, 4, 30.0), (0.55, 1, 0.0), (0.55, 1, 0.0)]
            )
        ],
        schema_overrides=dict.fromkeys(none, pl.Float64),
    )
    found = calibration(turns)
    assert set(found) == {(1, "top_1"), (1, "regret_10")}
    assert found[1, "top_1"][0].value == pytest.approx(0.45)
    assert found[1, "regret_10"][0].value == pytest.approx(0.25)
    assert found[1, "top_1"][1] == 4


def test_unknown_metrics_get_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown metric: 'regrets' .*regret"):
        values_of(episodes([[1.0]]), "regrets")
    assert all(METRICS.values())


def test_faithful_answers_name_values_above_the_mean(world: DialogueWorld) -> None:
    life = Lifetimes.draw(world, range(12), episodes=3)
    shares = []
    for options in ({"tau": 0.0, "delta": -100.0}, {"tau": 1e6, "delta": -1e9}):
        found = play(world, life, open_agent("base"), open_customer("statistical", **options))
        shares.append(faithfulness(world, found.turns, found.episodes).overall().value)
    assert shares[0] == 1.0
    assert 0.3 < shares[1] < 0.6


def test_answers_agree_with_their_persona_and_not_with_another(world: DialogueWorld) -> None:
    life = Lifetimes.draw(world, range(12), episodes=3)
    exact = open_customer("statistical", tau=0.0)
    played = play(world, life, open_agent("base"), exact)
    follows, chance = agreement(world, played.turns, played.episodes)
    assert follows.overall().value == 1.0
    # By hand: the same answer of the other personas.
    row = played.turns.filter(kind="answer", seed=0, episode=1).row(0, named=True)
    drawn = exact._answers(int(life.sets[0, 0]))  # type: ignore[attr-defined]
    shelf = world.sets[int(life.sets[0, 0])]
    facet = [f.facet_id for f in shelf.facets].index(row["facet_id"])
    same = drawn[:, facet] == drawn[life.personas[0, 0], facet]
    first = played.turns.filter(pl.col("turn") == 0, pl.col("seed") == 0, pl.col("episode") == 1)
    _, alone = agreement(world, first, played.episodes)
    assert alone.values[0, 0] == pytest.approx((same.sum() - 1) / (len(same) - 1))
    assert chance.overall().high < 0.8


def test_answers_are_used_where_the_sold_product_has_their_value() -> None:
    # Four products; a colour is asked for, which one (red) or three (blue) of them have.
    facet = Facet("f", "colour", "Which colour?", ("red", "blue"), np.array([0, 1, 1, 1], np.int8))
    one = sample_world(sets=1)
    [whole] = one.sets
    shelf = replace(whole, facets=(facet,), item_ids=("a", "b", "c", "d"), y=whole.y[:, :4])
    world = replace(one, sets=(shelf,))
    rows = [("red", "a"), ("red", "b"), ("blue", "b"), (None, "a"), ("blue", None)]
    common = {"run": "r", "seed": range(5), "episode": 1}
    played = pl.DataFrame(
        common | {"persona_id": "p", "category_id": shelf.category_id,
                  "item_id": [sold for _, sold in rows]}
    )  # fmt: skip
    turns = pl.DataFrame(
        common
        | {"kind": "answer", "status": "ok", "facet_id": "f", "value": [value for value, _ in rows]}
    )
    found = answers_used(world, turns, played)
    assert found.seeds.tolist() == [0, 1, 2]
    assert found.values[:, 0].tolist() == [1 - 1 / 4, 0 - 1 / 4, 1 - 3 / 4]


@pytest.mark.parametrize("agent", ["base", "dp", "thompson"])
def test_without_memory_there_is_no_slope(world: DialogueWorld, agent: str) -> None:
    life = Lifetimes.draw(world, range(80), episodes=6)
    found = play(world, life, open_agent(agent), open_customer("statistical"), memory=False)
    slope = values_of(found.episodes, "normalised_regret").slope().overall()
    assert slope.low <= 0 <= slope.high


def test_a_seen_customer_is_sold_better_products_with_memory(world: DialogueWorld) -> None:
    life = Lifetimes.draw(world, range(80), episodes=6, cell="seen/seen")
    on, off = (
        play(world, life, open_agent("thompson"), open_customer("statistical"), memory=memory)
        for memory in (True, False)
    )
    found, p = paired(*(values_of(f.episodes, "normalised_regret") for f in (on, off)))
    assert found.overall().high < 0
    assert p < 0.01
