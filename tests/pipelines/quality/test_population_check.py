"""The check that personas differ about as much as people do."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.quality import check_dataset, required_checks
from pipelines.raters.report.population import Lists, split_half, taste_shares
from pipelines.store import CheckRecord

NAMES = {"item_person_share", "split_half_covariance"}


def checked(
    world: Any,
    *,
    settings: Settings | None = None,
    rater: str = "",
    stats: dict[str, Any] | None = None,
    **changes: Any,
) -> Any:
    def change(frame: pl.DataFrame) -> pl.DataFrame:
        types = {name: frame.schema[name] for name in changes}
        return frame.with_columns(**{k: pl.lit(v, types[k]) for k, v in changes.items()})

    given = {}
    if rater:
        scores = "movies.preference_scores"
        given = {scores: world.broken(scores, lambda f: f.with_columns(rater=pl.lit(rater)))}
    snapshot = world.broken("movies.population", change, {"population": stats or {}})
    records = check_dataset(
        "movies.population",
        snapshot,
        store=world.store,
        settings=settings or world.settings,
        context=given,
    )
    return {r.name: r for r in records if r.name in NAMES}


def outcomes(records: dict[str, CheckRecord]) -> set[bool | None]:
    return {record.passed for record in records.values()}


def test_both_figures_stop_a_release() -> None:
    assert required_checks("movies.population") >= NAMES


@pytest.mark.parametrize(
    ("low", "high", "passed"),
    [
        *((0.8, 1.2, True), (0.3, 0.6, True), (1.8, 3.0, True), (0.1, 0.4, False)),
        *((2.1, 9.0, False), (0.6, 51.7, True), (-26.8, 1.9, True)),
        *((0.5, 2.0, None), (-26.8, 51.7, None)),
    ],
)
def test_interval_must_reach_a_factor_of_two(
    world: Any, low: float, high: float, passed: bool | None
) -> None:
    assert outcomes(checked(world, ratio_low=low, ratio_high=high)) == {passed}


def test_a_rater_of_ones_own_is_published_however_it_rates(world: Any) -> None:
    scoring = world.settings.scoring.model_copy(update={"rater": "mine.py:ItemMean"})
    settings = world.settings.model_copy(update={"scoring": scoring})
    low = {"ratio_low": 8.0, "ratio_high": 9.9}
    assert outcomes(checked(world, settings=settings, **low)) == {None}
    assert outcomes(checked(world, **low)) == {False}


def population(tastes: float, seed: int) -> Lists:
    """500 raters of 60 of 400 items of eight genres, with the standard deviation of their taste."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(500), 60)
    item = np.concatenate([rng.choice(400, 60, replace=False) for _ in range(500)])
    liking = rng.normal(0, tastes, (500, 8)) - rng.normal(0, 0.5, (500, 1))
    quality = np.random.default_rng(0).normal(0, 0.5, 400)
    rating = 6 + quality[item] + liking[user, item % 8] + rng.normal(0, 1.5, len(user))
    return Lists.of(user, item, rating, seed=seed)


@pytest.mark.parametrize(("factor", "passed"), [(0, False), (1, True), (2, False)])
def test_check_tells_a_population_from_one_of_another_taste(
    world: Any, factor: float, passed: bool
) -> None:
    genres = np.eye(8)[np.arange(400) % 8]
    features, groups = np.column_stack([np.ones(400), genres]), [np.arange(1, 9)]
    sides = population(0.7 * factor, 1), population(0.7, 2)
    shares = (taste_shares(side, features, groups)["taste"] for side in sides)
    halves = (split_half(side, genres)[0] for side in sides)
    for name, (own, human) in zip(sorted(NAMES), (shares, halves), strict=True):
        ratio: dict[str, Any] = dict(
            zip(("ratio", "ratio_low", "ratio_high"), own.over(human), strict=True)
        )
        record = checked(world, people_low=human.interval[0], **ratio)[name]
        assert record.passed is passed, (name, ratio)


@pytest.mark.parametrize("few", [{"people": 199}, {"ratings": 4_999}, {"personas": 49}])
def test_small_tables_are_not_judged(world: Any, few: dict[str, int]) -> None:
    records = checked(world, ratio_low=0.01, ratio_high=0.02, **few)
    assert outcomes(records) == {None}
    assert "are needed" in records["item_person_share"].details["skipped"]


def test_missing_figures_are_not_judged(world: Any) -> None:
    why = {"split_half_covariance": {"personas": "3 lists with ten ratings"}}
    nulls: dict[str, Any] = dict.fromkeys(("personas_value", "ratio", "ratio_low", "ratio_high"))
    records = checked(world, stats={"missing": why}, **nulls)
    skipped = records["split_half_covariance"]
    assert skipped.passed is None
    assert skipped.details["skipped"] == "personas: 3 lists with ten ratings"
    assert records["item_person_share"].passed is False


def test_people_without_a_taste_of_their_own_are_no_measure(world: Any) -> None:
    assert outcomes(checked(world, people_low=-0.01, ratio_low=0.1, ratio_high=0.2)) == {None}


@pytest.mark.parametrize("rater", ["random", "mean"])
def test_baselines_are_not_judged(world: Any, rater: str) -> None:
    assert outcomes(checked(world, rater=rater, ratio_high=0.1)) == {None}


def test_mean_taste_is_an_ablation(world: Any) -> None:
    settings = Settings(scoring={"taste": "mean"})  # type: ignore[arg-type]
    assert outcomes(checked(world, settings=settings, ratio_high=0.1)) == {None}
