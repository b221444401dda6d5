"""The ceiling of recommenders, and the share of the headroom that one earns."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ContractError
from pipelines.raters.report.population import headroom_by_person
from pipelines.scales import SCALES
from sim import Release
from sim.environment import World
from sim.metrics import Played, headroom_share
from sim.recommenders import Audience, CommonListRecommender, OracleRecommender
from sim.recommenders.testing import check_recommender
from sim.training import RunSettings, train


def played(rows: list[list[float]]) -> Played:
    ratings = np.array(rows)
    no = np.zeros(ratings.shape, bool)
    return Played(np.zeros(ratings.shape, np.int64), ratings, SCALES["1-10"], no, no)


def test_share_is_the_gain_over_the_common_list_by_hand() -> None:
    runs, common, oracle = ([played([[a], [b]])] for a, b in ((7, 6), (6, 6), (9, 7)))
    # (6.5 - 6) / (8 - 6)
    share = headroom_share(runs, common, oracle)
    assert share.value == pytest.approx(0.25)
    assert share.low <= share.value <= share.high
    assert headroom_share(common, common, oracle).value == 0
    assert headroom_share(oracle, common, oracle).value == 1


def test_user_without_a_rating_is_left_out_of_all_three() -> None:
    runs = [played([[7], [np.nan]])]
    share = headroom_share(runs, [played([[6], [1]])], [played([[8], [10]])])
    assert share.value == pytest.approx(0.5)


def test_no_headroom_is_refused() -> None:
    same = [played([[5], [5]])]
    with pytest.raises(ContractError, match="no more than the common list"):
        headroom_share(same, same, same)


def test_oracle_and_common_list_earn_the_exact_headroom_in_expectation(world: World) -> None:
    users = np.arange(len(world.cast))
    table = np.stack([world.rater.sweep(int(u), np.zeros(0, np.int64), np.zeros(0)) for u in users])
    own, best, _ = headroom_by_person(table).mean(axis=0)
    oracle = OracleRecommender(world.rater).fit(world.release).recommend(users, 10)
    common = CommonListRecommender(world.rater).fit(world.release).recommend(users, 10)
    assert (common == common[0]).all()
    # The oracle's scores are single precision.
    assert table[users[:, None], oracle].mean() == pytest.approx(own, abs=1e-5)
    assert table[users[:, None], common].mean() == pytest.approx(best)


def test_oracle_earns_more_than_the_common_list_in_the_environment(world: World) -> None:
    audience = Audience(world)
    oracle = [audience.play(OracleRecommender(world.rater).fit(world.release), seed=1)]
    common = [audience.play(CommonListRecommender(world.rater).fit(world.release), seed=1)]
    assert oracle[0].ratings.mean() > common[0].ratings.mean()


@pytest.mark.parametrize("kind", [OracleRecommender, CommonListRecommender])
def test_ceiling_conforms(
    release: Release, world: World, kind: type[OracleRecommender | CommonListRecommender]
) -> None:
    check_recommender(lambda view: kind(world.rater).fit(view), release)


def test_report_states_how_much_the_users_of_the_release_differ(
    small: ModuleType, tmp_path: Path
) -> None:
    """Item x person share of personas and of people, as in the release's population report."""
    ends = {"value": 0.141, "low": 0.1, "high": 0.183}
    share = {f"personas_{k}": v for k, v in ends.items()} | {"people_value": 0.131}
    row = {"figure": "item_person_share", "unit": "share", "personas": 6, "people": 40} | share
    frame = pl.DataFrame([row | {"ratings": 640}])
    world = World.open(small.build(tmp_path / "home", replace={"movies.population": frame}))
    settings = RunSettings(algo="a2c", steps=32, envs=4, evaluate_every=32, users=2)
    sentence = "Item x person share of the variance: personas 0.141 [0.100, 0.183], people 0.131."
    assert sentence in train(world, settings, [0], tmp_path / "run").study.notes
