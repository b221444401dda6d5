"""Original files become raw snapshots."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.builds import committed
from orchestration.naming import asset_spec
from orchestration.results import contract_spec, reported, transient_retry
from pipelines import __version__
from pipelines.context import PipelineContext
from pipelines.sources import SOURCES, World, ingest, inventory, open_source
from pipelines.worlds import prepare_world

__all__ = ["raw_assets", "world_files"]

_WORLD = "raw.world_files"


@dg.multi_asset(
    name="world_files",
    specs=[
        asset_spec(
            _WORLD,
            code_version=__version__,
            kinds={"file", "parquet"},
            description="The original files this run starts from: generated (sample world), "
            "given (a folder) or downloaded and verified; with checksums and terms.",
        )
    ],
    check_specs=[contract_spec(_WORLD)],
    # No retries of the step: the download has its own, which go on where it stopped.
)
def world_files(
    context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Find, generate or download the world's files and list them."""
    yield from reported([_WORLD], lambda: [_world_files(context.run_id, workbench)])


def _world_files(run_id: str, workbench: PipelineContext) -> dg.MaterializeResult[Any]:
    world = prepare_world(workbench.settings, progress=workbench.progress)
    snapshot = inventory(
        world, workbench.store, workbench.settings, run_id=run_id, progress=workbench.progress
    )
    return committed(
        workbench, snapshot, plots={}, metadata={"world": world.name, "folder": str(world.folder)}
    )


def _source_asset(name: str) -> dg.AssetsDefinition:
    source = SOURCES[name]
    upstream: list[Any] = [_WORLD]
    upstream += source.needs

    @dg.multi_asset(
        name=f"ingest_{name}",
        specs=[
            asset_spec(
                dataset, deps=upstream, code_version=source.code_version, kinds={name, "parquet"}
            )
            for dataset in source.datasets
        ],
        check_specs=[contract_spec(dataset) for dataset in source.datasets],
        # Outputs of a source without files here are left out, and with them all that needs them.
        can_subset=True,
        retry_policy=transient_retry,
        description=f"Read the original files of {name}. Terms: {source.licence.terms}",
    )
    def asset(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        world = prepare_world(workbench.settings)
        if not open_source(name, workbench.settings).present(world.folder):
            context.log.warning(f"{name} is left out: no files of it in {world.folder}")
            return
        wanted = context.selected_asset_keys
        for result in reported(
            source.datasets, lambda: _ingest(name, world, context.run_id, workbench)
        ):
            if result.asset_key in wanted:
                yield result

    return asset


def _ingest(
    name: str, world: World, run_id: str, workbench: PipelineContext
) -> list[dg.MaterializeResult[Any]]:
    snapshots = ingest(
        name,
        world,
        workbench.store,
        workbench.settings,
        run_id=run_id,
        progress=workbench.progress,
    )
    licence = SOURCES[name].licence
    return [
        committed(
            workbench,
            snapshot,
            plots={},
            reused=snapshot.manifest.run_id != run_id,
            metadata={"licence": f"{licence.name}: {licence.url}", "terms": licence.terms},
        )
        for snapshot in snapshots.values()
    ]


raw_assets = [
    world_files,
    *(_source_asset(name) for name in SOURCES),
]
