"""The quality summary: similarity by hand, baselines beside it, intervals."""

import numpy as np
import orjson
import polars as pl
import pytest

from pipelines.config import ScoringSettings
from pipelines.errors import ContractError
from pipelines.raters import fit_rater, plan_pairs, quality_summary, score_pairs


def summary(world, name="statistical", scale="1-10", **more):
    rater = fit_rater(name, scale=scale, **world.tables, **world.vectors)
    plan = plan_pairs(world.personas, world.items, world.item_stats, ScoringSettings())
    scores = pl.concat(list(score_pairs(rater, plan, world.personas, world.items)))
    learned = {n: world.tables[n] for n in ("item_stats", "interactions")}
    return quality_summary(scores, rater=rater, **learned, **more)


@pytest.fixture(scope="module")
def statistical(small_world):
    return summary(small_world)


def test_the_rater_stands_beside_random_and_mean(statistical):
    rows = {row["rater"]: row for row in statistical["similarity"]}
    assert list(rows) == ["statistical", "random", "mean"]
    assert rows["statistical"]["similarity"] > 0.85
    assert rows["statistical"]["similarity"] > max(
        rows["random"]["similarity"], rows["mean"]["similarity"]
    )
    for row in rows.values():
        assert 0 <= row["low"] <= row["similarity"] <= row["high"] <= 1
        assert row["low"] < row["high"]


def test_histograms_are_shares_of_the_answers(statistical, small_world):
    assert set(statistical["histograms"]) == {"human", "statistical", "random", "mean"}
    for shares in statistical["histograms"].values():
        assert len(shares) == len(statistical["answers"]) == 10
        assert sum(shares) == pytest.approx(1, abs=1e-4)
    stars = small_world.interactions["rating"]
    assert statistical["histograms"]["human"][8] == pytest.approx((stars == 4.5).mean(), abs=1e-5)
    np.testing.assert_allclose(statistical["histograms"]["random"], 0.1, atol=0.03)


def test_the_summary_is_plain_data_says_what_is_fitted_and_repeats(statistical, small_world):
    assert orjson.loads(orjson.dumps(statistical)) == statistical
    assert statistical["facts"]["by_hand"]
    assert summary(small_world) == statistical


@pytest.mark.parametrize(("name", "others"), [("random", ["mean"]), ("mean", ["random"])])
def test_baselines_stand_beside_each_other(small_world, name, others):
    found = summary(small_world, name, "0-9")
    assert [row["rater"] for row in found["similarity"]] == [name, *others]


def test_nothing_to_judge_and_another_scale_are_errors(small_world):
    rater = fit_rater("random", scale="1-10", **small_world.tables)
    learned = {n: small_world.tables[n] for n in ("item_stats", "interactions")}
    plan = pl.DataFrame({"persona_id": ["a"], "item_id": ["ml:1"]})
    scores = next(score_pairs(rater, plan, plan, plan))
    with pytest.raises(ContractError, match="no score"):
        quality_summary(scores.head(0), rater=rater, **learned)
    with pytest.raises(ContractError, match="another scale"):
        quality_summary(scores.with_columns(scale=pl.lit("1-5")), rater=rater, **learned)
