"""Ratings of agents beside those of people."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sim.experiments import ExperimentContext
from sim.experiments._distribution import (
    correlation,
    distribution,
    likeness_of,
    low_share_of,
)


def test_equal_ratings_of_everybody_have_likeness_one() -> None:
    target = np.array([0.0, 0.25, 0.25, 0.25, 0.25])
    counts = np.tile(target * 8, (12, 1))
    likeness = likeness_of(counts, np.tile(target, (12, 1)))
    low = low_share_of(counts, 2)
    assert (likeness.low, likeness.value, likeness.high) == (1.0, 1.0, 1.0)
    assert (low.low, low.value, low.high) == (0.25, 0.25, 0.25)


def test_pooled_ratings_weigh_people_by_their_ratings() -> None:
    # Three ratings of 1 and one of 5: shares 3/4 and 1/4 against all fives.
    counts = np.array([[3.0, 0, 0, 0, 0], [0, 0, 0, 0, 1.0]])
    likeness = likeness_of(counts, np.array([[0, 0, 0, 0, 1.0]] * 2))
    assert likeness.value == pytest.approx(0.25)
    assert low_share_of(counts, 2).value == pytest.approx(0.75)


def test_correlation_is_none_where_nothing_varies() -> None:
    own = np.array([1.0, 2.0, 4.0, np.nan])
    assert correlation(np.array([2.0, 2.0, 2.0, 2.0]), own) is None
    found = correlation(np.array([2.0, 4.0, 8.0, 1.0]), own)
    assert found is not None
    assert found.value == pytest.approx(1.0)


def test_likeness_of_the_rated_items_pools_both_sides() -> None:
    # Ratings 1, 5, 5 against shares of 1 and 5 of the same three items: a third against a half.
    counts = np.array([[1.0, 0, 0, 0, 2.0]] * 10)
    expected = np.array([[1.5, 0, 0, 0, 1.5]] * 10)
    found = likeness_of(counts, expected)
    assert (found.low, found.value, found.high) == pytest.approx((5 / 6,) * 3)


def test_people_rate_their_own_items_as_others_did(context: ExperimentContext) -> None:
    rows = distribution.run(context).rows
    people = next(row for row in rows if row.source == "people")
    # Test items are of any block, histograms of the same items are nearer than those of all.
    assert people.figures["likeness_items"].value >= people.figures["likeness"].value


@pytest.mark.pipeline
def test_small_sample_of_a_model_leaves_the_other_rows(
    scripted: Callable[..., ExperimentContext],
) -> None:
    found = distribution.run(scripted())
    models = [row for row in found.rows if row.source == "model"]
    assert len(models) == 2
    for row in models:
        assert row.n <= 6
        assert set(row.figures.values()) == {None}
        assert "at least 10 are needed" in row.note
