"""Bulk scoring: the contract, the order, draws that belong to pairs, rows that failed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.config import ScoringSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError, EngineError
from pipelines.progress import listening
from pipelines.raters import (
    SCALES,
    RandomRater,
    RatingBatch,
    bind,
    fit_rater,
    plan_pairs,
    score_pairs,
)


@pytest.fixture(scope="module")
def plan(small_world):
    return plan_pairs(
        small_world.personas, small_world.items, small_world.item_stats, ScoringSettings()
    )


def scored(rater, plan, world, **more):
    return pl.concat(list(score_pairs(rater, plan, world.personas, world.items, **more)))


@pytest.fixture(scope="module")
def rater(small_world):
    return fit_rater("statistical", scale="1-10", **small_world.tables, **small_world.vectors)


def test_scores_keep_the_contract_and_the_order_of_the_plan(rater, plan, small_world):
    frame = scored(rater, plan, small_world, seed=11)
    assert CONTRACTS["movies.preference_scores"].validate(frame).equals(frame)
    assert frame.select("persona_id", "item_id").equals(plan.select("persona_id", "item_id"))
    sums = frame["probabilities"].list.sum()
    np.testing.assert_allclose(sums.to_numpy(), 1.0, atol=1e-9)
    by_hand = frame.select(
        pl.col("probabilities").list.eval(pl.element() * pl.int_range(1, 11)).list.sum()
    )
    np.testing.assert_allclose(by_hand.to_series().to_numpy(), frame["expected"].to_numpy())


def test_the_batch_size_changes_nothing_but_rounding(rater, plan, small_world):
    whole = scored(rater, plan, small_world)
    parts = scored(rater, plan, small_world, batch=97)
    np.testing.assert_allclose(whole["expected"], parts["expected"], atol=1e-5)
    assert (whole["sample"] == parts["sample"]).mean() > 0.999


def test_a_draw_belongs_to_its_pair_and_seed(plan, small_world):
    rater = RandomRater(SCALES["1-10"])
    whole = scored(rater, plan, small_world, seed=5)
    some = plan.filter(pl.int_range(pl.len()) % 7 == 0)
    part = scored(rater, some, small_world, seed=5)
    assert part.equals(whole.join(some, on=["persona_id", "item_id"], how="semi"))
    other = scored(rater, plan, small_world, seed=6)
    assert (other["sample"] == whole["sample"]).mean() < 0.2


def test_draws_follow_the_distribution(plan, small_world):
    frame = scored(RandomRater(SCALES["0-9"]), plan, small_world)
    counts = np.bincount(frame["sample"].to_numpy(), minlength=10)
    expected = frame.height / 10
    # Chi-square with 9 degrees of freedom: 27.9 is exceeded once in a thousand.
    assert ((counts - expected) ** 2 / expected).sum() < 27.9


@dataclass(frozen=True)
class Faulty:
    """A rater that fails on every fourth pair, or breaks the protocol."""

    fault: str = ""
    name: str = "faulty"
    scale: Any = SCALES["1-5"]

    def rate(self, personas, items, histories=None, *, pairs=None) -> RatingBatch:
        batch = RandomRater(self.scale).rate(personas, items, pairs=pairs)
        p, status = batch.probabilities.copy(), list(batch.status)
        if self.fault == "sum":
            p[0, 0] += 0.1
        elif self.fault == "rows":
            p = p[1:]
        elif self.fault == "nan":
            p[0] = np.nan
        elif self.fault == "array":
            return p
        elif self.fault == "negative":
            p[0, :2] = -0.2, 0.6
        else:
            bad = pairs[:, 1] % 4 == 0
            p[bad] = np.nan
            status = ["refused" if b else "ok" for b in bad]
        return RatingBatch(self.scale, p, status)

    def metadata(self) -> dict[str, Any]:
        return {"rater": self.name, "fitted": {}, "by_hand": {}}


def test_a_failed_answer_is_a_row_with_a_reason_and_never_a_rating(plan, small_world):
    frame = scored(Faulty(), plan, small_world)
    CONTRACTS["movies.preference_scores"].validate(frame)
    failed = frame.filter(status="refused")
    assert failed.height == plan.height // 4
    for column in ("probabilities", "expected", "mode", "sample", "entropy"):
        assert failed[column].null_count() == failed.height
        assert frame.filter(status="ok")[column].null_count() == 0


@pytest.mark.parametrize("fault", ["sum", "rows", "negative"])
def test_a_rater_that_breaks_the_protocol_stops_the_run(plan, small_world, fault):
    with pytest.raises(EngineError, match="faulty"):
        scored(Faulty(fault), plan, small_world)


@pytest.mark.parametrize("fault", ["sum", "rows", "negative", "nan", "array"])
def test_what_a_rater_returns_is_checked_where_it_is_asked_row_by_row(plan, small_world, fault):
    bound = bind(Faulty(fault), small_world.personas, small_world.items)
    nothing = np.full((2, 1), -1)
    with pytest.raises(EngineError, match="rater faulty"):
        bound.rate(np.array([0, 1]), np.array([0, 1]), nothing, np.full((2, 1), np.nan))


def test_a_plan_that_names_somebody_unknown_is_refused(rater, plan, small_world):
    with pytest.raises(ContractError, match="1 unknown personas") as caught:
        scored(rater, plan.with_columns(persona_id=pl.lit("persona:x:0")), small_world)
    assert caught.value.details["rows"] == [{"persona_id": "persona:x:0"}]
    with pytest.raises(ContractError, match="nothing to score"):
        scored(rater, plan.head(0), small_world)


def test_progress_ends_at_the_size_of_the_plan(rater, plan, small_world):
    seen = []
    with listening(lambda _, done, of: seen.append((done, of))):
        scored(rater, plan, small_world, batch=500)
    assert seen[-1] == (plan.height, plan.height)
    assert seen == sorted(seen)
