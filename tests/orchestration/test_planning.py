"""Plans of several runs: the assets of each, and the runs that it waits for."""

from __future__ import annotations

import dagster as dg
import pytest

from orchestration._planning import JobRun, PlannedRun, plan_runs
from pipelines.errors import ConfigError

COHORTS = dg.StaticPartitionsDefinition(["a", "b"])


def _asset(name: str, *deps: str, partitions: object = None) -> dg.AssetsDefinition:
    @dg.asset(name=name, deps=list(deps), partitions_def=partitions)
    def made() -> None: ...

    return made


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    #  personas -> vectors ---.
    #  files -> films ---------+-> scores -> release
    #  files -> books -> shop
    @dg.multi_asset(specs=[dg.AssetSpec("shop", deps=["books"]), dg.AssetSpec("shelf")])
    def shop(): ...

    assets = [
        _asset("personas", partitions=COHORTS),
        _asset("vectors", "personas"),
        _asset("files"),
        _asset("films", "files"),
        _asset("scores", "films", "vectors"),
        _asset("release", "scores"),
        _asset("books", "files"),
        shop,
    ]
    job = dg.define_asset_job
    jobs = [
        job("people", dg.AssetSelection.assets("personas", "vectors")),
        job("films", dg.AssetSelection.assets("release").upstream()),
        job("books", dg.AssetSelection.assets("files", "books", "shop", "shelf")),
    ]
    return dg.Definitions(assets=assets, jobs=jobs)


def planned(defs: dg.Definitions, *runs: JobRun, split: bool = True) -> list[tuple[object, ...]]:
    tasks = plan_runs(defs, runs, split=split)
    out = []
    for task in tasks:
        assert isinstance(task.payload, PlannedRun)
        steps = " ".join(key.to_user_string() for key in task.payload.steps)
        out.append((task.name, task.payload.cohort, steps, sorted(task.after)))
    return out


def test_a_job_alone_is_one_run_of_all_its_steps(defs: dg.Definitions) -> None:
    assert planned(defs, JobRun("films", "a")) == [
        ("films", "a", "files films personas release scores vectors", [])
    ]


def test_what_needs_nothing_of_earlier_runs_starts_at_once_and_the_rest_waits(
    defs: dg.Definitions,
) -> None:
    assert planned(defs, JobRun("people", "a"), JobRun("films", "a")) == [
        ("people", "a", "personas vectors", []),
        ("films", "a", "files films", []),
        ("films", "a", "release scores", [0, 1]),
    ]


def test_without_a_split_a_job_is_one_run_that_waits(defs: dg.Definitions) -> None:
    assert planned(defs, JobRun("people", "a"), JobRun("films", "a"), split=False)[1:] == [
        ("films", "a", "files films release scores", [0])
    ]


def test_cohorts_of_one_table_are_written_one_after_the_other(defs: dg.Definitions) -> None:
    runs = JobRun("people", "a", ("personas",)), JobRun("people", "b")
    assert planned(defs, *runs) == [
        ("people", "a", "personas", []),
        ("people", "b", "personas vectors", [0]),
    ]


def test_a_shared_step_is_made_by_the_first_job_and_what_is_made_together_stays_together(
    defs: dg.Definitions,
) -> None:
    # `shelf` needs nothing, but one step makes it and `shop`, which needs the other run's files.
    runs = JobRun("films", "a", ("files",)), JobRun("books", "a")
    assert planned(defs, *runs) == [
        ("films", "a", "files", []),
        ("books", "a", "books shelf shop", [0]),
    ]


def test_a_last_run_waits_for_all_before_it_but_not_for_those_after(
    defs: dg.Definitions,
) -> None:
    runs = JobRun("people", "a"), JobRun("books", "a", ("books",), last=True), JobRun("films", "a")
    assert planned(defs, *runs)[:3] == [
        ("people", "a", "personas vectors", []),
        ("books", "a", "books", [0]),
        ("films", "a", "files films", []),
    ]


def test_a_run_of_which_nothing_is_left_is_left_out(defs: dg.Definitions) -> None:
    assert len(planned(defs, JobRun("books", "a"), JobRun("books", "a"))) == 1


def test_an_unknown_asset_is_an_error_that_names_the_nearest(defs: dg.Definitions) -> None:
    with pytest.raises(ConfigError, match="did you mean films"):
        plan_runs(defs, [JobRun("films", "a", ("flims",))], split=True)
