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
    return {
        n for n, r in records.items() if r.passed is False and not n.startswith(("row_", "drift"))
    }


def test_cohorts_of_other_domains_owe_no_pair(world: Any) -> None:
    people = _and("books-2026", "games")
    records = _checks(world, PLAN, lambda f: f, given={"movies.personas": people})
    assert records["personas_planned"].passed


def test_a_cohort_that_was_made_but_is_not_planned_yet_owes_no_pair(world: Any) -> None:
    records = _checks(world, PLAN, lambda f: f, given={"movies.personas": _and("movies-2026-w47")})
    assert records["personas_planned"].passed


def test_a_persona_left_out_of_any_planned_cohort_is_found(world: Any) -> None:
    lost = "persona:movies-2026:0000007"
    records = _checks(
        world,
        PLAN,
        lambda f: _and("movies-2026")(f).filter(pl.col("persona_id") != lost),
        given={"movies.personas": _and("movies-2026")},
    )
    record = records["personas_planned"]
    assert not record.passed
    assert [row["persona_id"] for row in record.details["rows"]] == [lost]


def test_the_standing_cohort_is_owed_even_if_all_of_it_is_gone(world: Any) -> None:
    records = _checks(
        world, PLAN, _as("movies-2026"), given={"movies.personas": _and("movies-2026")}
    )
    record = records["personas_planned"]
    assert not record.passed
    assert {row["cohort"] for row in record.details["rows"]} == {"default"}


def test_cohorts_of_different_sizes_have_different_shares(world: Any) -> None:
    few = pl.int_range(pl.len()).over("persona_id") < 5
    records = _checks(world, PLAN, _and("movies-2026", of=lambda f: f.filter(few)))
    assert records["plan_balance"].passed


def test_a_good_table_of_two_cohorts_passes(world: Any) -> None:
    both = _and("movies-2026")
    records = _checks(world, SCORES, both, given={PLAN: both, "movies.personas": both})
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
    assert record.status == "not applicable"
    assert "two pairs" in record.details["skipped"]


def _nearly_all(share: float) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Human ratings of which this share is 4.0 and the rest 2.0, as of a store of thumbs up."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        place = pl.int_range(pl.len()) / pl.len()
        return frame.with_columns(rating=pl.when(place < share).then(4.0).otherwise(2.0))

    return change


def _calibrated(share: float) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Scores of a rater that foretells just what `_nearly_all` gave: the likeliest is always 7."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        place = (pl.int_range(pl.len()) * 7919 % pl.len()) / pl.len()
        sample = pl.when(place < share).then(7).otherwise(3).cast(frame.schema["sample"])
        return frame.with_columns(mode=pl.lit(7, frame.schema["mode"]), sample=sample)

    return change


def test_one_likeliest_rating_is_no_fault_where_nearly_all_people_gave_it(world: Any) -> None:
    human = {"movies.interactions": _nearly_all(0.92)}
    record = _checks(world, SCORES, _calibrated(0.92), given=human)["answer_concentration"]
    assert record.passed
    # The bound is midway between the people's share and all: 0.96.
    everyone = _checks(world, SCORES, _calibrated(0.97), given=human)["answer_concentration"]
    assert not everyone.passed
    assert everyone.details["observed"] == pytest.approx(0.97, abs=0.002)


def test_one_likeliest_rating_is_a_fault_where_people_differ(world: Any) -> None:
    human = {"movies.interactions": _nearly_all(0.89)}
    record = _checks(world, SCORES, _calibrated(0.89), given=human)["answer_concentration"]
    assert not record.passed
    assert record.details["observed"] == 1.0


@pytest.mark.parametrize(("spread", "passes"), [(0.0075, True), (0.005, False)])
def test_expected_ratings_must_differ_by_a_twentieth_of_what_the_peoples_do(
    world: Any, spread: float, passes: bool
) -> None:
    # 92 % of 4 and 8 % of 2 deviate by 2·√(0.92·0.08) = 0.5426 stars: 0.1206 of a scale that is
    # 4.5 wide; a twentieth is 0.0060. The rater's scale is 9 wide.
    human = {"movies.interactions": _nearly_all(0.92)}
    sign = pl.when(pl.int_range(pl.len()).over("persona_id") % 2 == 0).then(1.0).otherwise(-1.0)
    flat = _checks(
        world, SCORES, lambda f: f.with_columns(expected=6 + sign * spread * 9), given=human
    )["persona_variance"]
    assert flat.passed == passes


@pytest.mark.parametrize(("alike", "passes"), [(True, True), (False, False)])
def test_personas_without_spread_are_no_more_than_such_people(
    world: Any, alike: bool, passes: bool
) -> None:
    """A fifth of the personas rate everything alike, where nine in ten people do, or nobody."""
    human = {"movies.interactions": _nearly_all(0.92)} if alike else {}
    fifth = pl.col("persona_id").str.slice(-1).is_in(["0", "5"])
    change = pl.when(fifth).then(7.0).otherwise(pl.col("expected")).alias("expected")
    record = _checks(world, SCORES, lambda f: f.with_columns(change), given=human)
    assert record["persona_variance"].passed == passes
