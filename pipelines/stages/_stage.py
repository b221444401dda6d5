"""A stage: one step of the pipeline, as data and one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from pipelines import instructions
from pipelines.config import EngineSettings, Settings, identity_hash
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS
from pipelines.errors import UnderstudyError
from pipelines.store import Build, CheckRecord, Snapshot, Table
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
    #: Whether nothing is made from a table that failed it.
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
    #: Whether ``make`` of a single table returns it as a :class:`~pipelines.store.Table`.
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
    #: Whether each cohort of the (single) table is a snapshot of its own.
    by_cohort: bool = False
    #: Whether a build of one cohort brings the other cohorts of its first input up to date.
    all_cohorts: bool = False
    #: Whether the tables of an equal build may be used; by default they may.
    reusable: Callable[[Inputs], bool] | None = None
    #: Reason why there is nothing to build for (settings, cohort), or None.
    left_out: Callable[[Settings, str | None], str | None] | None = None
    #: Engines that a build for (settings, cohort) asks, each with whether it must answer choices.
    asks: Callable[[Settings, str | None], Iterable[tuple[EngineSettings, bool]]] | None = None
    #: Errors that say that the (optional) tables have no rows; they are withdrawn.
    absent_on: tuple[type[UnderstudyError], ...] = ()
    #: Checks of the first table that the stage reports.
    checks: tuple[Check, ...] = ()
    #: Whether no rows are fine.
    allow_empty: bool = False
    #: Whether first rows and plots of the tables are shown.
    preview: bool = True
    #: Name of the resource that one build at a time uses; None for none.
    pool: str | None = None
    #: Whether a build that failed on a temporary fault is tried again.
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
            {**self._config(inputs, settings), **instructions.identity()},
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
