"""The Dagster instance that belongs to a home: runs started anywhere are seen in one UI."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from filelock import FileLock
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import QueuePool

from orchestration.assets import COHORTS
from pipelines.domains import cohort_domain
from pipelines.paths import home_path
from pipelines.store.files import whole_file

__all__ = [
    "DAGSTER_YAML",
    "add_cohorts",
    "dagster_home",
    "end_dead_runs",
    "job_origin",
    "open_instance",
]

#: Pools hold one step unless the UI sets another limit: one process writes the DuckDB file.
#: Runs of one domain's job wait for each other, those of a backfill too: each ends in a release,
#: which is refused while another run has made some tables of its cohort and not yet the others.
#: Slots of a run that ended or was cancelled are freed, or it would block the pool for ever.
#: Only a run whose worker died is started again by itself; failed steps follow their own
#: retry policy, which permanent faults opt out of.
DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    default_limit: 1
    granularity: op
  runs:
    max_concurrent_runs: 4
    tag_concurrency_limits:
      - key: understudy/domain
        value: {applyLimitPerUniqueValue: true}
        limit: 1
run_monitoring:
  enabled: true
  start_timeout_seconds: 180
  cancel_timeout_seconds: 60
  free_slots_after_run_end_seconds: 30
run_retries:
  enabled: true
  max_retries: 1
  retry_on_asset_or_op_failure: false
freshness:
  enabled: true
retention:
  schedule:
    purge_after_days: 90
  sensor:
    purge_after_days: 30
"""


def dagster_home(home: Path) -> Path:
    """Folder of the instance below ``home``, made with its `dagster.yaml` if it is missing."""
    folder = home_path(home).resolve() / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "dagster.yaml"
    if not target.exists():
        with whole_file(target) as file:
            file.write(DAGSTER_YAML.encode())
    return folder


@contextmanager
def open_instance(
    home: Path, *cohorts: str, domain: str = "movies", pools: bool = False
) -> Iterator[dg.DagsterInstance]:
    """The home's instance, with the cohorts' partitions known to it (:func:`add_cohorts`).

    Without ``pools`` runs executed through it take no slots of pools. A slot outlives a killed
    process, and while a step waits for one in process Dagster holds interrupts back and polls
    without a pause. Steps that touch the DuckDB file wait for its lock instead, which ends with
    its holder.
    """
    folder = dagster_home(home)
    os.environ["DAGSTER_HOME"] = str(folder)
    without_pools = {"concurrency": {"pools": {"granularity": "run"}}}
    ref = InstanceRef.from_dir(str(folder), overrides={} if pools else without_pools)
    with _kept_connections():
        # Two processes that make its databases at once leave two versions of them in one table.
        with FileLock(folder / "open.lock"):
            opened = dg.DagsterInstance.from_ref(ref)
        with opened as instance:
            add_cohorts(instance, cohorts, domain)
            yield instance


def add_cohorts(
    instance: dg.DagsterInstance, cohorts: Iterable[str], domain: str = "movies"
) -> None:
    """Make cohorts known as partitions of their domains; ``domain`` has those that name none."""
    for cohort in dict.fromkeys(cohorts):
        cohort_in = cohort_domain(cohort, domain)
        instance.add_dynamic_partitions(str(COHORTS[cohort_in].name), [cohort])


#: Pages of SQLite's write-ahead log between two checkpoints (4 KiB each).
_CHECKPOINT = 100


def _nothing(close: bool = True) -> None:
    """Keep the connections of an engine."""


@contextmanager
def _kept_connections() -> Iterator[None]:
    """Let Dagster's SQLite storages keep their connections and wait for the disk rarely.

    Dagster makes an engine and a connection for every event. Connections took 6 % of the CPU time
    of a run of small tables, and engines, which compile every statement again, a tenth; the last
    connection of a file to be closed writes the file's log back and syncs, 9,000 times in a run of
    one domain. Kept ones sync every 100 pages: in WAL mode a killed process loses nothing, and a
    power cut the last events only (sqlite.org, *PRAGMA synchronous*).
    """
    engines: dict[str, Engine] = {}

    def rare_syncs(connection: sqlite3.Connection, _record: Any) -> None:
        # A file that can't be opened is the error of what reads or writes it next.
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")

    def kept(url: str, **options: Any) -> Engine:
        if url not in engines:
            engine = create_engine(url, **{**options, "poolclass": QueuePool})
            event.listen(engine, "connect", rare_syncs)
            # Dagster disposes of the engine after each use.
            engine.dispose = _nothing  # type: ignore[method-assign]
            engines[url] = engine
        return engines[url]

    name, storages = "create_engine", (sqlite_event_log, sqlite_run_storage)
    before = [getattr(module, name) for module in storages]
    for module in storages:
        setattr(module, name, kept)
    try:
        yield
    finally:
        for module, made in zip(storages, before, strict=True):
            setattr(module, name, made)
        for engine in engines.values():
            Engine.dispose(engine)


def job_origin(job: str, *, optional: bool = False) -> RemoteJobOrigin:
    """Origin by which the UI shows a run of this process under its job and on the timeline.

    ``optional`` jobs are in the second code location of the UI's workspace.
    """
    location = RegisteredCodeLocationOrigin(f"understudy{'-optional' * optional}")
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job)


def _of_command(run: dg.DagsterRun) -> bool:
    """Return True for a run of `understudy run`; those of the UI name the server of their code."""
    origin = run.remote_job_origin
    return origin is None or isinstance(
        origin.repository_origin.code_location_origin, RegisteredCodeLocationOrigin
    )


def end_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark unfinished runs whose process is gone as canceled and free the pool slots they keep.

    The home's run lock must be held: every unfinished run of `understudy run` is then dead. A run
    launched from the UI is dead if every process that its event log names is gone. Runs are marked
    as canceled, because Dagster's daemon would start failed ones again.

    Returns
    -------
    list
        Ids of the runs that were marked.
    """
    unfinished = [s for s in dg.DagsterRunStatus if s not in _FINISHED]
    dead = [
        run
        for run in instance.get_runs(dg.RunsFilter(statuses=unfinished))
        if _of_command(run) or _processes_gone(instance, run.run_id)
    ]
    for run in dead:
        instance.report_run_canceled(run, "The process of this run is gone.")
    log = instance.event_log_storage
    pools = [log.get_concurrency_info(key) for key in log.get_concurrency_keys()]
    holders = {slot.run_id for pool in pools for slot in pool.claimed_slots}
    holders |= {step.run_id for pool in pools for step in pool.pending_steps}
    for run_id in holders:
        holder = instance.get_run_by_id(run_id)
        if holder is None or holder.status in _FINISHED:
            log.free_concurrency_slots_for_run(run_id)
    return [run.run_id for run in dead]


_FINISHED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}


def _processes_gone(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return True if the run's event log names processes and all have exited."""
    started: dict[int, float] = {}
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = entry.dagster_event
        pid = event.engine_event_data.metadata.get("pid") if event else None
        if pid is not None:
            started[int(str(pid.value))] = entry.timestamp
    return bool(started) and not any(_alive(pid, seen) for pid, seen in started.items())


def _alive(pid: int, seen: float) -> bool:
    """Return True if the process that had this id at a time (seconds since 1970) still runs."""
    try:
        process = psutil.Process(pid)
        return bool(process.create_time() <= seen + 1 and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
