"""The published tables as a list of stages, in the order of the data.

The modules of this package are the steps of the pipeline; their numbers give the order. A stage
is data and one function, and is built without Dagster:

    context = PipelineContext({"runtime": {"home": "home"}})
    build(stage_of("movies.graph_triples"), context)

>>> stage_of("books.item_similarity").inputs["graph_triples"]
'books.graph_triples'
"""

from pipelines.context import PipelineContext
from pipelines.errors import StoreError
from pipelines.stages import (
    s10_sources,
    s20_marts,
    s30_choice_sets,
    s35_matching,
    s40_personas,
    s50_embeddings,
    s60_graph,
    s70_scores,
    s80_reports,
    s85_ablations,
)
from pipelines.stages._builder import Built, build, contract_record
from pipelines.stages._stage import Check, Inputs, Report, Stage, tables
from pipelines.stages.s85_ablations import case_stage
from pipelines.stages.s90_releases import check, publish, release_name

#: Every stage, each after those that it reads from.
STAGES: list[Stage] = [
    *s10_sources.STAGES,
    *s20_marts.STAGES,
    *s30_choice_sets.STAGES,
    *s35_matching.STAGES,
    *s40_personas.STAGES,
    *s50_embeddings.STAGES,
    *s60_graph.STAGES,
    *s70_scores.STAGES,
    *s80_reports.STAGES,
    *s85_ablations.STAGES,
]

__all__ = [
    "STAGES",
    "Built",
    "Check",
    "Inputs",
    "PipelineContext",
    "Report",
    "Stage",
    "build",
    "case_stage",
    "check",
    "contract_record",
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
