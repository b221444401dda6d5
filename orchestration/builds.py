"""One dataset, one step: the shape that all tables written by Python share."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from orchestration.naming import asset_spec
from orchestration.results import contract_spec, materialize, reported
from orchestration.workbench import Workbench
from pipelines.domains import DOMAINS, SHARED, Domain
from pipelines.store import Snapshot, build_key
from pipelines.warehouse import MARTS

if TYPE_CHECKING:
    from pipelines.store import SnapshotWriter

__all__ = ["Build", "dataset_asset", "full_name", "ready_domains"]


def full_name(domain: str, table: str) -> str:
    """Name of a table in the store: of the domain, unless it belongs to all.

    >>> full_name("books", "items"), full_name("books", "personas")
    ('books.items', 'personas')
    """
    return table if table in SHARED else f"{domain}.{table}"


def ready_domains() -> dict[str, Domain]:
    """The domains that there are marts of."""
    return {name: d for name, d in DOMAINS.items() if f"{name}.items" in MARTS}


@dataclass(frozen=True)
class Build:
    """What decides a dataset's content, and how it is committed.

    Attributes
    ----------
    workbench, run_id
        Where and for which run.
    domain, table
        What is made: ``<domain>.<table>``.
    code_version, config
        Code and identity settings.
    tables
        Short names of the tables that it is made from.
    """

    workbench: Workbench
    run_id: str
    domain: str
    table: str
    code_version: str
    config: Mapping[str, Any]
    tables: Sequence[str]
    inputs: dict[str, Snapshot] = field(init=False)

    def __post_init__(self) -> None:
        store = self.workbench.store
        found = {table: store.current(full_name(self.domain, table)) for table in self.tables}
        object.__setattr__(self, "inputs", found)

    @property
    def dataset(self) -> str:
        """Full name of what is made."""
        return full_name(self.domain, self.table)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the inputs by dataset."""
        return {snapshot.dataset: snapshot.version for snapshot in self.inputs.values()}

    def known(self) -> Snapshot | None:
        """The snapshot that an equal build made before, made current again."""
        store = self.workbench.store
        key = build_key(self.code_version, self.config, self.versions)
        found = store.find_build(self.dataset, key)
        if found:
            store.point(self.dataset, found.version)
        return found

    def writer(self) -> AbstractContextManager["SnapshotWriter"]:
        """A writer that commits with this build's identity."""
        return self.workbench.store.write(
            self.dataset,
            code_version=self.code_version,
            config=self.config,
            inputs=self.versions,
            run_id=self.run_id,
        )

    def advance(self, stage: str) -> Callable[[int, int], None]:
        """A callback that reports (done, total) of a stage of this domain."""
        return lambda done, total: self.workbench.progress(f"{self.domain}: {stage}", done, total)

    def result(self, snapshot: Snapshot, **shown: Any) -> dg.MaterializeResult[Any]:
        """What Dagster shows of the snapshot, with the dataset's plots."""
        shown.setdefault("plots", self.workbench.plots(snapshot))
        return materialize(self.workbench.store, snapshot, **shown)


#: Makes one dataset of a domain for a run; with a cohort for a partitioned one. None: left out.
Make = Callable[..., dg.MaterializeResult[Any] | None]


def dataset_asset(
    domain: str,
    table: str,
    make: Make,
    *,
    deps: Sequence[str],
    code_version: str,
    kinds: set[str],
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
) -> dg.AssetsDefinition:
    """The asset of a dataset that ``make(workbench, domain, run_id)`` writes.

    ``deps`` are short names of tables. With partitions, ``make`` is also given the partition's
    key; where it makes nothing of one, the asset and what needs it are left out.
    """
    dataset = full_name(domain, table)

    @dg.multi_asset(
        name=f"{domain}_{table}",
        description=make.__doc__,
        specs=[
            asset_spec(
                dataset,
                deps=[full_name(domain, d) for d in deps],
                code_version=code_version,
                kinds=kinds,
                partitions_def=partitions_def,
            )
        ],
        check_specs=[contract_spec(dataset)],
        can_subset=partitions_def is not None,
    )
    def step(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[Workbench]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        keys = [context.partition_key] if partitions_def is not None else []
        made = [*reported([dataset], lambda: [make(workbench, domain, context.run_id, *keys)])]
        if made == [None]:
            context.log.warning(f"{dataset} is left out: {keys[0]} is no cohort of the {domain}")
            return
        yield from made  # type: ignore[misc]

    return step
