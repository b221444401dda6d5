"""Declaration of a check on a whole dataset, and the tables it is checked against.

A suite is data: each :class:`Expectation` names a *view* (a small frame computed from the
snapshot in bounded memory), the great-expectations class that judges it, and its bounds. Bounds
that depend on settings or on the data are :class:`Setting` and :class:`Fact`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from pipelines.config import Settings
    from pipelines.store import Snapshot, Store


@dataclass(frozen=True, slots=True)
class PersonaTargets:
    """Distributions that personas are sampled from."""

    #: Bands as (first age, last age, share), both ages included (years); shares sum to 1.
    ages: tuple[tuple[int, int, float], ...]
    #: Share per gender; they sum to 1.
    genders: Mapping[str, float]
    #: Per domain and genre: the share of opinions (liked or disliked) that are favourable, of
    #: adults (children are not given a liking for some genres).
    favourable: Mapping[str, Mapping[str, float]]


@cache
def persona_targets(min_age: int = 18) -> PersonaTargets:
    """Targets from the packaged census and preference lists, of people from an age (years) on.

    Raises ConfigError if the packaged bands leave a gap.
    """
    import numpy as np

    from pipelines.domains import DOMAINS
    from pipelines.personas import DOMAIN_NAMES, load_lists

    lists = load_lists()
    by_domain = {name: load_lists(name) for name in DOMAINS if name in DOMAIN_NAMES}
    ages = tuple(
        (int(low), int(high), float(share))
        for low, high, share in zip(*lists.ages_from(min_age), strict=True)
    )
    male = 0.0
    for low, high, share in ages:
        years = np.arange(low, high + 1)
        # Gender bands are wider than age bands and their edges need not meet.
        male += share * float(lists.male_shares[lists.gender_bands.of(years)].mean())
    return PersonaTargets(
        ages=ages,
        genders={"female": 1.0 - male, "male": male},
        favourable={
            name: dict(zip(domain_lists.genres, map(float, domain_lists.genre_shares), strict=True))
            for name, domain_lists in by_domain.items()
        },
    )


Severity = Literal["error", "warn"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A bound taken from the settings tree, such as ``quality.max_drift``."""

    path: str

    def resolve(self, settings: Settings) -> Any:
        """The value of the setting."""
        value: Any = settings
        for part in self.path.split("."):
            value = getattr(value, part)
        return value


@dataclass(frozen=True, slots=True)
class Fact:
    """A bound computed by the view, such as a finite-sample allowance."""

    name: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """A check: an expectation of a view."""

    #: Name of the check, unique within its dataset; letters, digits and underscores.
    name: str
    #: ``error`` stops a release, ``warn`` is shown.
    severity: Severity
    #: Name of the view it reads.
    view: str
    #: Name of a great-expectations expectation class.
    kind: str
    #: Its arguments; :class:`Setting` and :class:`Fact` are filled in when it is run.
    arguments: Mapping[str, Any]
    #: Measurement and reason, in one sentence for the page that shows the check.
    because: str
    #: Counted quantity, and the number from which the check applies: ``rows`` of the table, a fact
    #: of the view, or a column of the view (then for each of its rows). None: always.
    applies_from: tuple[str, int] | None = None
    #: What to do if it does not pass, for its message.
    remedy: str | None = None

    def columns(self) -> list[str]:
        """Columns of the view that the expectation reads."""
        named = [self.arguments.get(k) for k in ("column", "column_A", "column_B")]
        return [str(c) for c in (*named, *self.arguments.get("column_list", ())) if c]


@dataclass(frozen=True, slots=True)
class View:
    """A small frame made for checks, or the reason why there is none."""

    #: The rows to judge; checked columns may hold no nulls (a null fails the check).
    frame: pl.DataFrame | None
    #: Numbers computed with it: bounds, and what the page should show.
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: Rows to show when a check on it fails, if the frame itself is only a summary.
    examples: pl.DataFrame | None = None
    #: Further entries of the details of its checks, whether they pass or not.
    noted: Mapping[str, Any] = field(default_factory=dict)
    #: Why its checks do not apply.
    skipped: str | None = None
    #: Why it could not be made although it must be (its checks fail, saying so).
    problem: str | None = None

    @classmethod
    def of(cls, rows: pl.LazyFrame) -> View:
        """The rows of a query, collected in bounded memory."""
        return cls(rows.collect(engine="streaming"))

    @classmethod
    def skip(cls, reason: str) -> View:
        """A view whose checks do not apply."""
        return cls(None, skipped=reason)

    @classmethod
    def missing(cls, reason: str) -> View:
        """A view that could not be made."""
        return cls(None, problem=reason)


