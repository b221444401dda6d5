"""The builder: reuse, lineage, cohorts beside each other, locks, tables without rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.small_release import conform, frames

from pipelines.errors import ContractError, LockedError, NoChoiceSetError, StoreError
from pipelines.stages import Inputs, PipelineContext, Report, Stage, build
from pipelines.store import CheckRecord, Table

PLAN, SPLITS = "movies.score_plan", "movies.splits"


@pytest.fixture
def context(tmp_path: Path) -> PipelineContext:
    return PipelineContext({"runtime": {"home": str(tmp_path / "home")}})


def splits(*users: int) -> pl.DataFrame:
    rows = [(f"ml-user:{u}", "ml:1", "train") for u in users]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "split"], orient="row")


class Maker:
    """Makes splits of users, and counts its calls."""

    def __init__(self, *users: int) -> None:
        self.users = users
        self.calls = 0

    def __call__(self, inputs: Inputs, settings: Any, report: Report) -> pl.DataFrame:
        """Users in any order."""
        self.calls += 1
        report.stats["users"] = len(self.users)
        report.shown["figure"] = 0.5
        return splits(*self.users)


def stage(maker: Any, **changes: Any) -> Stage:
    given = {"datasets": (SPLITS,), "code_version": "1", "identity": ("splits",), "make": maker}
    return Stage(**{**given, **changes})


def test_build_commits_rows_with_lineage_statistics_and_contract_check(
    context: PipelineContext,
) -> None:
    context.store.commit("movies.human_users", _users(), code_version="1")
    built = build(stage(Maker(2, 1), inputs={"people": "movies.human_users"}), context, run_id="r1")
    snapshot = context.store.current(SPLITS)
    assert built.snapshots == {SPLITS: snapshot}
    assert snapshot.read()["user_id"].to_list() == ["ml-user:1", "ml-user:2"]
    people = context.store.current("movies.human_users").version
    assert snapshot.manifest.inputs == {"movies.human_users": people}
    assert snapshot.manifest.config == context.settings.identity("splits")
    assert (snapshot.manifest.run_id, snapshot.manifest.stats) == ("r1", {"users": 2})
    assert context.store.checks(SPLITS, snapshot.version)["contract"].passed
    assert built.report.shown == {"figure": 0.5}


def _users() -> pl.DataFrame:
    return conform("movies.human_users", frames()["movies.human_users"])


def test_equal_build_is_reused_and_becomes_current_again(context: PipelineContext) -> None:
    first, other = Maker(1), Maker(1, 2)
    one = build(stage(first), context)
    build(stage(other, code_version="2"), context)
    again = build(stage(first), context)
    assert (first.calls, other.calls) == (1, 1)
    assert again.reused
    assert not one.reused
    assert again.snapshots == one.snapshots == {SPLITS: context.store.current(SPLITS)}


@pytest.mark.parametrize("change", ["code", "setting", "input"])
def test_changed_identity_is_built_anew(context: PipelineContext, change: str) -> None:
    maker = Maker(1)
    context.store.commit("movies.human_users", _users(), code_version="1")
    made = stage(maker, inputs={"people": "movies.human_users"})
    build(made, context)
    if change == "code":
        made = replace(made, code_version="2")
    elif change == "setting":
        context = PipelineContext({**context.overrides, "splits": {"min_interactions": 7}})
    else:
        context.store.commit("movies.human_users", _users().head(9), code_version="1")
    build(made, context)
    assert maker.calls == 2


def test_runtime_setting_is_no_part_of_identity(context: PipelineContext) -> None:
    maker = Maker(1)
    build(stage(maker), context)
    threads = {"runtime": {**context.overrides["runtime"], "threads": 3}}
    assert build(stage(maker), PipelineContext(threads)).reused


def test_missing_input_is_named(context: PipelineContext) -> None:
    with pytest.raises(StoreError, match=r"no movies\.items in this store"):
        build(stage(Maker(1), inputs={"items": "movies.items"}), context)


def test_rows_that_break_contract_leave_last_version(context: PipelineContext) -> None:
    before = build(stage(Maker(1)), context).snapshots

    def bad(inputs: Inputs, settings: Any, report: Report) -> Iterator[pl.DataFrame]:
        yield splits(1)
        yield splits(2).with_columns(split=pl.lit("holdout"))

    with pytest.raises(ContractError):
        build(stage(bad, code_version="2"), context)
    assert before == {SPLITS: context.store.current(SPLITS)}
    assert not list((context.store.home / "_staging").iterdir())


def test_several_tables_are_committed_together_or_not_at_all(context: PipelineContext) -> None:
    users, fail = _users(), True

    def make(inputs: Inputs, settings: Any, report: Report) -> Iterator[Table]:
        yield Table(SPLITS, [splits(1)], stats=lambda: {"n": 1})
        if fail:
            raise ContractError("no users")
        yield Table("movies.human_users", [users], ordered=False)

    both = stage(make, datasets=(SPLITS, "movies.human_users"))
    with pytest.raises(ContractError, match="no users"):
        build(both, context)
    assert context.store.datasets() == []
    fail = False
    built = build(both, context)
    assert set(built.snapshots) == {SPLITS, "movies.human_users"}
    assert built.snapshots[SPLITS].manifest.stats == {"n": 1}
    assert build(both, context).reused


def test_optional_table_without_rows_is_withdrawn(context: PipelineContext) -> None:
    build(stage(Maker(1)), context)

    def none(inputs: Inputs, settings: Any, report: Report) -> pl.DataFrame:
        raise NoChoiceSetError("there is no tree", where="raw.taxonomy_categories")

    built = build(stage(none, code_version="2", absent_on=(NoChoiceSetError,)), context)
    assert built.absent
    assert "there is no tree" in str(built.reason)
    assert not context.store.has(SPLITS)


def test_stage_that_is_left_out_makes_nothing(context: PipelineContext) -> None:
    maker = Maker(1)
    built = build(stage(maker, left_out=lambda settings, cohort: "no files"), context)
    assert (built.reason, built.absent, built.snapshots, maker.calls) == ("no files", False, {}, 0)


def test_own_checks_are_recorded_with_the_version(context: PipelineContext) -> None:
    def make(inputs: Inputs, settings: Any, report: Report) -> pl.DataFrame:
        report.checks.append(CheckRecord("has_users", True))
        return splits(1)

    (snapshot,) = build(stage(make), context).snapshots.values()
    assert set(context.store.checks(SPLITS, snapshot.version)) == {"contract", "has_users"}


# -- cohorts ---------------------------------------------------------------------------------


def plan(cohort: str, *numbers: int) -> pl.DataFrame:
    rows = [(f"persona:{cohort}:{n}", "ml:1", "all", 1.0, 0.5) for n in numbers]
    columns = ["persona_id", "item_id", "stratum", "inclusion", "exposure"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def cohorts(
    *numbers: int, inputs: dict[str, str] | None = None, code: str = "1", during: Any = None
) -> Stage:
    def make(inputs: Inputs, settings: Any, report: Report) -> list[pl.DataFrame]:
        if during is not None:
            during()
        report.cohort_stats["pairs"] = len(numbers)
        return [plan(str(inputs.partition), *numbers)]

    return Stage(
        datasets=(PLAN,), inputs=inputs or {}, code_version=code, make=make, by_cohort=True
    )


def people(context: PipelineContext) -> list[str]:
    return context.store.current(PLAN).read()["persona_id"].to_list()


def test_cohort_is_reused_beside_any_others(context: PipelineContext) -> None:
    build(cohorts(1), context, cohort="a")
    assert build(cohorts(1), context, cohort="a").reused
    build(cohorts(1), context, cohort="b")
    assert build(cohorts(1), context, cohort="a").reused
    assert people(context) == ["persona:a:1", "persona:b:1"]
    assert build(cohorts(1), context, cohort="b").reused


def test_second_build_of_one_cohort_is_refused_and_another_cohort_is_kept(
    context: PipelineContext,
) -> None:
    refused = []

    def during() -> None:
        with pytest.raises(
            LockedError, match=r"another process is writing movies\.score_plan of a"
        ):
            build(cohorts(9), context, cohort="a")
        refused.append(True)
        build(cohorts(2), context, cohort="b")

    build(cohorts(1, during=during), context, cohort="a")
    assert refused == [True]
    assert people(context) == ["persona:a:1", "persona:b:2"]
    build(cohorts(3, code="2"), context, cohort="a")
    assert people(context) == ["persona:a:3", "persona:b:2"]
