"""The cumulative logit: probabilities by hand, gradients by difference, recovery of truth."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from pipelines.raters.statistical.ordinal import OrdinalModel, calibrate, fit_ordinal


def draw_answers(features, weights, cutpoints, rng):
    noise = rng.logistic(size=len(features))
    return np.searchsorted(cutpoints, features @ weights + noise).astype(np.int64)


def test_probabilities_of_three_answers_by_hand():
    """Cutpoints 0 and ln 3, location 0: below the first 1/2, below the second 3/4."""
    model = OrdinalModel(np.array([1.0]), np.array([0.0, np.log(3)]))
    np.testing.assert_allclose(model.probabilities(np.array([0.0])), [[0.5, 0.25, 0.25]])


@given(
    cuts=st.lists(st.floats(-8, 8), min_size=1, max_size=9, unique=True),
    location=st.lists(st.floats(-60, 60), min_size=1, max_size=5),
)
def test_probabilities_are_a_distribution_even_far_out(cuts, location):
    model = OrdinalModel(np.array([]), np.sort(np.array(cuts)))
    found = model.probabilities(np.array(location))
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)


@given(low=st.floats(-5, 5), step=st.floats(0.01, 5))
def test_a_better_location_never_lowers_the_expected_answer(low, step):
    model = OrdinalModel(np.array([]), np.array([-2.0, -0.5, 0.3, 2.5]))
    one, two = model.probabilities(np.array([low, low + step])) @ np.arange(1, 6)
    assert two > one


def test_the_fit_recovers_weights_and_cutpoints():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(40_000, 2))
    weights, cutpoints = np.array([1.5, 0.4]), np.array([-2.0, 0.0, 1.0])
    answer = draw_answers(features, weights, cutpoints, rng)
    found = fit_ordinal(features, answer, 4)
    np.testing.assert_allclose(found.weights, weights, atol=0.05)
    np.testing.assert_allclose(found.cutpoints, cutpoints, atol=0.05)


def test_a_weight_stops_at_zero():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(5_000, 1))
    answer = draw_answers(features, np.array([-1.0]), np.array([-1.0, 1.0]), rng)
    assert fit_ordinal(features, answer, 3).weights[0] == 0.0


def test_answers_that_never_occur_are_possible_all_the_same():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(500, 1))
    answer = np.where(features[:, 0] > 0, 3, 1).astype(np.int64)
    found = fit_ordinal(features, answer, 5)
    assert (np.diff(found.cutpoints) > 0).all()
    assert np.isfinite(found.cutpoints).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1_000), counts=st.lists(st.integers(0, 50), min_size=2, max_size=10))
def test_calibration_meets_the_histogram_exactly(seed, counts):
    if not sum(counts):
        counts[0] = 1
    histogram = np.array(counts) / sum(counts)
    location = np.random.default_rng(seed).normal(0, 2, size=300)
    cuts = calibrate(location, histogram)
    mean = OrdinalModel(np.array([]), cuts).probabilities(location).mean(axis=0)
    # Empty answers keep a share of a millionth each.
    np.testing.assert_allclose(mean, histogram, atol=2e-5)


def test_calibration_of_equal_rows_is_the_logit_of_the_cumulated_shares():
    cuts = calibrate(np.full(10, 0.7), np.array([0.2, 0.3, 0.5]))
    np.testing.assert_allclose(expit(cuts - 0.7), [0.2, 0.5], atol=1e-12)
