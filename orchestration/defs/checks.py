"""great-expectations over whole published datasets, one check step per dataset."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterable, Iterator

import dagster as dg

from orchestration.assets import check_automation
from orchestration.naming import SHARED, asset_key, domain_of
from orchestration.resources import step_tags
from orchestration.results import check_result, not_applicable, reported
from pipelines import quality
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.stages import check

__all__ = ["dataset_checks"]


def _checks_of(dataset: str, settings: Settings) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"expect_{dataset.replace('.', '_')}",
        op_tags=step_tags(f"expect_{dataset.replace('.', '_')}"),
        specs=[
            dg.AssetCheckSpec(
                spec.name,
                asset=asset_key(dataset),
                blocking=spec.severity == "error",
                description=f"{spec.because[0].upper()}{spec.because[1:]}.",
                automation_condition=check_automation(settings),
            )
            for spec in quality.SUITES[dataset]
        ],
    )
    def step(workbench: dg.ResourceParam[PipelineContext]) -> Iterator[dg.AssetCheckResult]:
        yield from reported([], lambda: _results(dataset, workbench))

    return step


def _results(dataset: str, workbench: PipelineContext) -> list[dg.AssetCheckResult]:
    records = check(workbench, dataset)
    if records is None:
        return [
            not_applicable(dataset, spec.name, "no such table", spec.severity)
            for spec in quality.SUITES[dataset]
        ]
    return [check_result(dataset, record) for record in records]


def dataset_checks(settings: Settings, domains: Iterable[str]) -> list[dg.AssetChecksDefinition]:
    """Check definitions, for every dataset of these domains that has a suite."""
    chosen = {*domains, SHARED}
    return [_checks_of(name, settings) for name in quality.SUITES if domain_of(name) in chosen]
