"""Synthetic users: cohorts as partitions, and their vectors."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.assets import COHORTS
from orchestration.builds import committed
from orchestration.naming import asset_spec
from orchestration.results import contract_spec, reported
from pipelines import personas
from pipelines.context import PipelineContext
from pipelines.sources import ingest
from pipelines.store import Snapshot
from pipelines.worlds import prepare_world

__all__ = ["persona_assets"]


@dg.multi_asset(
    name="write_personas",
    specs=[
        asset_spec(
            "personas",
            code_version=personas.CODE_VERSION,
            kinds={"python", "parquet"},
            partitions_def=COHORTS,
        )
    ],
    check_specs=[contract_spec("personas")],
)
def personas_asset(
    context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Generate one cohort and put it beside the others in a new version of the table."""
    cohort, run_id = context.partition_key, context.run_id
    yield from reported(["personas"], lambda: [_personas(cohort, run_id, workbench)])


def _personas(cohort: str, run_id: str, workbench: PipelineContext) -> dg.MaterializeResult[Any]:
    store, settings = workbench.store, workbench.settings
    written = personas.write_cohort(
        store,
        settings,
        cohort,
        code_version=personas.CODE_VERSION,
        run_id=run_id,
        progress=lambda done, total: workbench.progress(f"personas of {cohort}", done, total),
        raw=persona_files(workbench, run_id) if cohort.startswith(personas.IMPORTED) else None,
    )
    snapshot = written.snapshot
    return committed(
        workbench,
        snapshot,
        reused=snapshot.manifest.run_id != run_id,
        metadata={
            "cohort": cohort,
            "personas_in_cohort": written.personas,
            "writing": dg.MetadataValue.json(written.facts),
        },
    )


def persona_files(workbench: PipelineContext, run_id: str | None) -> Snapshot | None:
    """The world's persona files, read now; None if there are none.

    A dependency on the raw asset would leave out every cohort where there are no files.
    """
    world = prepare_world(workbench.settings)
    if not world.has("persona_files"):
        return None
    made = ingest("persona_files", world, workbench.store, workbench.settings, run_id=run_id)
    return made["raw.persona_files"]


persona_assets = [personas_asset]
