"""The published tables as a list of stages, in the order of the data.

The modules of this package are the steps of the pipeline; their numbers give the order. A stage
is data and one function, and is built without Dagster:

    context = PipelineContext({"runtime": {"home": "home"}})
    build(stage_of("movies.graph_triples"), context)

>>> stage_of("books.item_similarity").inputs["graph_triples"]
'books.graph_triples'
"""

from importlib import import_module
from pkgutil import iter_modules

from pipelines.context import PipelineContext
from pipelines.errors import StoreError
from pipelines.stages._estimate import Expected, expect_calls
from pipelines.stages._stage import (
    Built,
    Check,
    Inputs,
    Report,
    Stage,
    build,
    check_models,
    contract_record,
    tables,
)
from pipelines.stages.s80_reports import case_stage
from pipelines.stages.s90_releases import check, publish, release_name

#: Every stage of the numbered modules of this package, each after those that it reads from.
STAGES: list[Stage] = [
    stage
    for name in sorted(module.name for module in iter_modules(__path__))
    if name[1:3].isdigit()
    for stage in getattr(import_module(f"{__name__}.{name}"), "STAGES", ())
]

__all__ = [
    "STAGES",
    "Built",
    "Check",
    "Expected",
    "Inputs",
    "PipelineContext",
    "Report",
    "Stage",
    "build",
    "case_stage",
    "check",
    "check_models",
    "contract_record",
    "expect_calls",
    "publish",
    "release_name",
    "stage_of",
    "tables",
]


def stage_of(dataset: str) -> Stage:
    """The stage that makes a dataset.

    Raises :class:`StoreError` if there is none.
    """
    for stage in STAGES:
        if dataset in stage.datasets:
            return stage
    raise StoreError("no stage makes this dataset", where=dataset, hint="see pipelines/stages")
