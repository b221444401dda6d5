"""Product choice sets: products in the categories of a tree (BIEL, section 4 and appendix C)."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.builds import committed
from orchestration.naming import asset_spec
from orchestration.results import absent, contract_spec, reported
from pipelines import products
from pipelines.context import PipelineContext
from pipelines.errors import NoChoiceSetError

__all__ = ["choice_set_assets"]


def choice_set_assets() -> list[dg.AssetsDefinition]:
    """The three tables of the choice sets, made together."""

    @dg.multi_asset(
        name="products_choice_sets",
        specs=[
            asset_spec(
                dataset,
                deps=list(products.INPUTS),
                code_version=products.CODE_VERSION,
                kinds={"python", "parquet"},
            )
            for dataset in products.DATASETS
        ],
        check_specs=[contract_spec(dataset) for dataset in products.DATASETS],
    )
    def choice_sets(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from reported(products.DATASETS, lambda: _choice_sets(context.run_id, workbench))

    return [choice_sets]


def _choice_sets(run_id: str, workbench: PipelineContext) -> list[dg.MaterializeResult[Any]]:
    """Draw products, match their categories to the tree, cut what is too small."""
    try:
        made = products.build_choice_sets(workbench.store, workbench.settings, run_id=run_id)
    except NoChoiceSetError as error:
        return [absent(dataset, str(error)) for dataset in products.DATASETS]
    return [
        committed(workbench, snapshot, reused=snapshot.manifest.run_id != run_id)
        for snapshot in made.values()
    ]
