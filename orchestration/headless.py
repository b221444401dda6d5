"""Runs of jobs in this process, with progress on the terminal."""

from __future__ import annotations

import difflib
import functools
import operator
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.definitions import build_defs
from orchestration.instance import open_instance
from pipelines import errors
from pipelines.config import load_settings
from pipelines.store import Store

__all__ = ["JobRun", "RunReport", "StepReport", "run_job", "run_jobs"]

#: ``observe(event, step, seconds, detail)``; event is start, done, failed or check.
Observer = Callable[[str, str, float, str], None]


@dataclass(frozen=True)
class JobRun:
    """One run of a job.

    Attributes
    ----------
    job
        Name of the job.
    cohort
        Cohort that it is run for; None is the configured one.
    select
        Asset keys such as ``movies/items``: run only these steps of the job, on what the home
        already holds upstream of them. None: all of them.
    """

    job: str
    cohort: str | None = None
    select: tuple[str, ...] = ()


@dataclass
class StepReport:
    """How long a step took and what it made."""

    name: str
    seconds: float = 0.0
    rows: int = 0


@dataclass
class RunReport:
    """What one run did, or several one after the other."""

    run_id: str
    seconds: float
    steps: list[StepReport] = field(default_factory=list)
    checks_passed: int = 0
    checks_warned: list[str] = field(default_factory=list)
    checks_failed: list[str] = field(default_factory=list)

    def __add__(self, later: RunReport) -> RunReport:
        return RunReport(
            later.run_id,
            self.seconds + later.seconds,
            self.steps + later.steps,
            self.checks_passed + later.checks_passed,
            self.checks_warned + later.checks_warned,
            self.checks_failed + later.checks_failed,
        )


def run_job(job: str, *, overrides: dict[str, Any], **options: Any) -> RunReport:
    """Materialise one job with the configured cohort; the options are those of `run_jobs`."""
    select = tuple(options.pop("select", ()))
    return run_jobs([JobRun(job, select=select)], overrides=overrides, **options)


