"""Records of killed runs in Dagster's instance: cleared by the next run, never waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from orchestration.instance import dagster_home, end_dead_runs, job_origin, open_instance

POOL = "duckdb"


@dg.op(pool=POOL)
def build() -> None:
    """Stands for a step that touches the DuckDB file."""


@dg.job
def warehouse() -> None:
    """A step that takes a slot of the pool."""
    build()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a new home."""
    with open_instance(tmp_path) as instance:
        yield instance


def unfinished(
    instance: dg.DagsterInstance, home: Path, *, pid: int | None = None
) -> dg.DagsterRun:
    """A started run that holds the pool's only slot; with ``pid`` one launched from the UI."""
    server = GrpcServerCodeLocationOrigin("localhost", port=4000)
    of_ui = RemoteJobOrigin(RemoteRepositoryOrigin(server, "__repository__"), "warehouse")
    run = instance.create_run_for_job(
        warehouse,
        status=dg.DagsterRunStatus.STARTED,
        remote_job_origin=job_origin("warehouse") if pid is None else of_ui,
    )
    if pid is not None:
        instance.report_engine_event("Started process", run, EngineEventData.in_process(pid))
    # Dagster's own processes open the instance with the file's settings, and take slots.
    with dg.DagsterInstance.from_config(str(dagster_home(home))) as daemon:
        daemon.event_log_storage.initialize_concurrency_limit_to_default(POOL)
        claim = daemon.event_log_storage.claim_concurrency_slot(POOL, run.run_id, "build")
    assert claim.is_claimed
    return run


def slots(instance: dg.DagsterInstance) -> set[str]:
    """Runs that hold slots of the pool."""
    return instance.event_log_storage.get_concurrency_info(POOL).active_run_ids


@pytest.mark.pipeline
@pytest.mark.timeout(120)
def test_run_does_not_wait_for_pool_slot(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    unfinished(instance, tmp_path)
    assert warehouse.execute_in_process(instance=instance).success


def test_run_of_dead_process_is_canceled_and_its_slot_freed(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    dead = unfinished(instance, tmp_path)
    assert end_dead_runs(instance) == [dead.run_id]
    found = instance.get_run_by_id(dead.run_id)
    assert found is not None
    assert found.status == dg.DagsterRunStatus.CANCELED
    assert slots(instance) == set()
    assert end_dead_runs(instance) == []


@pytest.mark.pipeline
def test_run_of_the_ui_is_ended_only_when_its_process_is_gone(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    alive = unfinished(instance, tmp_path, pid=os.getpid())
    assert end_dead_runs(instance) == []
    assert slots(instance) == {alive.run_id}
    instance.report_run_canceled(alive)
    assert end_dead_runs(instance) == []
    assert slots(instance) == set()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead = unfinished(instance, tmp_path, pid=ended.pid)
    assert end_dead_runs(instance) == [dead.run_id]
    assert slots(instance) == set()