class MissingTableError(LookupError):
    """A table that a view needs has no snapshot."""


@dataclass(frozen=True)
class Evidence:
    """Tables and settings that the views of one check run read."""

    #: The table under check.
    dataset: str
    snapshot: Snapshot
    store: Store
    settings: Settings
    #: Its snapshot in the last release of the same world, if any.
    previous: Snapshot | None = None
    #: Snapshots of related tables by dataset name; they win over the store's current ones.
    context: Mapping[str, Snapshot] = field(default_factory=dict)
    #: Shares that personas must follow; default: the packaged ones.
    persona_targets: PersonaTargets | None = None
    _used: dict[str, str] = field(default_factory=dict, repr=False)

    def related(self, dataset: str) -> Snapshot | None:
        """The snapshot of another table to compare with: the given one, else the current one.

        A release pins the current versions, so that is what must fit together. (The inputs in
        the manifest are those of the build that first made this content; a later build may
        have come to it from others.)
        """
        snapshot = self.context.get(dataset)
        if snapshot is None and self.store.has(dataset):
            snapshot = self.store.current(dataset)
        if snapshot is not None:
            self._used[dataset] = snapshot.version
        return snapshot

    @property
    def domain(self) -> str:
        """The domain of the table under check."""
        return self.dataset.rpartition(".")[0]

    def sibling_name(self, table: str) -> str:
        """Full name of another table of the same domain."""
        return f"{self.domain}.{table}"

    def is_table(self, table: str) -> bool:
        """Return True if the domain has a table of this name."""
        from pipelines.contracts import CONTRACTS

        return self.sibling_name(table) in CONTRACTS

    def sibling(self, table: str) -> Snapshot | None:
        """Like :meth:`related`, for another table of the same domain."""
        return self.related(self.sibling_name(table))

    def needed(self, dataset: str) -> Snapshot:
        """Like :meth:`related`; without it the view can't be made, and its checks fail.

        Raises :class:`MissingTableError` if there is none.
        """
        snapshot = self.related(dataset)
        if snapshot is None:
            raise MissingTableError(f"there is no snapshot of {dataset} to compare with")
        return snapshot

    def compared_with(self) -> dict[str, str]:
        """Versions of the related tables that were looked at since the last call."""
        used = dict(self._used)
        self._used.clear()
        return used

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """A database in memory for the queries of this run, with `domain()` and `noted()`."""
        import duckdb

        # What does not fit goes to the system's folder for temporary files, not to the current one.
        folder = Path(tempfile.gettempdir(), "understudy-checks")
        connection = duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(folder)})
        noted = json.dumps(self.snapshot.manifest.stats).replace("'", "''")
        connection.execute(f"CREATE MACRO domain() AS '{self.domain}'")
        connection.execute(f"CREATE MACRO noted() AS '{noted}'::JSON")
        return connection

    @cached_property
    def targets(self) -> PersonaTargets:
        """The shares that personas are sampled from."""
        return self.persona_targets or persona_targets(self.settings.personas.min_age)

    def targets_of(self, cohort: str) -> PersonaTargets:
        """The shares that a cohort is sampled from: those of people from its minimum age on."""
        config = self.snapshot.manifest.config.get("cohorts", {}).get(cohort)
        if self.persona_targets or config is None:
            return self.targets
        # Older cohorts state no minimum age: they have children.
        return persona_targets(config.get("min_age", 0))


ViewFunction = Callable[[Evidence], View]

#: Views that are functions, by table and name; all others are queries of ``suites.yaml``.
VIEWS: dict[tuple[str, str], ViewFunction] = {}


def view(table: str, name: str) -> Callable[[ViewFunction], ViewFunction]:
    """Register a view of a table."""

    def register(function: ViewFunction) -> ViewFunction:
        VIEWS[table, name] = function
        return function

    return register
