"""A stage: one step of the pipeline, as data and one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from pipelines.cohorts import check_cohort_name
from pipelines.config import EngineSettings, Settings, identity_hash
from pipelines.context import PipelineContext
from pipelines.contracts import CONTRACTS
from pipelines.domains import DOMAINS
from pipelines.errors import LockedError, UnderstudyError
from pipelines.llm.answers import answers_of
from pipelines.quality import CONTRACT_CHECK
from pipelines.store import (
    OF_COHORT,
    Build,
    CheckRecord,
    Snapshot,
    Store,
    Table,
    cohort_dataset,
)
from pipelines.store.files import sha256_of


def files_table(dataset: str, files: Sequence[Path], report: Report) -> Table:
    """A list of files as a table, which they lie beside."""
    rows = pl.DataFrame(
        [{"file": f.name, "bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in files]
    )
    return Table(dataset, [rows], lambda: report.stats, ordered=False, files=lambda: files)


def tables(domain: str, *names: str) -> dict[str, str]:
    """Datasets of a domain by the short names that a stage reads them under.

    >>> tables("books", "items", "raw.taxonomy_categories")["items"]
    'books.items'
    """
    return {n: n if "." in n else f"{domain}.{n}" for n in names}


@dataclass(frozen=True)
class Inputs(Mapping[str, Snapshot]):
    """The snapshots that a build reads, by short name."""

    #: Settings and store.
    context: PipelineContext
    #: Current versions of the stage's inputs.
    snapshots: Mapping[str, Snapshot]
    #: Domain of the stage's tables; empty if they belong to none.
    domain: str
    #: Cohort that is built; None for a table without partitions.
    partition: str | None
    #: Last version of the stage's first table, of the cohort that is built; None if there is none.
    previous: Snapshot | None
    #: Folder for work in progress of this partition, which the stage makes and removes.
    scratch: Path
    #: The run that asks.
    run_id: str | None

    def __getitem__(self, name: str) -> Snapshot:
        return self.snapshots[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshots)

    def __len__(self) -> int:
        return len(self.snapshots)

    @property
    def versions(self) -> dict[str, str]:
        """Versions by dataset: the lineage of what is made, with one per cohort."""
        return {
            part.dataset: part.version
            for snapshot in self.snapshots.values()
            for part in snapshot.snapshots
        }


@dataclass
class Report:
    """Collector of a stage's metadata."""

    #: Facts for the manifest (JSON): of the table, and of the cohort that is built, which the
    #: union of cohorts shows by its name.
    stats: dict[str, Any] = field(default_factory=dict)
    cohort_stats: dict[str, Any] = field(default_factory=dict)
    #: Figures of this build that are shown with it and not stored (JSON).
    shown: dict[str, Any] = field(default_factory=dict)
    #: Markdown by title, shown with the build.
    texts: dict[str, str] = field(default_factory=dict)
    #: PNG by title, shown with the build.
    plots: dict[str, bytes] = field(default_factory=dict)
    #: Outcomes of the stage's own checks.
    checks: list[CheckRecord] = field(default_factory=list)


