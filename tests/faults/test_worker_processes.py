"""Kills of the processes that run steps (`runtime.executor=multiprocess`): a rerun does the rest.

The tests share a home and build on each other, in the order of the file: a run costs much.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
from support.fork_server import ForkServer
from support.steps import FILMS, PATIENCE, StartedRun, start_run

from orchestration.instance import open_instance
from pipelines.cli.options import INTERRUPTED
from pipelines.store import Store
from pipelines.warehouse import warehouse_lock

pytestmark = [pytest.mark.faults, pytest.mark.night, pytest.mark.timeout(3_600)]

POOL = "duckdb"
OPTIONS = (
    *("--job", "movies", "--set", "runtime.executor=multiprocess"),
    *("--set", "world.sample.films=60", "--set", "world.sample.users=40"),
    *("--set", "world.sample.ratings=2000"),
    *FILMS,
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers") / "home"


@pytest.fixture
def run(forked: ForkServer, home: Path) -> Iterator[StartedRun]:
    run = start_run(forked, home, *OPTIONS)
    try:
        yield run
    finally:
        run.kill()


def workers_of(home: Path, step: str) -> set[int]:
    """Ids of the processes that a step of any run was given."""
    found = set()
    with open_instance(home) as instance:
        for record in instance.get_runs():
            for entry in instance.all_logs(
                record.run_id, of_type=dg.DagsterEventType.STEP_WORKER_STARTED
            ):
                event = entry.dagster_event
                if event is not None and event.step_key == step:
                    found.add(int(str(event.event_specific_data.metadata["pid"].value)))
    return found


def new_worker(run: StartedRun, step: str, known: set[int]) -> psutil.Process | None:
    """The next process of a step; None if the run ended without one."""
    deadline = time.monotonic() + PATIENCE
    while run.process.poll() is None:
        assert time.monotonic() < deadline, run.output()[-2000:]
        if not (run.home / "dagster").exists():
            continue
        for pid in workers_of(run.home, step) - known:
            if psutil.pid_exists(pid):
                return psutil.Process(pid)
        time.sleep(0.2)
    return None


def slots(home: Path) -> set[str]:
    """Runs that hold slots of the pool."""
    with open_instance(home) as instance:
        return set(instance.event_log_storage.get_concurrency_info(POOL).active_run_ids)


def reused(home: Path, *key: str) -> bool:
    """Flag `reused` of the last materialization of an asset."""
    with open_instance(home) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey(key))
    assert event is not None
    assert event.asset_materialization is not None
    return bool(event.asset_materialization.metadata["reused"].value)


def test_killed_worker_is_one_error_that_names_its_step(run: StartedRun, home: Path) -> None:
    killed: set[int] = set()
    while (worker := new_worker(run, "ingest_movielens", killed)) is not None:
        killed.add(worker.pid)
        worker.kill()
    assert len(killed) == 3, "a step that reads files is tried three times"
    assert run.process.wait(PATIENCE) == 1, run.output()
    last = run.output().splitlines()[-1]
    assert last.startswith(
        "error: the process that ran it was terminated by signal 9 (SIGKILL): ingest_movielens "
    )
    assert run.output().count("error:") == 1
    assert "Traceback" not in run.output()
    assert [str(name) for name in Store(home).datasets()] == ["raw.world_files"]


def test_workers_end_with_their_killed_run(run: StartedRun, home: Path) -> None:
    with warehouse_lock(home):
        run.wait_for_step("dbt_movies")
        started = run.processes()
        assert slots(home)
        run.process.kill()
        _, alive = psutil.wait_procs(started, timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_killed_step_of_a_pool_frees_its_slot_and_a_rerun_does_the_rest(
    run: StartedRun, home: Path
) -> None:
    earlier = workers_of(home, "dbt_movies")
    with warehouse_lock(home):
        run.wait_for_step("dbt_movies")
        worker = new_worker(run, "dbt_movies", earlier)
        assert worker is not None
        worker.kill()
        # The second process gets the pool's only slot, which the first one held.
        assert new_worker(run, "dbt_movies", {*earlier, worker.pid}) is not None
    assert run.process.wait(PATIENCE) == 0, run.output()[-2000:]
    assert slots(home) == set()
    assert reused(home, "sources", "world_files")
    assert reused(home, "raw", "movielens_ratings")
    with open_instance(home) as instance:
        assert instance.get_latest_materialization_event(
            dg.AssetKey(["staging", "stg_movielens__ratings"])
        )
    for dataset in Store(home).datasets():
        Store(home).current(dataset).verify()


def test_interrupt_ends_every_worker(run: StartedRun, home: Path) -> None:
    with warehouse_lock(home):
        run.wait_for_step("dbt_movies")
        started = run.processes()
        assert sum("forkserver" in " ".join(p.cmdline()) for p in started) >= 2
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(60) == 130, run.output()
    assert run.output().rstrip().endswith(f"error: {INTERRUPTED}")
    assert "Traceback" not in run.output()
    _, alive = psutil.wait_procs(started, timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
