"""Measures of habits, worked by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from sim.experiments import ExperimentContext
from sim.experiments._traits import (
    _figures,
    group_difference,
    overlap,
    rarefied,
)
from tests.sim.experiments.scripted import Studies


def test_traits_change_nothing_of_a_brain_without_them(studies: Studies) -> None:
    found = studies("traits")
    changed = [
        figure
        for row in found.rows
        if row.labels["traits"] == "with less without" and row.labels["brain"] == "random"
        for figure in row.figures.values()
    ]
    assert len(changed) == 9
    assert all(f is not None and (f.low, f.value, f.high) == (0, 0, 0) for f in changed)


def test_active_agents_watch_more_because_of_their_traits(studies: Studies) -> None:
    found = studies("traits")
    gap = next(
        c for c in found.comparisons if c.left == "statistical, with less without, activity, high"
    )
    assert gap.right == "statistical, with less without, activity, low"
    assert gap.difference.low > 0


def test_behaviour_of_the_worked_example(context: ExperimentContext) -> None:
    world = context.world()
    mean = world.mean_ratings[:2]
    rated = pl.DataFrame(
        {"who": [4, 4], "item_id": world.catalogue.ids[:2], "rating": mean + np.array([1.0, -2.0])}
    )
    found = _figures(world, rated, 2).row(0, named=True)
    expected = len({g for item in range(2) for g in np.flatnonzero(world.genres[item])})
    assert found["watched"] == 2
    assert found["deviation"] == pytest.approx((1 + 4) / 2)
    assert found["genres"] == pytest.approx(expected)


def test_rarefied_genres_equal_mean_over_all_draws() -> None:
    genres = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 1]])
    draws = [int(genres[list(chosen)].any(axis=0).sum()) for chosen in combinations(range(5), 3)]
    found = rarefied(genres.sum(axis=0)[None], [5], 3)
    assert found[0] == pytest.approx(np.mean(draws))


def test_too_few_items_have_no_rarefied_genres() -> None:
    assert np.isnan(rarefied([[1, 1]], [2], 3)).all()
    assert rarefied([[1, 1]], [2], 2).tolist() == pytest.approx([2.0])


def test_groups_apart_are_found_apart() -> None:
    rng = np.random.default_rng(0)
    low, high = rng.normal(0, 1, 200), rng.normal(1, 1, 150)
    difference, p = group_difference(high, low)
    assert difference.low > 0.5
    assert difference.high < 1.5
    assert p == pytest.approx(1 / 5_000)


def test_equal_groups_are_not_apart() -> None:
    values = np.arange(40.0)
    difference, p = group_difference(values, values)
    assert difference.value == 0
    assert difference.low < 0 < difference.high
    assert p == 1


def test_overlap_is_one_less_total_variation() -> None:
    left, right = np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 2.0, 2.0, 2.0])
    found = overlap(left, right, [1.5])
    assert found.value == 0.75
    assert found.low <= 0.75 <= found.high
    assert overlap(left, left, [1.5]).low == 1
