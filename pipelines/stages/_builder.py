"""The builder: every published table is found or made, checked and committed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.cohorts import check_cohort_name
from pipelines.config import EngineSettings, Settings
from pipelines.context import PipelineContext
from pipelines.contracts import CONTRACTS
from pipelines.domains import DOMAINS
from pipelines.errors import LockedError
from pipelines.llm.answers import answers_of
from pipelines.quality import CONTRACT_CHECK
from pipelines.stages._stage import Inputs, Report, Stage
from pipelines.store import (
    OF_COHORT,
    Build,
    CheckRecord,
    Snapshot,
    Store,
    Table,
    cohort_dataset,
)


@dataclass
class Built:
    """The outcome of a build."""

    #: Built stage.
    stage: Stage
    #: Current version of each table; empty if the stage was left out or its tables are absent.
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    #: Whether an equal build made them before.
    reused: bool = False
    #: Report of the stage.
    report: Report = field(default_factory=Report)
    #: Why there are no tables.
    reason: str | None = None
    absent: bool = False


def build(
    stage: Stage,
    context: PipelineContext,
    *,
    cohort: str | None = None,
    run_id: str | None = None,
    inputs: Mapping[str, Snapshot] | None = None,
) -> Built:
    """Build the tables of a stage from the current versions of its inputs.

    Tables of an equal build (code, identity settings, input versions) become current again;
    otherwise the stage makes them, and they are checked against their contracts and committed
    together with their lineage. Without an optional input, its tables are absent too.

    A cohort's tables are snapshots of their own, made from its snapshots of what else is built by
    cohort; the current version is then the union of all cohorts. ``inputs`` are snapshots by short
    name that are read in place of the current versions.

    Raises
    ------
    StoreError
        If an input is not in the store; :class:`LockedError` if another process builds the same
        cohort.
    UnderstudyError
        As the stage raises it; the current versions stay.
    """
    store, settings = context.store, context.settings
    report = Report()
    if stage.left_out is not None:
        reason = stage.left_out(settings, cohort)
        if reason is not None:
            return Built(stage, report=report, reason=reason)
    first = stage.datasets[0]
    optional = DOMAINS[stage.domain].optional if stage.domain else ()
    lost = [d for d in stage.inputs.values() if d in optional and not store.has(d)]
    if lost:
        for dataset in stage.datasets:
            store.withdraw(dataset)
        return Built(stage, report=report, reason=f"there is no {lost[0]}", absent=True)
    if stage.by_cohort:
        check_cohort_name(str(cohort))
    if stage.all_cohorts:
        others = store.current(next(iter(stage.inputs.values()))).cohorts() - {cohort}
        for other in sorted(others):
            with suppress(LockedError):  # whoever builds it does so now
                build(replace(stage, all_cohorts=False), context, cohort=other, run_id=run_id)
    given = inputs or {}
    with _alone(store, stage, cohort), ExitStack() as stack:
        datasets = _datasets(store, stage, cohort)
        read = Inputs(
            context,
            {
                short: given.get(short) or store.current(datasets[dataset])
                for short, dataset in stage.inputs.items()
            },
            stage.domain,
            cohort,
            store.current(datasets[first]) if store.has(datasets[first]) else None,
            store.home / "scratch" / first / (cohort or ""),
            run_id,
        )
        planned = stack.enter_context(stage.opened(read, settings, report))
        # Results kept one by one serve other builds too: their answers are those of no table, so
        # that `gc` never removes them.
        if stage.by_cohort or planned.reusable:
            stack.enter_context(answers_of(store.home, first, cohort or ""))
        if stage.by_cohort:
            planned = _as_cohort(planned, datasets[first], report)
        reused = store.find(planned) is not None
        try:
            committed = store.build(planned, run_id=run_id)
        except stage.absent_on as error:
            for dataset in stage.datasets:
                store.withdraw(dataset)
            return Built(stage, report=report, reason=str(error), absent=True)
    snapshots = {first: store.current(first)} if stage.by_cohort else committed
    for dataset, snapshot in snapshots.items():
        checks = report.checks if dataset == first else []
        store.record_checks(dataset, snapshot.version, [contract_record(snapshot), *checks])
    # The same rows of another build keep the provenance that they were first committed with.
    same = run_id is not None and all(s.manifest.run_id != run_id for s in committed.values())
    return Built(stage, snapshots, reused or same, report)


def check_models(
    stages: Iterable[Stage], store: Store, settings: Settings, cohort: str | None
) -> None:
    """Make sure that the models that stages will ask can be used, before the first is built.

    ``stages`` in the order in which they are built. A model is not asked for a cohort's tables that
    were made with these settings, nor for those made of them: they are reused.

    Raises
    ------
    ConfigError, EngineError
        As :func:`pipelines.llm.engines.check_engine`.
    """
    from pipelines.llm.engines import check_engine

    changed = False
    checked: list[tuple[EngineSettings, bool]] = []
    for stage in stages:
        if not stage.by_cohort and stage.asks is None:
            continue
        if stage.left_out is not None and stage.left_out(settings, cohort) is not None:
            continue
        uses = [] if stage.asks is None else list(stage.asks(settings, cohort))
        unset = any(engine.kind == "none" for engine, _ in uses)
        changed = changed or unset or not _as_stored(stage, store, settings, cohort)
        for use in uses if changed else ():
            if use not in checked:
                check_engine(use[0], settings.serving, choices=use[1])
                checked.append(use)


def _as_stored(stage: Stage, store: Store, settings: Settings, cohort: str | None) -> bool:
    """True if the current tables were made by this code with these settings."""
    name = _datasets(store, stage, cohort)[stage.datasets[0]]
    if not store.has(name):
        return False
    manifest = store.current(name).manifest
    config: Mapping[str, Any] = {**manifest.config.get("rated_by", {}), **manifest.config}
    decided = stage.decided_by(settings)
    return manifest.code_version == stage.code_version and all(
        name in config and config[name] == value for name, value in decided.items()
    )


def contract_record(snapshot: Snapshot) -> CheckRecord:
    """The outcome of the contract check of a committed snapshot: the store validated every row."""
    return CheckRecord(
        name=CONTRACT_CHECK,
        passed=True,
        severity="error",
        kind="pandera",
        details={"rows": snapshot.rows},
    )


def _datasets(store: Store, stage: Stage, cohort: str | None) -> dict[str, str]:
    """The datasets that a build of a cohort reads and writes, by those of the stage."""
    datasets = dict.fromkeys([*stage.datasets, *stage.inputs.values()])
    by_cohort = {
        d for d in datasets if stage.by_cohort and d in CONTRACTS and CONTRACTS[d].by_cohort
    }
    for dataset in by_cohort:
        store.split_cohorts(dataset)
    return {d: cohort_dataset(d, str(cohort)) if d in by_cohort else d for d in datasets}


def _as_cohort(planned: Build, dataset: str, report: Report) -> Build:
    """The build of a cohort's snapshot."""

    def facts() -> dict[str, Any]:
        return {**report.stats, OF_COHORT: report.cohort_stats}

    def make() -> Iterator[Table]:
        for table in planned.make():
            yield replace(table, dataset=dataset, stats=facts)

    return replace(planned, datasets=(dataset,), make=make)


@contextmanager
def _alone(store: Store, stage: Stage, cohort: str | None) -> Iterator[None]:
    """LockedError if another process builds the same cohort."""
    first = stage.datasets[0]
    if not stage.by_cohort:
        yield
        return
    try:
        with store.lock(cohort_dataset(first, str(cohort)), timeout=0):
            yield
    except LockedError:
        raise LockedError(
            f"another process is writing {first} of {cohort}",
            where=str(store.home),
            hint="try again later",
        ) from None
