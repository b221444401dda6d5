"""Assets of stages: one factory for every table that a stage builds."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.naming import asset_key, asset_spec
from orchestration.results import (
    absent,
    check_result,
    contract_spec,
    materialize,
    reported,
    transient_retry,
)
from pipelines.context import PipelineContext
from pipelines.quality import plots_for
from pipelines.stages import Built, Stage, build

__all__ = ["COHORTS", "asset_options", "run_stage", "stage_asset"]

#: One partition per cohort: `default`, a name given by hand, or a week such as `2026-w47`
#: that the schedule adds. Dynamic, because both kinds must live side by side.
COHORTS = dg.DynamicPartitionsDefinition(name="cohort")


def stage_asset(stage: Stage) -> dg.AssetsDefinition:
    """The asset (or the assets made together) of a stage's tables."""

    @dg.multi_asset(**asset_options(stage))
    def step(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(stage, context, workbench)

    return step


def asset_options(stage: Stage) -> dict[str, Any]:
    """A stage as the arguments of ``dg.multi_asset``."""
    partitions_def = COHORTS if stage.by_cohort else None
    upstream = [*stage.inputs.values(), *stage.after]
    return {
        "name": stage.name,
        "description": stage.description,
        "specs": [
            asset_spec(
                dataset,
                deps=upstream,
                code_version=stage.code_version,
                kinds=set(stage.kinds),
                partitions_def=partitions_def,
                description=stage.asset_description,
            )
            for dataset in stage.datasets
        ],
        "check_specs": [
            *map(contract_spec, stage.datasets),
            *(
                dg.AssetCheckSpec(
                    check.name,
                    asset=asset_key(stage.datasets[0]),
                    blocking=check.blocking,
                    description=check.description,
                )
                for check in stage.checks
            ),
        ],
        # Skipping a stage skips its downstream steps.
        "can_subset": stage.left_out is not None,
        "pool": stage.pool,
        "retry_policy": transient_retry if stage.retry else None,
    }


def run_stage(
    stage: Stage, context: dg.AssetExecutionContext, workbench: PipelineContext
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Build a stage in a step of Dagster."""
    cohort = context.partition_key if stage.by_cohort else None

    def make() -> list[dg.MaterializeResult[Any]]:
        built = build(stage, workbench, cohort=cohort, run_id=context.run.run_id)
        if built.reason is not None and not built.absent:
            context.log.warning(f"{stage.datasets[0]} is left out: {built.reason}")
        return results_of(built, workbench, **({"cohort": cohort} if cohort else {}))

    for result in reported(stage.datasets, make):
        if result.asset_key in context.selected_asset_keys:
            yield result


def results_of(
    built: Built, context: PipelineContext, **metadata: Any
) -> list[dg.MaterializeResult[Any]]:
    """Materialize results of a build, one per table; none if the stage was left out."""
    stage, report = built.stage, built.report
    if built.absent:
        return [absent(dataset, str(built.reason)) for dataset in stage.datasets]
    results = []
    for dataset, snapshot in built.snapshots.items():
        plots = {}
        if stage.preview:
            plots = plots_for(dataset, snapshot, store=context.store, settings=context.settings)
        result = materialize(
            snapshot,
            reused=built.reused,
            metadata={
                **metadata,
                **report.shown,
                **{name: dg.MetadataValue.md(text) for name, text in report.texts.items()},
            },
            plots={**plots, **report.plots},
            preview=stage.preview,
        )
        if dataset == stage.datasets[0] and stage.checks:
            records = context.store.checks(dataset, snapshot.version)
            own = [check_result(dataset, records[check.name]) for check in stage.checks]
            result = result._replace(check_results=[*(result.check_results or []), *own])
        results.append(result)
    return results
