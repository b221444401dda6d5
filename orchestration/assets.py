"""Assets of stages: one factory for every table that a stage builds."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.naming import asset_key, asset_spec, optional_group, step_tags
from orchestration.results import (
    absent,
    check_result,
    contract_spec,
    materialize,
    reported,
    transient_retry,
)
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS
from pipelines.personas import IMPORTED
from pipelines.quality import figures_for, plots_for
from pipelines.stages import STAGES, Built, Stage, build

__all__ = [
    "COHORTS",
    "Cohorts",
    "asset_options",
    "automation",
    "check_automation",
    "run_stage",
    "stage_asset",
]


class Cohorts(dg.DynamicPartitionsDefinition):
    """Cohorts of a domain: those that an instance lists, and two in any instance.

    ``dagster job execute`` and ``dagster asset materialize`` on a fresh home have an empty one. The
    imported cohort has personas alone: listed, it would be missing in every other table.
    """

    @property
    def standing(self) -> str:
        """Name of the cohort that every home has."""
        return DOMAINS[str(self.name).removesuffix("_cohorts")].cohort("default")

    def has_partition_key(self, partition_key: str, *arguments: Any, **named: Any) -> bool:
        """True if there is a cohort of this name."""
        return partition_key in {self.standing, IMPORTED} or super().has_partition_key(
            partition_key, *arguments, **named
        )


#: One partition per cohort of a domain: `default`, a name given by hand, or a week such as
#: `2026-w47` that the schedule adds. Dynamic, because both kinds must live side by side. Each
#: domain has its own: a cohort of books is not missing from the films.
COHORTS = {name: Cohorts(name=f"{name}_cohorts") for name in DOMAINS}

#: Tables with a partition per cohort.
BY_COHORT = {d for stage in STAGES if stage.by_cohort for d in stage.datasets}


def stage_asset(stage: Stage, settings: Settings) -> dg.AssetsDefinition:
    """The asset (or the assets made together) of a stage's tables."""

    @dg.multi_asset(**asset_options(stage, settings))
    def step(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(stage, context, workbench)

    return step


def asset_options(stage: Stage, settings: Settings) -> dict[str, Any]:
    """A stage as the arguments of ``dg.multi_asset``; settings are part of the code version."""
    partitions_def = COHORTS[stage.domain] if stage.by_cohort else None
    upstream = [*stage.inputs.values(), *stage.after]
    return {
        "name": stage.name,
        "description": stage.description,
        "specs": [
            asset_spec(
                dataset,
                deps=upstream,
                code_version=stage.version(settings),
                kinds=set(stage.kinds),
                partitions_def=partitions_def,
                description=stage.asset_description,
                # Automation covers only tables that a release needs.
                automation_condition=automation(
                    settings, all_cohorts=not stage.by_cohort and not BY_COHORT.isdisjoint(upstream)
                )
                if optional_group(dataset) is None
                else None,
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
        # A backfill of several cohorts is one run, whose steps write them one after the other.
        "backfill_policy": dg.BackfillPolicy.single_run() if stage.by_cohort else None,
        "op_tags": step_tags(stage.name),
    }


def automation(
    settings: Settings, *, all_cohorts: bool = False
) -> dg.AutomationCondition[Any] | None:
    """The condition under which an asset is made by itself; None unless it is switched on.

    Dagster's ``eager``, and new code or settings too. What is made of ``all_cohorts`` waits until
    none of its tables is about to be made again, or a release would be tried between a table of
    items and the scores of them. It does not wait for cohorts that nobody has made.
    """
    if not settings.runtime.automation:
        return None
    of = dg.AutomationCondition
    changed: Any = of.newly_missing() | of.code_version_changed()
    condition = of.eager().replace("newly_missing", changed) & of.all_deps_blocking_checks_passed()
    if all_cohorts:
        never = of.missing() & of.any_deps_missing()
        outdated = (changed | of.any_deps_updated()).since_last_handled() & ~never
        absent = of.any_deps_missing().ignore(dg.AssetSelection.assets(*map(asset_key, BY_COHORT)))
        condition = condition.replace("any_deps_missing", absent) & ~of.any_deps_match(outdated)
    return condition


def check_automation(settings: Settings) -> dg.AutomationCondition[Any] | None:
    """The condition under which a check of a whole table runs by itself.

    An automatic run has no checks of other steps but those that are due on their own. A table is
    checked although nobody has made one of its cohorts.
    """
    if not settings.runtime.automation:
        return None
    of = dg.AutomationCondition
    return of.eager().without(~of.any_deps_missing())


def run_stage(
    stage: Stage, context: dg.AssetExecutionContext, workbench: PipelineContext
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Build a stage in a step of Dagster."""
    cohorts: list[str | None] = list(context.partition_keys) if stage.by_cohort else [None]

    def make() -> list[dg.MaterializeResult[Any]]:
        builds = [
            build(stage, workbench, cohort=cohort, run_id=context.run.run_id) for cohort in cohorts
        ]
        # The table is the union of all cohorts: the last is that of all of these.
        built = next((build for build in reversed(builds) if build.snapshots), builds[-1])
        if built.reason is not None and not built.absent:
            context.log.warning(f"{stage.datasets[0]} is left out: {built.reason}")
        cohort_metadata = {"cohort": ", ".join(map(str, cohorts))} if stage.by_cohort else {}
        results = results_of(built, workbench, **cohort_metadata)
        # Of a run with other settings than the code location's: it is stale against those.
        tags = {"dagster/code_version": stage.version(workbench.settings)}
        return [result._replace(tags=tags) for result in results]

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
                **figures_for(dataset, snapshot, context.settings),
                **report.shown,
                **{name: dg.MetadataValue.md(text) for name, text in report.texts.items()},
            },
            plots={**plots, **report.plots},
            preview=stage.preview,
        )
        if dataset == stage.datasets[0] and stage.checks:
            records = context.store.checks(dataset, snapshot.version)
            stage_results = [check_result(dataset, records[check.name]) for check in stage.checks]
            result = result._replace(check_results=[*(result.check_results or []), *stage_results])
        results.append(result)
    return results