#: Returns the rows of a stage's table (a frame in any order, or batches in the contract's order),
#: or the tables of a stage that makes several.
Make: TypeAlias = Callable[
    [Inputs, Settings, Report], pl.DataFrame | Iterable[pl.DataFrame] | Iterable[Table]
]
#: Opens what identity and rows are both read from, for the time of the build.
Open: TypeAlias = Callable[[Inputs, Settings, Report], AbstractContextManager[Build]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a stage's table that a contract can't express."""

    #: Name of the check.
    name: str
    description: str
    #: True if nothing is made from a table that failed it.
    blocking: bool = True


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Build definition of a published table, or of several that are made together."""

    #: Names of the tables in the store; they are committed together.
    datasets: tuple[str, ...]
    #: Datasets by the short names that ``make`` reads them under.
    inputs: Mapping[str, str] = field(default_factory=dict)
    #: Settings that decide the rows: names of identity sections, or a function that returns them as
    #: JSON.
    identity: tuple[str, ...] | Callable[[Inputs, Settings], Mapping[str, Any]] = ()
    #: Settings that decide the rows, as JSON, where ``identity`` does not name sections: what a
    #: change of settings makes stale.
    settings: Callable[[Settings], Mapping[str, Any]] | None = None
    #: Raised whenever the same inputs and settings give other rows.
    code_version: str
    #: ``make(inputs, settings, report)`` returns the rows.
    make: Make | None = None
    #: True if ``make`` of a single table returns it as a :class:`~pipelines.store.Table`.
    whole: bool = False
    #: For a stage whose identity is not in ``inputs`` and ``identity``: a context manager that
    #: yields the whole :class:`~pipelines.store.Build`.
    open: Open | None = None
    #: Name of the step; by default the first table's.
    name: str = ""
    #: Further assets that must be there before: ``<group>.<name>``.
    after: tuple[str, ...] = ()
    #: Technologies that the asset is tagged with.
    kinds: tuple[str, ...] = ("python", "parquet")
    #: True if each cohort of the (single) table is a snapshot of its own.
    by_cohort: bool = False
    #: True if a build of one cohort brings the other cohorts of its first input up to date.
    all_cohorts: bool = False
    #: True if the tables of an equal build may be used; by default they may.
    reusable: Callable[[Inputs], bool] | None = None
    #: Reason why there is nothing to build for (settings, cohort), or None.
    left_out: Callable[[Settings, str | None], str | None] | None = None
    #: Engines that a build for (settings, cohort) asks, each with whether it must answer choices.
    asks: Callable[[Settings, str | None], Iterable[tuple[EngineSettings, bool]]] | None = None
    #: Errors that say that the (optional) tables have no rows; they are withdrawn.
    absent_on: tuple[type[UnderstudyError], ...] = ()
    #: Checks of the first table that the stage reports.
    checks: tuple[Check, ...] = ()
    #: True if the table may be empty.
    allow_empty: bool = False
    #: True if first rows and plots of the tables are shown.
    preview: bool = True
    #: Name of the resource that one build at a time uses; None for none.
    pool: str | None = None
    #: True if a build that failed on a temporary fault is tried again.
    retry: bool = False
    #: A single line; by default that of ``make``.
    description: str = ""
    #: Description of the tables; by default that of their contracts.
    asset_description: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.datasets[0].replace(".", "_"))
        documented = self.make or self.open
        if not self.description and documented is not None:
            text = (documented.__doc__ or "").strip().split("\n\n")[0]
            object.__setattr__(self, "description", " ".join(text.split()))

    @cached_property
    def domain(self) -> str:
        """Domain of the tables; empty if they belong to none.

        >>> Stage(datasets=("books.items",), code_version="1").domain
        'books'
        """
        first = self.datasets[0].partition(".")[0]
        return first if first in DOMAINS else ""

    def version(self, settings: Settings) -> str:
        """Code version with a hash of the settings that decide the rows.

        >>> from pipelines.config import load_settings
        >>> stage = Stage(datasets=("movies.x",), code_version="2", identity=("graph",))
        >>> one, other = (load_settings(None, {"graph": {"alpha": n}}, {}) for n in (0.5, 0.6))
        >>> stage.version(one).startswith("2+"), stage.version(one) == stage.version(other)
        (True, False)
        """
        decides = self.decided_by(settings)
        return f"{self.code_version}+{identity_hash(decides)[:8]}" if decides else self.code_version

    def decided_by(self, settings: Settings) -> Mapping[str, Any]:
        """Settings that decide the rows, as JSON."""
        if self.settings is not None:
            return self.settings(settings)
        if self.identity and not callable(self.identity):
            return settings.identity(*self.identity)
        return {}

    @contextmanager
    def opened(self, inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
        """The build of these inputs and settings."""
        if self.open is not None:
            with self.open(inputs, settings, report) as build:
                yield build
            return
        yield Build(
            self.datasets,
            lambda: self.made(inputs, settings, report),
            self.code_version,
            self._config(inputs, settings),
            inputs.versions,
            self.reusable is None or self.reusable(inputs),
        )

    def _config(self, inputs: Inputs, settings: Settings) -> Mapping[str, Any]:
        if callable(self.identity):
            return self.identity(inputs, settings)
        return settings.identity(*self.identity) if self.identity else {}

    def made(self, inputs: Inputs, settings: Settings, report: Report) -> Iterable[Table]:
        """Call ``make``; its rows as tables."""
        assert self.make is not None
        output = self.make(inputs, settings, report)
        if len(self.datasets) > 1 or self.whole:
            return output  # type: ignore[return-value]
        ordered = not isinstance(output, pl.DataFrame)
        frames: Any = output if ordered else [output]
        name = self.datasets[0]
        return [Table(name, frames, lambda: report.stats, self.allow_empty, ordered)]


@dataclass
class Built:
    """The outcome of a build."""

    #: Built stage.
    stage: Stage
    #: Current version of each table; empty if the stage was left out or its tables are absent.
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    #: True if an equal build made them before.
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
    """Return True if the current tables were made by this code with these settings."""
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
