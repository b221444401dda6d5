"""The check that personas differ about as much as people do."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.quality import check_dataset, required_checks
from pipelines.store import CheckRecord

NAMES = {"item_person_share", "split_half_covariance"}


def checked(
    world: Any, *, settings: Settings | None = None, rater: str = "", **changes: Any
) -> Any:
    def change(frame: pl.DataFrame) -> pl.DataFrame:
        types = {name: frame.schema[name] for name in changes}
        return frame.with_columns(**{k: pl.lit(v, types[k]) for k, v in changes.items()})

    given = {}
    if rater:
        scores = "movies.preference_scores"
        given = {scores: world.broken(scores, lambda f: f.with_columns(rater=pl.lit(rater)))}
    snapshot = world.broken("movies.population", change)
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
    [(0.8, 1.2, True), (0.3, 0.6, True), (1.8, 3.0, True), (0.1, 0.4, False), (2.1, 9.0, False)],
)
def test_interval_must_reach_a_factor_of_two(
    world: Any, low: float, high: float, passed: bool
) -> None:
    assert outcomes(checked(world, ratio_low=low, ratio_high=high)) == {passed}


def test_personas_without_any_taste_fail(world: Any) -> None:
    records = checked(world, ratio=-0.1, ratio_low=-0.3, ratio_high=-0.01)
    assert outcomes(records) == {False}
    assert records["item_person_share"].details["observed"] == 1_000


@pytest.mark.parametrize("few", [{"people": 199}, {"ratings": 4_999}, {"personas": 49}])
def test_small_tables_are_not_judged(world: Any, few: dict[str, int]) -> None:
    records = checked(world, ratio_low=0.01, ratio_high=0.02, **few)
    assert outcomes(records) == {None}
    assert "are needed" in records["item_person_share"].details["skipped"]


def test_people_without_a_taste_of_their_own_are_no_measure(world: Any) -> None:
    assert outcomes(checked(world, people_low=-0.01, ratio_low=0.1, ratio_high=0.2)) == {None}


@pytest.mark.parametrize("rater", ["random", "mean"])
def test_baselines_are_not_judged(world: Any, rater: str) -> None:
    assert outcomes(checked(world, rater=rater, ratio_high=0.1)) == {None}


def test_mean_taste_is_an_ablation(world: Any) -> None:
    settings = Settings(scoring={"taste": "mean"})  # type: ignore[arg-type]
    assert outcomes(checked(world, settings=settings, ratio_high=0.1)) == {None}
