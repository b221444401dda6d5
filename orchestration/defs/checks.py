"""great-expectations over whole published datasets, one check step per dataset."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator

import dagster as dg

from orchestration.naming import asset_key
from orchestration.results import check_result, not_applicable, reported
from pipelines import quality
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS
from pipelines.store import CheckRecord

__all__ = ["dataset_checks"]


def _checks_of(dataset: str) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"expect_{dataset.replace('.', '_')}",
        specs=[
            dg.AssetCheckSpec(
                spec.name,
                asset=asset_key(dataset),
                blocking=spec.severity == "error",
                description=spec.because,
            )
            for spec in quality.SUITES[dataset]
        ],
    )
    def check(workbench: dg.ResourceParam[PipelineContext]) -> Iterator[dg.AssetCheckResult]:
        yield from reported([], lambda: _results(dataset, workbench))

    return check


def _results(dataset: str, workbench: PipelineContext) -> list[dg.AssetCheckResult]:
    domain = DOMAINS.get(dataset.partition(".")[0])
    if domain and dataset in domain.optional and not workbench.store.has(dataset):
        return [
            not_applicable(dataset, spec.name, "there is no such table", spec.severity)
            for spec in quality.SUITES[dataset]
        ]
    return [check_result(dataset, record) for record in _run(dataset, workbench)]


def _run(dataset: str, workbench: PipelineContext) -> list[CheckRecord]:
    store, settings = workbench.store, workbench.settings
    snapshot = store.current(dataset)
    # Personas can be made before any world was taken in; then there is nothing to drift from.
    previous = (
        quality.previous_snapshot(store, dataset, settings.release.name)
        if store.has("raw.world_files")
        else None
    )
    records = quality.check_dataset(
        dataset,
        snapshot,
        store=store,
        settings=settings,
        previous=previous,
    )
    store.record_checks(dataset, snapshot.version, records)
    return records


def dataset_checks() -> list[dg.AssetChecksDefinition]:
    """One check definition for every dataset that has a suite."""
    return [_checks_of(dataset) for dataset in quality.SUITES]
