"""Runs of jobs by Dagster, with progress on the terminal."""

from __future__ import annotations

import difflib
import functools
import json
import logging
import multiprocessing
import operator
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg
from dagster._core.code_pointer import CustomPointer, ModuleCodePointer
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._core.execution.api import execute_run_iterator
from dagster._core.executor.child_process_executor import ChildProcessCrashException
from dagster._core.storage.tags import MAX_RETRIES_TAG, PARTITION_NAME_TAG

from orchestration._interrupts import follow_parent, start_fork_server
from orchestration.definitions import PRELOAD, SOURCE, build_defs, shared_defs
from orchestration.defs.jobs import REPORTS
from orchestration.defs.warehouse import MODELS_TAG, model_assets
from orchestration.instance import end_dead_runs, job_origin, open_instance
from orchestration.naming import asset_key
from pipelines import errors
from pipelines.config import Settings, load_settings
from pipelines.domains import DOMAINS
from pipelines.sources import SOURCES
from pipelines.stages import STAGES, check_models
from pipelines.store import Store
from pipelines.store.files import full_disk_error, full_disk_errors

__all__ = ["JobRun", "RunReport", "StepReport", "run_job", "run_jobs"]

#: ``observe(event, step, seconds, detail)``; event is start, done, failed or check.
Observer: TypeAlias = Callable[[str, str, float, str], None]


@dataclass(frozen=True)
class JobRun:
    """A job to run."""

    #: Name of the job.
    job: str
    #: Cohort that it is run for; None is the configured one.
    cohort: str | None = None
    #: Asset keys such as ``movies/items``: run only these steps of the job, on what the home
    #: already holds upstream of them. Empty: all of them.
    select: tuple[str, ...] = ()
    #: Whether the cohort becomes a partition of every table of personas. One that is not has no
    #: other table than those of this run, and the UI would show the others as missing.
    listed: bool = True


@dataclass(frozen=True)
class PlannedRun:
    """Assets and cohort of a run."""

    job: str
    cohort: str
    steps: tuple[dg.AssetKey, ...]
    #: Groups of dbt's models that this and later runs build.
    models: tuple[str, ...] = ()
    #: Runs in place of it and all later ones if it can't read a source.
    otherwise: tuple[PlannedRun, ...] = ()


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
) -> RunReport:
    """Materialise jobs; each run is recorded in the home's Dagster instance.

    Each job is a run of its own, because a run has one cohort. The runs follow each other; steps
    that two of them share run in the first alone, so that none is repeated for the same cohort.
    ``runtime.executor`` says where the steps run: in this process, or in several.

    Overrides and configuration are as for `build_defs`; of Dagster's own log, ``log_level`` reaches
    the terminal, and all of it is kept for the UI. ``observe`` is called as steps start and end;
    whoever listens (:mod:`pipelines.progress`) hears how slow steps advance. Of steps in other
    processes neither log nor advance is seen.

    Raises
    ------
    ConfigError
        If a ``select`` names an asset that is not in the job, or a step needs a model and the
        settings name none.
    EngineError
        If the model of a step can't be used; no step has begun then.
    LockedError
        If another headless run works on the same home.
    UnderstudyError
        The first fault of a run, as the class that it was raised as. Steps that do not need the
        failed one end; no other run is started.
    """
    settings = load_settings(config, overrides)
    store, folder = Store(settings.runtime.home), settings.runtime.folder
    jobs = [replace(run, cohort=run.cohort or _cohort(run.job, settings)) for run in jobs]
    cohorts = tuple(sorted({str(run.cohort) for run in jobs if run.listed}))
    workers = settings.runtime.executor == "multiprocess"
    # An interrupt that meets the closing of a connection would be logged with its traceback.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    began = time.perf_counter()
    with (
        store.run_lock(),
        _own_stdout(),
        full_disk_errors(folder),
        open_instance(folder, *cohorts, domain=settings.personas.domain, pools=workers) as instance,
    ):
        end_dead_runs(instance)
        defs = build_defs(
            executor=dg.in_process_executor,
            overrides=overrides,
            config=config,
        )
        planned = plan_runs(defs, jobs)
        for run in planned:
            stages = (s for s in STAGES if not {*map(asset_key, s.datasets)}.isdisjoint(run.steps))
            check_models(stages, store, settings, run.cohort)
        source = None
        if workers:
            source = (json.dumps(overrides, default=str), str(config) if config else None)
            start_fork_server(PRELOAD, {SOURCE: json.dumps(source)})
        reports, queue = [], sources_first(planned)
        while queue:
            run, *queue = queue
            try:
                report = _run(defs, run, instance, folder, log_level, observe, source=source)
            except (errors.SourceError, errors.ContractError):
                if not run.otherwise:
                    raise
                queue = [*run.otherwise]
            else:
                reports.append(report)
    return replace(functools.reduce(operator.add, reports), seconds=time.perf_counter() - began)


