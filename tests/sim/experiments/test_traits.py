"""Measures of habits, worked by hand."""

from __future__ import annotations

from itertools import combinations
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from pipelines.config import load_settings
from sim import open_release
from sim.experiments import Experiment, ExperimentContext
from sim.experiments._traits import (
    Traits,
    TraitsSettings,
    _figures,
    group_difference,
    overlap,
    rarefied,
)
from sim.experiments.testing import ExperimentContract

USERS = tuple(f"ml-user:{n}" for n in range(1, 31))


@pytest.fixture(scope="module")
def tiered(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> ExperimentContext:
    """The small release with ten people in every tier."""
    tables = small.matched_frames(USERS)
    number = pl.col("user_id").str.slice(8).cast(pl.Int64)
    tiers = number.replace_strict(
        {n: ("low", "medium", "high")[n % 3] for n in range(1, 41)}, return_dtype=pl.String
    )
    names = ("activity_tier", "conformity_tier", "diversity_80_tier")
    traits = tables["movies.training_traits"].with_columns(**dict.fromkeys(names, tiers))
    home = tmp_path_factory.mktemp("tiers") / "home"
    small.build(home, replace={**tables, "movies.training_traits": traits})
    kept = tmp_path_factory.mktemp("kept")
    settings = load_settings(overrides={"runtime": {"home": str(kept)}})
    release = open_release("movies", home=home)
    return ExperimentContext(release, settings, kept, agents=30, pages=3, per_page=2)


class TestTraits(ExperimentContract):
    sources = ("people", "baseline", "statistical")

    @pytest.fixture
    def context(self, tiered: ExperimentContext) -> ExperimentContext:
        return tiered

    def make(self) -> Experiment:
        return Traits(TraitsSettings(recommender="popular", items=2, min_people=1))

    def lacking(self, context: ExperimentContext) -> tuple[Experiment, ExperimentContext]:
        return Traits(TraitsSettings(recommender="popular", min_people=11)), context


def test_traits_change_nothing_of_a_brain_without_them(tiered: ExperimentContext) -> None:
    found = Traits(TraitsSettings(recommender="popular", items=2, min_people=1)).run(tiered)
    changed = [
        figure
        for row in found.rows
        if row.labels["traits"] == "with less without" and row.labels["brain"] == "random"
        for figure in row.figures.values()
    ]
    assert len(changed) == 9
    assert all(f is not None and (f.low, f.value, f.high) == (0, 0, 0) for f in changed)


def test_active_agents_watch_more_because_of_their_traits(tiered: ExperimentContext) -> None:
    found = Traits(TraitsSettings(recommender="popular", items=2, min_people=1)).run(tiered)
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
