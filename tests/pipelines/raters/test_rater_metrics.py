"""Figures of predicted ratings: worked by hand, and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ContractError
from pipelines.raters.report.metrics import (
    HeldOut,
    Predictions,
    evaluate,
    paired_difference,
    paired_loss_difference,
    reliability,
)
from pipelines.scales import SCALES

STARS = SCALES["1-5"]
# Two users: 5, 3, 1 stars and 4, 2 stars.
HELD_OUT = HeldOut(np.array([0, 0, 0, 1, 1]), np.array([5.0, 3.0, 1.0, 4.0, 2.0]), STARS)


def _said(*expected: float, probabilities: np.ndarray | None = None) -> Predictions:
    return Predictions("someone", np.array(expected), probabilities)


def test_errors_are_those_worked_by_hand() -> None:
    figures = evaluate(_said(4, 3, 3, 4, 4), HELD_OUT)  # errors -1, 0, 2, 0, 2
    assert figures["rmse"]["value"] == pytest.approx(math.sqrt(9 / 5))
    assert figures["mae"]["value"] == pytest.approx(1.0)


def test_pairs_of_a_user_are_compared_with_each_other_only() -> None:
    # User 0: 5>3 tied (1/2), 5>1 right, 3>1 right -> 2.5/3; user 1: 4>2 wrong -> 0.
    figures = evaluate(_said(4, 4, 1, 1, 5), HELD_OUT)
    assert figures["pairwise"]["value"] == pytest.approx((2.5 / 3 + 0) / 2)


def test_ndcg_of_a_reversed_list_is_that_worked_by_hand() -> None:
    held_out = HeldOut(np.array([0, 0, 0]), np.array([5.0, 3.0, 1.0]), STARS)
    figures = evaluate(_said(1, 2, 3), held_out)
    worst = 0 / 1 + 2 / math.log2(3) + 4 / 2  # gains 0, 2, 4 at ranks 1, 2, 3
    best = 4 / 1 + 2 / math.log2(3) + 0
    assert figures["ndcg@10"]["value"] == pytest.approx(worst / best)


def test_a_constant_ranks_like_chance() -> None:
    rng = np.random.default_rng(0)
    held_out = HeldOut(np.repeat(np.arange(400), 8), rng.integers(1, 6, 3200).astype(float), STARS)
    constant = evaluate(Predictions("mean", np.full(3200, 3.0)), held_out)
    random = [
        evaluate(Predictions("r", rng.random(3200)), held_out)["ndcg@10"]["value"]
        for _ in range(20)
    ]
    assert constant["pairwise"]["value"] == 0.5
    assert constant["ndcg@10"]["value"] == pytest.approx(np.mean(random), abs=0.005)


def test_calibration_error_is_that_worked_by_hand() -> None:
    held_out = HeldOut(np.array([0, 0, 1, 1]), np.array([5.0, 5.0, 5.0, 1.0]), STARS)
    sure = [0.0, 0.0, 0.1, 0.0, 0.9]
    unsure = [0.1, 0.1, 0.1, 0.15, 0.55]
    figures = evaluate(
        _said(4.6, 4.6, 4.0, 4.0, probabilities=np.array([sure, sure, unsure, unsure])), held_out
    )
    # Bin of 0.9: both right, gap 0.1; bin of 0.55: one of two right, gap 0.05.
    assert figures["ece"]["value"] == pytest.approx(0.5 * 0.1 + 0.5 * 0.05)


def test_log_loss_is_that_worked_by_hand() -> None:
    held_out = HeldOut(np.array([0, 1]), np.array([5.0, 1.0]), STARS)
    even, sure = [0.2] * 5, [0.05, 0.05, 0.05, 0.05, 0.8]
    left, right = (_said(4, 4, probabilities=np.array([p, p])) for p in (sure, even))
    loss = -(np.log(0.8) + np.log(0.05)) / 2
    assert evaluate(left, held_out)["nll"]["value"] == pytest.approx(loss)
    gap = paired_loss_difference(left, right, held_out)
    assert gap["value"] == pytest.approx(loss - np.log(5))
    assert gap["low"] <= gap["value"] <= gap["high"]


def test_reliability_rows_say_what_was_claimed_and_what_came() -> None:
    held_out = HeldOut(np.array([0, 1]), np.array([5.0, 1.0]), STARS)
    claimed = np.array([[0.1, 0.1, 0.1, 0.15, 0.55]] * 2)
    assert reliability(_said(4, 4, probabilities=claimed), held_out) == [
        {"bin": 5, "ratings": 2, "accuracy": 0.5, "confidence": pytest.approx(0.55)}
    ]
    assert reliability(_said(4, 4), held_out) == []


def test_similarity_is_one_minus_total_variation() -> None:
    # People: one rating of each answer. Said: 4, 3, 3, 4, 4 -> shares 0, 0, .4, .6, 0.
    figures = evaluate(_said(4, 3, 3, 4, 4), HELD_OUT)
    distance = 0.5 * (0.2 + 0.2 + 0.2 + 0.4 + 0.2)
    assert figures["similarity"]["value"] == pytest.approx(1 - distance)


def test_a_predictor_without_distribution_has_no_calibration() -> None:
    assert "ece" not in evaluate(_said(4, 3, 3, 4, 4), HELD_OUT)


def test_users_with_equal_ratings_have_no_ranking() -> None:
    held_out = HeldOut(np.array([0, 0]), np.array([4.0, 4.0]), STARS)
    figures = evaluate(_said(4, 3), held_out)
    assert "ndcg@10" not in figures
    assert "pairwise" not in figures


@pytest.mark.parametrize("expected", [[1.0], [1.0, 2.0, 3.0, 4.0, math.nan]])
def test_a_missing_prediction_is_no_rating(expected: list[float]) -> None:
    with pytest.raises(ContractError, match="missing or not a number"):
        evaluate(_said(*expected), HELD_OUT)


def test_nothing_held_out_is_an_error() -> None:
    with pytest.raises(ContractError, match="no held-out rating"):
        evaluate(_said(), HeldOut(np.zeros(0, dtype=np.int64), np.zeros(0), STARS))


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng, hits = np.random.default_rng(5), 0
    for trial in range(100):
        user = np.repeat(np.arange(60), 5)
        # Users differ in how hard they are to predict: 1.0 is the root of the mean square.
        spread = np.repeat(np.sqrt(rng.exponential(1.0, 60)), 5)
        error = rng.normal(0, 1, 300) * spread
        held_out = HeldOut(user, np.full(300, 3.0), STARS)
        found = evaluate(Predictions("x", 3.0 + error), held_out, seed=trial)
        hits += found["rmse"]["low"] <= 1.0 <= found["rmse"]["high"]
    assert 85 <= hits <= 100


def test_a_paired_difference_sees_what_two_intervals_can_not() -> None:
    rng = np.random.default_rng(1)
    user = np.repeat(np.arange(200), 5)
    truth = rng.uniform(1, 5, 1000)
    hard = np.repeat(rng.exponential(1.0, 200), 5) * rng.normal(0, 1, 1000)
    held_out = HeldOut(user, truth, STARS)
    good, worse = Predictions("good", truth + hard), Predictions("worse", truth + 1.03 * hard)
    alone = [evaluate(p, held_out)["rmse"] for p in (good, worse)]
    assert alone[0]["high"] > alone[1]["low"]
    assert paired_difference(good, worse, held_out)["high"] < 0
    assert paired_difference(good, good, held_out) == {"value": 0.0, "low": 0.0, "high": 0.0}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60))
def test_figures_lie_in_their_ranges_and_in_their_intervals(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    user = np.unique(rng.integers(0, 6, n), return_inverse=True)[1]
    held_out = HeldOut(user, rng.integers(1, 6, n).astype(float), STARS)
    p = rng.dirichlet(np.ones(5), n)
    figures = evaluate(Predictions("x", p @ STARS.answers, p), held_out)
    for name, figure in figures.items():
        assert figure["low"] <= figure["high"], name
        assert figure["value"] >= 0, name
        if name not in {"rmse", "mae", "nll"}:
            assert figure["value"] <= 1 + 1e-12, name
    assert figures["mae"]["value"] <= figures["rmse"]["value"] + 1e-12


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_order_of_the_rows_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    user, truth = np.repeat(np.arange(5), 4), rng.integers(1, 6, 20).astype(float)
    guess, order = rng.random(20), rng.permutation(20)
    straight = evaluate(Predictions("x", guess), HeldOut(user, truth, STARS))
    mixed = evaluate(Predictions("x", guess[order]), HeldOut(user[order], truth[order], STARS))
    for name in straight:
        assert mixed[name]["value"] == pytest.approx(straight[name]["value"]), name
