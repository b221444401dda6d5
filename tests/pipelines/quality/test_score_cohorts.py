"""Checks of plans and scores that hold several cohorts, beside cohorts of other domains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from pipelines.quality import check_dataset
from pipelines.store import CheckRecord

PLAN, SCORES = "movies.score_plan", "movies.preference_scores"
FIRST = "persona:default:0000000"


def _as(cohort: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """The same rows as another cohort's."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        renamed = pl.col("persona_id").str.replace("persona:default:", f"persona:{cohort}:")
        frame = frame.with_columns(persona_id=renamed)
        return frame.with_columns(cohort=pl.lit(cohort)) if "cohort" in frame.columns else frame

    return change


def _and(*cohorts: str, of: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> Any:
    """The table with further cohorts, changed if told, in the order of ids."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        more = [(of or (lambda f: f))(_as(c)(frame)) for c in cohorts]
        keys = [c for c in ("persona_id", "item_id") if c in frame.columns]
        return pl.concat([frame, *more]).sort(keys)

    return change


def _checks(world: Any, dataset: str, change: Any, **context: Any) -> dict[str, CheckRecord]:
    given = {name: world.broken(name, how) for name, how in context.pop("given", {}).items()}
    records = check_dataset(
        dataset, world.broken(dataset, change), store=world.store, settings=world.settings,
        context=given,
    )  # fmt: skip
    return {r.name: r for r in records}


def _failing(records: dict[str, CheckRecord]) -> set[str]:
    return {n for n, r in records.items() if not r.passed and not n.startswith(("row_", "drift"))}


def test_cohorts_of_other_domains_owe_no_pair(world: Any) -> None:
    people = _and("books-2026", "games")
    records = _checks(world, PLAN, lambda f: f, given={"personas": people})
    assert records["personas_planned"].passed


def test_a_cohort_that_was_made_but_is_not_planned_yet_owes_no_pair(world: Any) -> None:
    records = _checks(world, PLAN, lambda f: f, given={"personas": _and("movies-2026-w47")})
    assert records["personas_planned"].passed


def test_a_persona_left_out_of_any_planned_cohort_is_found(world: Any) -> None:
    lost = "persona:movies-2026:0000007"
    records = _checks(
        world,
        PLAN,
        lambda f: _and("movies-2026")(f).filter(pl.col("persona_id") != lost),
        given={"personas": _and("movies-2026", "books")},
    )
    record = records["personas_planned"]
    assert not record.passed
    assert [row["persona_id"] for row in record.details["rows"]] == [lost]


def test_the_standing_cohort_is_owed_even_if_all_of_it_is_gone(world: Any) -> None:
    records = _checks(world, PLAN, _as("movies-2026"), given={"personas": _and("movies-2026")})
    record = records["personas_planned"]
    assert not record.passed
    assert {row["cohort"] for row in record.details["rows"]} == {"default"}


def test_cohorts_of_different_sizes_have_different_shares(world: Any) -> None:
    few = pl.int_range(pl.len()).over("persona_id") < 5
    records = _checks(world, PLAN, _and("movies-2026", of=lambda f: f.filter(few)))
    assert records["plan_balance"].passed


def test_a_good_table_of_two_cohorts_passes(world: Any) -> None:
    both = _and("movies-2026")
    records = _checks(world, SCORES, both, given={PLAN: both, "personas": both})
    assert _failing(records) == set()


@pytest.mark.parametrize(
    ("check", "spoil"),
    [
        ("persona_variance", pl.lit(7.0).alias("expected")),
        ("answer_concentration", pl.lit(7, pl.Int64).alias("mode")),
        ("scored_share", pl.lit("refused").alias("status")),
        ("refused_share", pl.lit("refused").alias("status")),
        ("invalid_share", pl.lit("truncated").alias("status")),
    ],
)
def test_a_bad_small_cohort_is_not_hidden_by_a_large_good_one(
    world: Any, check: str, spoil: pl.Expr
) -> None:
    # Three personas of 303: any share over the whole table would pass.
    small = pl.col("persona_id") < "persona:movies-2026:0000003"
    change = _and("movies-2026", of=lambda f: f.filter(small).with_columns(spoil))
    record = _checks(world, SCORES, change)[check]
    assert not record.passed
    assert record.blocks


def test_a_single_pair_per_persona_says_nothing_about_variance(world: Any) -> None:
    one = pl.int_range(pl.len()).over("persona_id") == 0
    record = _checks(world, SCORES, lambda f: f.filter(one))["persona_variance"]
    assert record.passed
    assert "two pairs" in record.details["skipped"]
