"""The builder: every published table is found or made, checked and committed here."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.cohorts import check_cohort_name
from pipelines.config import EngineSettings, Settings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS
from pipelines.errors import LockedError
from pipelines.llm.answers import answers_of
from pipelines.plugins import closing
from pipelines.quality import CONTRACT_CHECK
from pipelines.stages._stage import Inputs, Report, Stage
from pipelines.store import Build, CheckRecord, Snapshot, Store

#: Seconds to wait for another process that writes its cohort into the same table.
_PATIENCE = 120.0


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

    Of a table that is built by cohort, the rows of other cohorts are kept, but for those of cohorts
    that are no longer among the personas. ``inputs`` are snapshots by short name that are read in
    place of the current versions.

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
    with ExitStack() as stack:
        if stage.by_cohort:
            check_cohort_name(str(cohort))
            stack.enter_context(_lock(store, f"{first}-{cohort}", f"{first} of {cohort}", 0))
        given = inputs or {}
        read = Inputs(
            context,
            {
                short: given.get(short) or store.current(dataset)
                for short, dataset in stage.inputs.items()
            },
            stage.domain,
            cohort,
            store.current(first) if store.has(first) else None,
            store.home / "scratch" / first / (cohort or ""),
            run_id,
        )
        wanted = stack.enter_context(stage.opened(read, settings, report))
        # Results kept one by one serve other builds too: their answers are those of no table, so
        # that `gc` never removes them.
        if stage.by_cohort or wanted.reusable:
            stack.enter_context(answers_of(store.home, first, cohort or ""))
        if stage.by_cohort:
            snapshots, reused = _beside_others(stack, store, read, wanted, report)
        else:
            reused = store.find(wanted) is not None
            try:
                snapshots = store.build(wanted, run_id=run_id)
            except stage.absent_on as error:
                for dataset in stage.datasets:
                    store.withdraw(dataset)
                return Built(stage, report=report, reason=str(error), absent=True)
        if stage.by_cohort:
            shutil.rmtree(read.scratch, ignore_errors=True)
    for dataset, snapshot in snapshots.items():
        own = report.checks if dataset == first else []
        store.record_checks(dataset, snapshot.version, [contract_record(snapshot), *own])
    # The same rows of another build keep the provenance that they were first committed with.
    same = run_id is not None and all(s.manifest.run_id != run_id for s in snapshots.values())
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
    first = stage.datasets[0]
    if not store.has(first):
        return False
    manifest = store.current(first).manifest
    config: Mapping[str, Any] = manifest.config
    if stage.by_cohort:
        config = config.get("cohorts", {}).get(cohort, {})
    config = {**config.get("rated_by", {}), **config}
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


def _beside_others(
    stack: ExitStack, store: Store, inputs: Inputs, own: Build, report: Report
) -> tuple[dict[str, Snapshot], bool]:
    """Commit a cohort's rows beside the other cohorts' committed ones; whether both were there.

    The cohort's rows are made and written first; only then is the table locked, so that cohorts
    that are built at the same time keep each other's rows.
    """
    (dataset,) = own.datasets
    name = str(inputs.partition)

    def config(before: Snapshot | None, kept: set[str]) -> dict[str, Any]:
        others = before.manifest.config.get("cohorts", {}) if before else {}
        kept_configs = {cohort: c for cohort, c in others.items() if cohort in kept}
        return {"cohort": name, "cohorts": {**kept_configs, name: dict(own.config)}}

    same = replace(own, config=config(inputs.previous, _kept_cohorts(inputs.previous, inputs)))
    found = store.find(same)
    # An older version of the table has other rows of the other cohorts.
    if found and inputs.previous and found[dataset].version == inputs.previous.version:
        return store.build(same, run_id=inputs.run_id), True
    (made,) = own.make()
    with store.write(
        dataset,
        code_version=own.code_version,
        config=own.config,
        inputs=own.inputs,
        run_id=inputs.run_id,
        allow_empty=made.allow_empty,
    ) as writer:
        take = writer.append if made.ordered else writer.append_unordered
        with closing(iter(made.frames)) as frames:
            for frame in frames:
                take(frame)
        # Held until the table is committed.
        stack.enter_context(_lock(store, dataset, dataset, _PATIENCE))
        before = store.current(dataset) if store.has(dataset) else None
        kept = _kept_cohorts(before, inputs)
        if before is not None:
            writer.keep_cohorts(before, kept)
        writer.identify(config(before, kept))
        writer.note(**_stats_beside(before, kept, inputs, report))
    return {dataset: writer.snapshot}, False


def _stats_beside(
    before: Snapshot | None, kept: set[str], inputs: Inputs, report: Report
) -> dict[str, Any]:
    """Facts of the table: the cohort's own beside those of the other cohorts."""
    name = str(inputs.partition)
    found = dict(before.manifest.stats) if before else {}
    found.update(report.stats)
    for key, value in report.cohort_stats.items():
        others = dict(found.get(key) or {})
        found[key] = {**{k: v for k, v in others.items() if k in kept}, name: value}
    return found


def _kept_cohorts(before: Snapshot | None, inputs: Inputs) -> set[str]:
    """Other cohorts of the last version whose rows stay: those still among the personas."""
    if before is None:
        return set()
    kept = before.cohorts()
    if "personas" in inputs:
        kept &= inputs["personas"].cohorts()
    return kept - {str(inputs.partition)}


@contextmanager
def _lock(store: Store, name: str, what: str, patience: float) -> Iterator[None]:
    try:
        with store.lock(name, timeout=patience):
            yield
    except LockedError:
        raise LockedError(
            f"another process is writing {what}", where=str(store.home), hint="try again later"
        ) from None