def run_jobs(
    jobs: Sequence[JobRun],
    *,
    overrides: dict[str, Any],
    config: Path | None = None,
    log_level: str = "CRITICAL",
    observe: Observer = lambda *_: None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> RunReport:
    """Materialise jobs in process; each run is recorded in the home's Dagster instance.

    What two jobs share is made by the first of them alone: a step is not repeated for the same
    cohort.

    Parameters
    ----------
    jobs
        What to run, in order.
    overrides, config
        As for `build_defs`.
    log_level
        What of Dagster's own log reaches the terminal; all of it is kept for the UI.
    observe, progress
        Called as steps start and end, and as slow steps advance.

    Raises
    ------
    ConfigError
        If a ``select`` names an asset that is not in the job.
    LockedError
        If another headless run works on the same home.
    UnderstudyError
        The first fault of a run, as the class that it was raised as; the jobs after it are not
        started.
    """
    settings = load_settings(config, overrides)
    store = Store(settings.runtime.home)
    planned = [replace(run, cohort=run.cohort or settings.personas.cohort) for run in jobs]
    done: set[tuple[dg.AssetKey, str | None]] = set()
    with store.run_lock():
        defs = build_defs(
            executor=dg.in_process_executor, overrides=overrides, config=config, progress=progress
        )
        cohorts = {str(run.cohort) for run in planned}
        with _own_stdout(), open_instance(store.home, *sorted(cohorts)) as instance:
            reports = []
            for run in planned:
                job = defs.resolve_job_def(run.job)
                steps = _left(job, run, done)
                reports.append(_run(job, str(run.cohort), instance, steps, log_level, observe))
                done.update(_places(job, steps, run.cohort))
    return functools.reduce(operator.add, reports)


def _left(
    job: dg.JobDefinition, run: JobRun, done: set[tuple[dg.AssetKey, str | None]]
) -> list[dg.AssetKey]:
    """The assets of a job that are asked for and that no run before it has made."""
    wanted = _selected(job, run.select) if run.select else job.asset_layer.selected_asset_keys
    places = _places(job, wanted, run.cohort)
    return sorted(key for key, cohort in places if (key, cohort) not in done)


def _places(
    job: dg.JobDefinition, keys: Iterable[dg.AssetKey], cohort: str | None
) -> list[tuple[dg.AssetKey, str | None]]:
    """Assets with the cohort that they are made for, if they are partitioned."""
    graph = job.asset_layer.asset_graph
    return [(key, cohort if graph.get(key).is_partitioned else None) for key in keys]


def _run(
    job: dg.JobDefinition,
    cohort: str,
    instance: dg.DagsterInstance,
    steps: list[dg.AssetKey],
    log_level: str,
    observe: Observer,
) -> RunReport:
    run_id = str(uuid.uuid4())
    watch = _Watch(observe)
    began = time.perf_counter()
    instance.add_event_listener(run_id, watch)
    result = job.execute_in_process(
        instance=instance,
        run_id=run_id,
        partition_key=cohort if job.partitions_def else None,
        run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
        asset_selection=steps if len(steps) < len(job.asset_layer.selected_asset_keys) else None,
        raise_on_error=False,
    )
    report = RunReport(
        run_id,
        time.perf_counter() - began,
        list(watch.steps.values()),
        watch.passed,
        watch.warned,
        watch.failed,
    )
    if not result.success:
        raise _first_fault(result, report)
    return report


@contextmanager
def _own_stdout() -> Iterator[None]:
    """Keep what steps and their programs (dbt) print off this process's standard output.

    The command prints its result there, as JSON if asked to. Dagster records the steps' output
    for the UI all the same. The file descriptor is redirected, because child processes write
    to it.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
        sys.stdout.flush()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _selected(job: dg.JobDefinition, names: Sequence[str]) -> list[dg.AssetKey]:
    known = {key.to_user_string(): key for key in job.asset_layer.selected_asset_keys}
    unknown = [name for name in names if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(known), n=1)
        raise errors.ConfigError(
            f"no such asset in the job {job.name}",
            where=unknown[0],
            hint=f"did you mean {near[0]}?" if near else f"such as {min(known)}",
        )
    return [known[name] for name in names]


class _Watch:
    """Turns Dagster's event log into step reports, as they happen."""

    def __init__(self, observe: Observer) -> None:
        self.observe = observe
        self.steps: dict[str, StepReport] = {}
        self.began: dict[str, float] = {}
        self.passed = 0
        self.warned: list[str] = []
        self.failed: list[str] = []

    def __call__(self, entry: Any, _cursor: Any = None) -> None:
        event = entry.dagster_event
        if event is None or event.step_key is None:
            return
        name = event.step_key
        if event.is_step_start:
            self.began[name] = time.perf_counter()
            self.steps.setdefault(name, StepReport(name))
            self.observe("start", name, 0.0, "")
        elif event.is_step_success or event.is_step_failure:
            step = self.steps[name]
            step.seconds = time.perf_counter() - self.began.get(name, time.perf_counter())
            detail = f"{step.rows:,} rows" if step.rows else ""
            self.observe("done" if event.is_step_success else "failed", name, step.seconds, detail)
        elif event.is_step_materialization:
            rows = event.step_materialization_data.materialization.metadata.get("dagster/row_count")
            self.steps[name].rows += int(rows.value) if rows else 0
        elif event.event_type_value == "ASSET_CHECK_EVALUATION":
            self._check(event.asset_check_evaluation_data)

    def _check(self, check: Any) -> None:
        title = f"{check.asset_key.to_user_string()}: {check.check_name}"
        if check.passed:
            self.passed += 1
        elif check.severity == dg.AssetCheckSeverity.WARN:
            self.warned.append(title)
            self.observe("check", title, 0.0, "warning")
        else:
            self.failed.append(title)
            self.observe("check", title, 0.0, "failed")


def _first_fault(result: dg.ExecuteInProcessResult, report: RunReport) -> errors.UnderstudyError:
    hint = "the run is in the Dagster UI: `understudy ui`"
    for event in result.all_events:
        if not event.is_step_failure:
            continue
        data = event.step_failure_data
        if data.user_failure_data:
            kind = data.user_failure_data.metadata.get("error")
            rows = data.user_failure_data.metadata.get("failing_rows")
            cls = getattr(errors, str(kind.value) if kind else "", errors.UnderstudyError)
            fault: errors.UnderstudyError = cls(
                f"{event.step_key}: {data.user_failure_data.description}",
                details={
                    "run_id": report.run_id,
                    **({"rows": rows.value} if rows else {}),
                },
            )
            return fault
        if data.error and data.error.cls_name == "DagsterExecutionInterruptedError":
            # Ctrl-C, which Dagster turned into an error of the running step.
            raise KeyboardInterrupt
        if report.checks_failed:
            break
        cause = data.error.cause if data.error and data.error.cause else data.error
        message = cause.message.strip() if cause else "unknown"
        return errors.UnderstudyError(f"{event.step_key}: {message}", hint=hint)
    return errors.ContractError(
        f"{len(report.checks_failed)} blocking checks failed",
        where="; ".join(report.checks_failed[:3]),
        hint=hint,
        details={"checks": report.checks_failed, "run_id": report.run_id},
    )