def _cohort(job: str, settings: Settings) -> str:
    """Standing cohort of a job: that of its domain, else the configured one."""
    default = settings.personas.cohort
    return DOMAINS[job].cohort(default) if job in DOMAINS else default


def plan_runs(defs: dg.Definitions, jobs: Sequence[JobRun]) -> list[PlannedRun]:
    """One run per job, of the steps that no earlier one runs for the same cohort.

    Raises :class:`ConfigError` if a ``select`` names an asset that is not in the job.
    """
    planned: list[PlannedRun] = []
    done: set[tuple[dg.AssetKey, str | None]] = set()
    for run in jobs:
        job = defs.resolve_job_def(_job_name(run.job))
        graph = job.asset_layer.asset_graph
        selected = _selected(job, run.select) if run.select else job.asset_layer.selected_asset_keys
        places = {key: run.cohort if graph.get(key).is_partitioned else None for key in selected}
        steps = tuple(sorted(key for key, cohort in places.items() if (key, cohort) not in done))
        done.update(places.items())
        if steps:
            planned.append(PlannedRun(run.job, str(run.cohort), steps))
    return planned


def sources_first(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The plan with one run before its domains that reads the raw tables of all of them.

    One invocation of dbt then builds the models of every domain. If a source can't be read, each
    domain reads its own, so that those before the failing one are published.
    """
    models = {group: assets.keys for group, assets in model_assets().items()}
    built = [{g for g, keys in models.items() if keys & {*run.steps}} for run in planned]
    building = [number for number, groups in enumerate(built) if groups]
    if len(building) < 2:
        return [*planned]
    raw = {asset_key("raw.world_files")}
    raw |= {asset_key(dataset) for source in SOURCES.values() for dataset in source.datasets}
    before, later = planned[: building[0]], planned[building[0] :]
    first = replace(
        later[0],
        job="ingest",
        steps=tuple(sorted({key for run in later for key in run.steps} & raw)),
        otherwise=tuple(later),
    )
    groups = tuple(sorted(set().union(*built)))
    domains = [
        replace(run, steps=tuple(key for key in run.steps if key not in raw), models=groups)
        for run in later
    ]
    return [run for run in (*before, first, *domains) if run.steps]


def _job_name(name: str) -> str:
    """Dagster's name of a job of the command line.

    Assets of several domains have different partitions, which only its own job of all may have.
    """
    return "__ASSET_JOB" if name in ("everything", "personas") else name


def _selected(job: dg.JobDefinition, names: Sequence[str]) -> list[dg.AssetKey]:
    """The named assets; with a model those of its group, which dbt builds as a whole."""
    by_key = {key.to_user_string(): key for key in job.asset_layer.selected_asset_keys}
    unknown = [name for name in names if name not in by_key]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(by_key), n=1)
        raise errors.ConfigError(
            f"no such asset in the job {job.name}",
            where=unknown[0],
            hint=f"did you mean {near[0]}?" if near else f"such as {min(by_key)}",
        )
    keys = {by_key[name] for name in names}
    groups = (assets.keys for assets in model_assets().values() if assets.keys & keys)
    return sorted(keys.union(*groups) & job.asset_layer.selected_asset_keys)


def _run(
    defs: dg.Definitions,
    planned: PlannedRun,
    instance: dg.DagsterInstance,
    home: Path,
    log_level: str,
    observe: Observer,
    *,
    source: tuple[str, str | None] | None = None,
) -> RunReport:
    """Do a planned run; with a ``source`` of :func:`worker_defs`, its steps in other processes."""
    job = defs.resolve_job_def(_job_name(planned.job))
    partitioned = any(job.asset_layer.get(key).is_partitioned for key in planned.steps)
    complete = len(planned.steps) == len(job.asset_layer.selected_asset_keys)
    # A run that failed is started again by its user, not by the daemon of an open UI.
    tags = {**job.run_tags, MAX_RETRIES_TAG: "0"}
    if partitioned:
        tags[PARTITION_NAME_TAG] = planned.cohort
    if planned.models:
        tags[MODELS_TAG] = ",".join(planned.models)
    report = RunReport(str(uuid.uuid4()), 0.0)
    watch = _Watch(observe, report)
    began = time.perf_counter()
    events: list[dg.DagsterEvent] = []
    here = job.with_executor_def(dg.in_process_executor)
    executed: InMemoryJob | ReconstructableJob = InMemoryJob(here)
    if source is not None:
        pointer = CustomPointer(ModuleCodePointer(__name__, worker_defs.__name__), [*source], [])
        executed = ReconstructableRepository(pointer).get_reconstructable_job(job.name)
    chosen = None if complete else frozenset(planned.steps)
    run = instance.create_run_for_job(
        (executed if complete else executed.get_subset(asset_selection=chosen)).get_definition(),
        run_id=report.run_id,
        run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
        tags=tags,
        asset_selection=chosen,
        remote_job_origin=job_origin(job.name, optional=job.name in REPORTS),
    )
    try:
        if source is None:
            instance.add_event_listener(report.run_id, watch.listen)
        for event in execute_run_iterator(executed, run, instance):
            events.append(event)
            # Listeners hear only of what this process logs; the executor passes on all.
            if source is not None:
                watch(event)
    except KeyboardInterrupt:
        if watch.stopped_at is None:
            raise
    report.seconds = time.perf_counter() - began
    if not any(event.event_type_value == "PIPELINE_SUCCESS" for event in events):
        stopped_at = [watch.stopped_at] if watch.stopped_at is not None else []
        raise _first_fault([*stopped_at, *events], report, home)
    return report


def worker_defs(overrides: str, config: str | None) -> dg.Definitions:
    """Definitions in each worker process of a run; ``overrides`` are JSON."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        follow_parent(parent)
    return shared_defs(overrides, config)


@contextmanager
def _own_stdout() -> Iterator[None]:
    """Keep what steps and their programs (dbt) print off this process's standard output.

    The command prints its result there, as JSON if asked to. Dagster records the steps' output
    for the UI all the same. The file descriptor is redirected, because child processes write
    to it.
    """
    sys.stdout.flush()
    descriptor = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
        sys.stdout.flush()
    finally:
        os.dup2(descriptor, 1)
        os.close(descriptor)
        os.close(nowhere)


class _Watch:
    """Enters the events of a run into a report, as they happen."""

    def __init__(self, observe: Observer, report: RunReport) -> None:
        self.observe = observe
        self.report = report
        self.steps: dict[str, StepReport] = {}
        #: Event of a step at whose failure the run stopped.
        self.stopped_at: dg.DagsterEvent | None = None
        self.began: dict[str, float] = {}

    def listen(self, entry: Any, _cursor: Any = None) -> None:
        """Take an entry of Dagster's log, in the process that executes its step."""
        event = entry.dagster_event
        if event is None:
            return
        self(event)
        if event.is_step_up_for_retry and _interrupted(event.step_retry_data.error):
            # Dagster tries an interrupted step again if the step has a retry policy.
            raise KeyboardInterrupt

    def __call__(self, event: dg.DagsterEvent) -> None:
        if event.step_key is None or self.stopped_at is not None:
            return
        name = event.step_key
        if event.is_step_start:
            self.began[name] = time.perf_counter()
            self._step(name)
            self.observe("start", name, 0.0, "")
        elif event.is_step_success or event.is_step_failure:
            step = self._step(name)
            step.seconds = time.perf_counter() - self.began.get(name, time.perf_counter())
            detail = f"{step.rows:,} rows" if step.rows else ""
            self.observe("done" if event.is_step_success else "failed", name, step.seconds, detail)
            if event.is_step_failure and _of_model(event):
                self.stopped_at = event
                _interrupt()
        elif event.is_step_materialization:
            rows = event.step_materialization_data.materialization.metadata.get("dagster/row_count")
            self._step(name).rows += int(str(rows.value)) if rows else 0
        elif event.event_type_value == "ASSET_CHECK_EVALUATION":
            self._check(event.asset_check_evaluation_data)

    def _step(self, name: str) -> StepReport:
        """Report of a step, which may fail before it starts: its process died."""
        if name not in self.steps:
            self.steps[name] = StepReport(name)
            self.report.steps.append(self.steps[name])
        return self.steps[name]

    def _check(self, check: Any) -> None:
        title = f"{check.asset_key.to_user_string()}: {check.check_name}"
        message = f": {check.description}" if check.description else ""
        status = check.metadata.get("status")
        if status is not None and status.value == "not applicable":
            self.report.checks_not_applicable += 1
        elif check.passed:
            self.report.checks_passed += 1
        elif check.severity == dg.AssetCheckSeverity.WARN:
            self.report.checks_warned.append(title + message)
            self.observe("check", title, 0.0, f"warning{message}")
        else:
            self.report.checks_failed.append(title)
            self.observe("check", title, 0.0, f"failed{message}")


def _of_model(event: dg.DagsterEvent) -> bool:
    """True for the failure of a step whose model can't do its work."""
    data = event.step_failure_data.user_failure_data
    kind = data.metadata.get("error") if data else None
    return kind is not None and kind.value in {"AnswerError", "EngineError"}


def _interrupt() -> None:
    """Stop the run in this process as Ctrl-C does, without its time limit."""
    if threading.current_thread() is threading.main_thread():
        wakeup = signal.set_wakeup_fd(-1)
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.set_wakeup_fd(wakeup)


def _interrupted(error: Any) -> bool:
    """True for Ctrl-C, which Dagster turns into an error of the running step, and its retry."""
    while error is not None:
        if error.cls_name in {"DagsterExecutionInterruptedError", "KeyboardInterrupt"}:
            return True
        error = error.cause
    return False


def _first_fault(
    events: Sequence[dg.DagsterEvent], report: RunReport, home: Path
) -> errors.UnderstudyError:
    hint = "the run is in the Dagster UI: `understudy ui`"
    for event in events:
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
        if data.error and data.error.cls_name == ChildProcessCrashException.__name__:
            return errors.UnderstudyError(
                f"the process that ran it {_death(events, str(event.step_key))}",
                where=str(event.step_key),
                hint="committed results are kept; run again (did it run out of memory?)",
            )
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


def _death(events: Sequence[dg.DagsterEvent], step: str) -> str:
    """End of the process of a step: Dagster says it in an event of the run."""
    for event in events:
        if event.step_key == step and event.is_engine_event and event.engine_event_data.error:
            return str(event.message).partition(f"for step {step} ")[2].partition(".")[0]
    return "died"
