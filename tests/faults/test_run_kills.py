"""Kills and interrupts of `understudy run` around dbt: a plain rerun does the rest.

The tests share a home and build on each other, in the order of the file: a run costs much.
"""

from __future__ import annotations

import signal
from pathlib import Path

import dagster as dg
import psutil
import pytest
from support.fork_server import ForkServer
from support.steps import FILMS, SMALL, kill_at_step, run_small, start_run, steps_of

from orchestration.instance import open_instance
from pipelines.cli.options import INTERRUPTED
from pipelines.store import Store
from pipelines.warehouse import warehouse_lock

pytestmark = [pytest.mark.faults, pytest.mark.night, pytest.mark.timeout(3_600)]

#: A run ends within 10 s of an interrupt; the rest is for a machine that does other things too.
ENDS_WITHIN = 30.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose first run was killed while dbt built."""
    return tmp_path_factory.mktemp("killed") / "home"


def test_kill_within_dbt_leaves_no_process(forked: ForkServer, home: Path) -> None:
    kill_at_step(forked, home, "dbt_movies", *FILMS, child="dbt")
    assert steps_of(home)[-1] == "dbt_movies"
    assert_whole(home)


def test_killed_run_takes_its_dbt_with_it(forked: ForkServer, home: Path) -> None:
    run = start_run(forked, home, *SMALL, *FILMS)
    try:
        run.wait_for_step("dbt_movies")
        dbt = run.wait_for_child("dbt")
        run.process.kill()
        assert ended(dbt)
    finally:
        run.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_waits_for_the_warehouse_ends_when_interrupted(
    forked: ForkServer, home: Path, number: signal.Signals
) -> None:
    with warehouse_lock(home):
        run = start_run(forked, home, *SMALL, *FILMS)
        try:
            run.wait_for_step("dbt_movies")
            run.process.send_signal(number)
            assert run.process.wait(ENDS_WITHIN) == 130, run.output()
        finally:
            run.kill()
    assert run.output().rstrip().endswith(f"error: {INTERRUPTED}")
    assert "Traceback" not in run.output()


def test_interrupt_ends_dbt_too(forked: ForkServer, home: Path) -> None:
    run = start_run(forked, home, *SMALL, *FILMS)
    try:
        run.wait_for_step("dbt_movies")
        dbt = run.wait_for_child("dbt")
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(ENDS_WITHIN) == 130, run.output()
        assert ended(dbt)
    finally:
        run.kill()
    assert_whole(home)


def test_rerun_after_all_of_this_builds_the_models(forked: ForkServer, home: Path) -> None:
    run_small(forked, home, *FILMS)
    with open_instance(home) as instance:
        assert instance.get_latest_materialization_event(
            dg.AssetKey(["staging", "stg_movielens__ratings"])
        )
        statuses = [run.status for run in instance.get_runs(dg.RunsFilter(job_name="movies"))]
    assert statuses.count(dg.DagsterRunStatus.SUCCESS) == 1
    assert set(statuses) <= {
        dg.DagsterRunStatus.SUCCESS,
        dg.DagsterRunStatus.FAILURE,
        dg.DagsterRunStatus.CANCELED,
    }
    assert_whole(home)


def assert_whole(home: Path) -> None:
    """Every committed table is whole, and nothing is published."""
    store = Store(home)
    for dataset in store.datasets():
        store.current(dataset).verify()
    assert not store.releases()


def ended(process: psutil.Process) -> bool:
    """Whether a process ends soon; one that its new parent did not collect has ended."""
    _, alive = psutil.wait_procs([process], timeout=ENDS_WITHIN)
    return all(p.status() == psutil.STATUS_ZOMBIE for p in alive)
