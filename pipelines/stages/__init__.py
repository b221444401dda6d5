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
from pipelines.stages import s50_embeddings, s60_graph, s80_reports
from pipelines.stages._builder import Built, build, contract_record
from pipelines.stages._stage import Check, Inputs, Report, Stage, tables

#: Every stage, each after those that it reads from.
STAGES: list[Stage] = [*s50_embeddings.STAGES, *s60_graph.STAGES, *s80_reports.STAGES]

__all__ = [
    "STAGES",
    "Built",
    "Check",
    "Inputs",
    "PipelineContext",
    "Report",
    "Stage",
    "build",
    "contract_record",
    "stage_of",
    "tables",
]


def stage_of(dataset: str) -> Stage:
    """The stage that makes a dataset.

    Raises
    ------
    StoreError
        If there is none.
    """
    for stage in STAGES:
        if dataset in stage.datasets:
            return stage
    raise StoreError("no stage makes this dataset", where=dataset, hint="see pipelines/stages")
