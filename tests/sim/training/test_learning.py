"""The ceiling, the best common list, and what policies earn between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.raters import BoundRater, RatingBatch
from pipelines.scales import scale_named
from sim.environment import World
from sim.recommenders import BASELINES, Audience, Recommender, open_recommender
from sim.training import RunSettings, train


class PlantedRater(BoundRater):
    """Each persona rates the six films of one genre block 9, the others 3, always.

    The block is not that of its stated likes: only ratings tell.
    """

    name, language_model, note = "planted", False, "Ratings are planted: no language model."
    scale = scale_named("1-10")

    def __init__(self, world: World) -> None:
        block = np.array([(int(i.removeprefix("ml:")) - 1) // 6 for i in world.catalogue.ids])
        personas = np.arange(len(world.cast))
        self._table = np.where((personas[:, None] + 1) % 4 == block[None, :], 9, 3)

    def rate(
        self, personas: Any, items: Any, past: Any, ratings: Any, met: Any = None
    ) -> RatingBatch:
        del past, ratings, met
        given = self._table[personas, items]
        return RatingBatch(self.scale, np.eye(10)[given - 1], ["ok"] * len(given))

    def sweep(self, persona: int, past: Any, ratings: Any) -> Any:
        del past, ratings
        return self._table[persona].astype(np.float64)


@pytest.fixture
def planted(world: World) -> World:
    """The small release with planted ratings."""
    return replace(world, rater=PlantedRater(world))


def test_the_oracle_takes_the_best_items_and_no_other_list_earns_more(planted: World) -> None:
    audience = Audience(planted)
    common_list, oracle = audience.references()
    best = audience.play(oracle)
    # Six films of 9 and four of 3 for everybody.
    assert best.ratings.mean(axis=1).tolist() == pytest.approx([6.6] * 6)
    common = audience.play(common_list).ratings.mean()
    for name in BASELINES:
        other = audience.play(open_recommender(name).fit(planted.release)).ratings.mean()
        assert other <= 6.6
        if name in ("popular", "mean-rating"):
            assert other <= common


@pytest.mark.pipeline
def test_the_oracle_is_the_ceiling_of_the_statistical_rater(world: World) -> None:
    # 40 draws of all ratings: the standard error of a mean is about 0.04.
    audience = Audience(world)

    def reward(recommender: Recommender) -> float:
        return float(np.mean([audience.play(recommender, seed=s).ratings for s in range(40)]))

    common, best = (reward(one) for one in audience.references())
    assert best > common
    for name in BASELINES:
        assert reward(open_recommender(name).fit(world.release)) < best
    for name in ("popular", "mean-rating"):
        assert reward(open_recommender(name).fit(world.release)) < common + 0.1


@pytest.mark.night
@pytest.mark.parametrize("algo", ["a2c", "ppo", "trpo", "dqn"])
def test_a_policy_with_default_settings_learns_planted_tastes(
    planted: World, tmp_path: Path, algo: str
) -> None:
    settings = RunSettings(algo=algo, steps=12_288, evaluate_every=12_288, length_limit=20)
    report = train(planted, settings, [0], tmp_path / "run")
    value = {name: row["average_reward"].value for name, row in report.rows.items()}
    assert list(value) == [*BASELINES, "best common list", algo, "oracle"]
    assert value["oracle"] == pytest.approx(6.6)
    assert value[algo] > value["mean-rating"]
    assert report.rows[algo]["headroom"].value > 0.3
    assert report.rows["oracle"]["headroom"].value == pytest.approx(1)
    assert report.rows["best common list"]["headroom"].value == pytest.approx(0)


def test_the_ceiling_of_a_language_model_is_not_asked_for(planted: World) -> None:
    rater = PlantedRater(planted)
    rater.language_model = True  # type: ignore[misc]
    assert Audience(replace(planted, rater=rater)).references() == []
