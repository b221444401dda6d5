"""Runs of jobs in this process, with progress on the terminal."""

from __future__ import annotations

import functools
import logging
import operator
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration._lanes import Send, open_lanes
from orchestration._planning import JobRun, PlannedRun, job_name, plan_runs
from orchestration.definitions import build_defs
from orchestration.instance import end_dead_runs, open_instance
from pipelines import errors
from pipelines.config import Settings, load_settings
from pipelines.domains import DOMAINS
from pipelines.store import Store
from pipelines.store.files import full_disk_error, full_disk_errors

__all__ = ["JobRun", "RunReport", "StepReport", "run_job", "run_jobs"]

#: ``observe(event, step, seconds, detail)``; event is start, done, failed or check.
Observer = Callable[[str, str, float, str], None]


@dataclass
class StepReport:
    """Duration and rows of a step."""

    name: str
    seconds: float = 0.0
    rows: int = 0


@dataclass
class RunReport:
    """Result of one run, or the sum of several runs."""

    run_id: str
    seconds: float
    steps: list[StepReport] = field(default_factory=list)
    checks_passed: int = 0
    checks_warned: list[str] = field(default_factory=list)
    checks_failed: list[str] = field(default_factory=list)
    checks_not_applicable: int = 0

    def __add__(self, later: RunReport) -> RunReport:
        return RunReport(
            later.run_id,
            self.seconds + later.seconds,
            self.steps + later.steps,
            self.checks_passed + later.checks_passed,
            self.checks_warned + later.checks_warned,
            self.checks_failed + later.checks_failed,
            self.checks_not_applicable + later.checks_not_applicable,
        )


def run_job(job: str, *, overrides: dict[str, Any], **options: Any) -> RunReport:
    """Materialise one job with its standing cohort; the options are those of `run_jobs`."""
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
    """Materialise jobs; each run is recorded in the home's Dagster instance.

    Steps that two jobs share run in the first of them alone: a step is not repeated for the same
    cohort. Several jobs go side by side, in processes of their own, as far as they do not wait
    for each other (:func:`lanes_of`).

    Overrides and configuration are as for `build_defs`; of Dagster's own log, ``log_level`` reaches
    the terminal, and all of it is kept for the UI. ``observe`` is called as steps start and end,
    ``progress`` as slow steps advance.

    Raises
    ------
    ConfigError
        If a ``select`` names an asset that is not in the job.
    LockedError
        If another headless run works on the same home.
    UnderstudyError
        The first fault of a run, as the class that it was raised as; runs beside it end, no
        other one is started.
    """
    settings = load_settings(config, overrides)
    store = Store(settings.runtime.home)
    jobs = [replace(run, cohort=run.cohort or _cohort(run.job, settings)) for run in jobs]
    cohorts = tuple(sorted({str(run.cohort) for run in jobs}))
    own = settings.personas.domain
    work = functools.partial(_runs, dict(overrides), config, log_level, store.home, cohorts, own)
    began = time.perf_counter()

    def on_event(kind: str, *content: Any) -> None:
        if kind == "step":
            observe(*content)
        elif progress is not None:
            progress(*content)

    with store.run_lock():
        lanes = lanes_of(settings) if len(jobs) > 1 else 1
        if lanes == 1:
            _recover(store.home, cohorts, own)
            with work(on_event) as do:
                tasks = plan_runs(_definitions(overrides, config), jobs, split=False)
                reports = [do(task.payload) for task in tasks]
        else:
            with open_lanes(work, lanes) as workers:
                # Lanes wait for their first task: one process makes a new home's event log.
                _recover(store.home, cohorts, own)
                tasks = plan_runs(_definitions(overrides, config), jobs, split=True)
                reports = workers.run(tasks, on_event=on_event)
    return replace(functools.reduce(operator.add, reports), seconds=time.perf_counter() - began)


def _cohort(job: str, settings: Settings) -> str:
    """Standing cohort of a job: that of its domain, else the configured one."""
    default = settings.personas.cohort
    return DOMAINS[job].cohort(default) if job in DOMAINS else default


def _recover(home: Path, cohorts: Sequence[str], domain: str) -> None:
    """Clear Dagster's records of runs that were killed; the run lock must be held."""
    with open_instance(home, *cohorts, domain=domain) as instance:
        end_dead_runs(instance)


def lanes_of(settings: Settings) -> int:
    """Number of runs side by side (``runtime.lanes``).

    By itself two, on two cores or more, unless a model is loaded in process: each lane would
    load its own.
    """
    if settings.runtime.lanes:
        return settings.runtime.lanes
    asked: set[str] = {settings.personas.writer}
    for scoring in (settings.scoring, settings.product_scoring):
        asked |= {scoring.rater, *(member.rater for member in scoring.ensemble)}
    return 2 if (os.cpu_count() or 1) > 1 and not asked & {"model", "llm", "listwise"} else 1


def _definitions(overrides: Mapping[str, Any], config: Path | None) -> dg.Definitions:
    return build_defs(executor=dg.in_process_executor, overrides=overrides, config=config)


