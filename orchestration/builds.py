"""Assets that are not stages yet."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dagster as dg

from orchestration.naming import asset_spec
from orchestration.results import contract_spec, materialize, reported
from pipelines.context import PipelineContext
from pipelines.domains import SHARED
from pipelines.quality import plots_for
from pipelines.stages import contract_record
from pipelines.store import Snapshot

__all__ = ["committed", "dataset_asset", "full_name"]


def full_name(domain: str, table: str) -> str:
    """Name of a table in the store: of the domain, unless it belongs to all.

    >>> full_name("books", "items"), full_name("books", "personas")
    ('books.items', 'personas')
    """
    return table if table in SHARED else f"{domain}.{table}"


def committed(
    context: PipelineContext, snapshot: Snapshot, **shown: Any
) -> dg.MaterializeResult[Any]:
    """Record the contract check of a snapshot; what Dagster shows of it, with its plots."""
    store, settings = context.store, context.settings
    store.record_checks(snapshot.dataset, snapshot.version, [contract_record(snapshot)])
    shown.setdefault("plots", plots_for(snapshot.dataset, snapshot, store=store, settings=settings))
    return materialize(snapshot, **shown)


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
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        keys = [context.partition_key] if partitions_def is not None else []
        made = [*reported([dataset], lambda: [make(workbench, domain, context.run_id, *keys)])]
        if made == [None]:
            context.log.warning(f"{dataset} is left out: {keys[0]} is no cohort of the {domain}")
            return
        yield from made  # type: ignore[misc]

    return step
