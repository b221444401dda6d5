"""The builder: every published table is found or made, checked and committed here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import polars as pl

from pipelines.context import PipelineContext
from pipelines.contracts import CONTRACTS
from pipelines.domains import DOMAINS
from pipelines.errors import LockedError
from pipelines.llm.answers import USES, Uses, recorded_uses
from pipelines.quality import CONTRACT_CHECK
from pipelines.raters import cohort_of, in_cohort
from pipelines.stages._stage import Inputs, Report, Stage
from pipelines.store import Build, CheckRecord, Snapshot, Store, Table

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
    report = Report(context.progress)
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
            store.scratch / "scratch" / first / (cohort or ""),
            run_id,
        )
        wanted = stack.enter_context(stage.opened(read, settings, report))
        uses = None
        if stage.by_cohort or wanted.reusable:
            uses = stack.enter_context(recorded_uses(store.scratch, first, cohort or ""))
        # Results kept one by one serve other builds too: their requests are recorded as made
        # outside of tables, so that `gc` never removes their answers.
        if stage.by_cohort:
            assert uses is not None
            wanted, reused = _beside_others(stack, store, stage, read, wanted, report, uses)
        else:
            reused = store.find(wanted) is not None
            if uses is not None:
                wanted = replace(wanted, make=_noting(wanted, uses))
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


def contract_record(snapshot: Snapshot) -> CheckRecord:
    """The outcome of the contract check of a committed snapshot: the store validated every row."""
    return CheckRecord(
        name=CONTRACT_CHECK,
        passed=True,
        severity="error",
        kind="pandera",
        details={"rows": snapshot.rows},
    )


def _noting(build: Build, uses: Uses) -> Callable[[], Iterator[Table]]:
    """The tables of a build, with the files of keys that it asked for in their facts."""

    def stats_of(table: Table) -> dict[str, Any]:
        names = uses.end()
        return {**table.stats(), **({USES: {"": names}} if names else {})}

    def make() -> Iterator[Table]:
        for table in build.make():
            yield replace(table, stats=partial(stats_of, table))

    return make


def _beside_others(
    stack: ExitStack,
    store: Store,
    stage: Stage,
    inputs: Inputs,
    own: Build,
    report: Report,
    uses: Uses,
) -> tuple[Build, bool]:
    """The build of a whole table from a cohort's rows and the other cohorts' committed ones.

    The cohort's rows are made first; only then is the table locked, so that cohorts that are
    built at the same time keep each other's rows.
    """
    (dataset,) = stage.datasets
    name = str(inputs.partition)

    def joined(before: Snapshot | None, made: Iterable[Table]) -> Build:
        kept = _kept_cohorts(before, inputs, name)
        configs = before.manifest.config.get("cohorts", {}) if before else {}
        config = {
            "cohort": name,
            "cohorts": {**{k: v for k, v in configs.items() if k in kept}, name: dict(own.config)},
        }

        def stats() -> dict[str, Any]:
            found = dict(before.manifest.stats) if before else {}
            found.update(report.stats)
            for key, value in report.cohort_stats.items():
                others = dict(found.get(key) or {})
                found[key] = {**{k: v for k, v in others.items() if k in kept}, name: value}
            earlier = found.pop(USES, {})
            mine = uses.end()
            if report.carried and inputs.previous is not None:
                mine = [*inputs.previous.manifest.stats.get(USES, {}).get(name, ()), *mine]
            asked = {k: v for k, v in {**earlier, name: mine}.items() if k in {*kept, name} and v}
            return {**found, **({USES: asked} if asked else {})}

        def table() -> Iterator[Table]:
            (mine,) = made
            yield Table(dataset, _rows(before, kept, name, mine.frames), stats)

        return replace(own, make=table, config=config)

    same = joined(inputs.previous, ())
    found = store.find(same)
    # An older version of the table has other rows of the other cohorts.
    if found and inputs.previous and found[dataset].version == inputs.previous.version:
        return same, True
    made = list(own.make())
    stack.enter_context(_lock(store, dataset, dataset, _PATIENCE))
    before = store.current(dataset) if store.has(dataset) else None
    return replace(joined(before, made), reusable=False), False


def _kept_cohorts(before: Snapshot | None, inputs: Inputs, name: str) -> set[str]:
    """Cohorts of the last version whose rows stay: those that are still among the personas."""
    if before is None:
        return set()
    cohorts = before.scan().select(cohort_of().alias("cohort")).unique().collect()["cohort"]
    kept = set(cohorts)
    if "personas" in inputs:
        there = inputs["personas"].scan().select(pl.col("cohort").unique()).collect()["cohort"]
        kept &= set(there)
    return kept - {name}


def _rows(
    before: Snapshot | None, kept: set[str], name: str, frames: Iterable[Any]
) -> Iterator[Any]:
    """The rows of all cohorts in the order of ids."""
    # As a text, `a` comes before `a-b` only with the colon that follows it in an id.
    for cohort in sorted({*kept, name}, key=lambda c: f"{c}:"):
        if cohort == name:
            yield from frames
        else:
            assert before is not None
            for frame in (
                before.scan().filter(in_cohort(cohort)).collect_batches(maintain_order=True)
            ):
                yield _current(before.manifest.dataset, frame)


def _current(dataset: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of an older version with the columns of today's contract, null where they are new."""
    schema = CONTRACTS[dataset].polars_schema() if dataset in CONTRACTS else {}
    absent = [
        pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in frame.columns
    ]
    return frame.with_columns(absent).select(*schema) if absent else frame


@contextmanager
def _lock(store: Store, name: str, what: str, patience: float) -> Iterator[None]:
    try:
        with store.lock(name, timeout=patience):
            yield
    except LockedError:
        raise LockedError(
            f"another process is writing {what}", where=str(store.home), hint="try again later"
        ) from None