@contextmanager
def _runs(
    overrides: dict[str, Any],
    config: Path | None,
    log_level: str,
    home: Path,
    cohorts: tuple[str, ...],
    domain: str,
    send: Send,
) -> Iterator[Callable[[PlannedRun], RunReport]]:
    """Do planned runs in this process."""
    defs = build_defs(
        executor=dg.in_process_executor,
        overrides=overrides,
        config=config,
        progress=functools.partial(send, "progress"),
    )
    # An interrupt that meets the closing of a connection would be logged with its traceback.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    with _own_stdout(), open_instance(home, *cohorts, domain=domain) as instance:

        def do(run: PlannedRun) -> RunReport:
            with full_disk_errors(home):
                return _run(defs, run, instance, home, log_level, functools.partial(send, "step"))

        yield do


def _run(
    defs: dg.Definitions,
    planned: PlannedRun,
    instance: dg.DagsterInstance,
    home: Path,
    log_level: str,
    observe: Observer,
) -> RunReport:
    job = defs.resolve_job_def(job_name(planned.job))
    partitioned = any(job.asset_layer.get(key).is_partitioned for key in planned.steps)
    whole = len(planned.steps) == len(job.asset_layer.selected_asset_keys)
    run_id = str(uuid.uuid4())
    report = RunReport(run_id, 0.0)
    began = time.perf_counter()
    instance.add_event_listener(run_id, _Watch(observe, report))
    result = job.execute_in_process(
        instance=instance,
        run_id=run_id,
        partition_key=planned.cohort if partitioned else None,
        run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
        asset_selection=None if whole else list(planned.steps),
        raise_on_error=False,
    )
    report.seconds = time.perf_counter() - began
    if not result.success:
        raise _first_fault(result, report, home)
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


class _Watch:
    """Enters the events of Dagster's log into a report, as they happen."""

    def __init__(self, observe: Observer, report: RunReport) -> None:
        self.observe = observe
        self.report = report
        self.steps: dict[str, StepReport] = {}
        self.began: dict[str, float] = {}

    def __call__(self, entry: Any, _cursor: Any = None) -> None:
        event = entry.dagster_event
        if event is None or event.step_key is None:
            return
        name = event.step_key
        if event.is_step_start:
            self.began[name] = time.perf_counter()
            if name not in self.steps:
                self.steps[name] = StepReport(name)
                self.report.steps.append(self.steps[name])
            self.observe("start", name, 0.0, "")
        elif event.is_step_success or event.is_step_failure:
            step = self.steps[name]
            step.seconds = time.perf_counter() - self.began.get(name, time.perf_counter())
            detail = f"{step.rows:,} rows" if step.rows else ""
            self.observe("done" if event.is_step_success else "failed", name, step.seconds, detail)
        elif event.is_step_up_for_retry and _interrupted(event.step_retry_data.error):
            # Dagster tries an interrupted step again if the step has a retry policy.
            raise KeyboardInterrupt
        elif event.is_step_materialization:
            rows = event.step_materialization_data.materialization.metadata.get("dagster/row_count")
            self.steps[name].rows += int(rows.value) if rows else 0
        elif event.event_type_value == "ASSET_CHECK_EVALUATION":
            self._check(event.asset_check_evaluation_data)

    def _check(self, check: Any) -> None:
        title = f"{check.asset_key.to_user_string()}: {check.check_name}"
        status = check.metadata.get("status")
        if status is not None and status.value == "not applicable":
            self.report.checks_not_applicable += 1
        elif check.passed:
            self.report.checks_passed += 1
        elif check.severity == dg.AssetCheckSeverity.WARN:
            self.report.checks_warned.append(title)
            self.observe("check", title, 0.0, "warning")
        else:
            self.report.checks_failed.append(title)
            self.observe("check", title, 0.0, "failed")


def _interrupted(error: Any) -> bool:
    """True for Ctrl-C, which Dagster turns into an error of the running step, and its retry."""
    while error is not None:
        if error.cls_name in {"DagsterExecutionInterruptedError", "KeyboardInterrupt"}:
            return True
        error = error.cause
    return False


def _first_fault(
    result: dg.ExecuteInProcessResult, report: RunReport, home: Path
) -> errors.UnderstudyError:
    hint = "the run is in the Dagster UI: `understudy ui`"
    for event in result.all_events:
        if event.is_job_failure and _interrupted(event.job_failure_data.error):
            raise KeyboardInterrupt
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
        if _interrupted(data.error):
            raise KeyboardInterrupt
        if report.checks_failed:
            break
        if data.error and (full := full_disk_error(data.error.to_string(), home)):
            return full
        cause = data.error.cause if data.error and data.error.cause else data.error
        message = cause.message.strip() if cause else "unknown"
        return errors.UnderstudyError(f"{event.step_key}: {message}", hint=hint)
    return errors.ContractError(
        f"{len(report.checks_failed)} blocking checks failed",
        where="; ".join(report.checks_failed[:3]),
        hint=hint,
        details={"checks": report.checks_failed, "run_id": report.run_id},
    )
