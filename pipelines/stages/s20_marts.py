"""Published tables of a domain from the marts that dbt built in the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from pipelines import warehouse
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.progress import advance
from pipelines.stages._stage import Inputs, Report, Stage
from pipelines.store import Build

__all__ = ["DUCKDB_POOL", "STAGES", "held_warehouse"]

#: Longest wait for another process that holds the warehouse (seconds): dbt on the largest
#: worlds takes many minutes, and the lock of a dead process is free.
LOCK_WAIT = 3600.0
#: A DuckDB file has one writing process: everything that touches it runs in a pool of one.
DUCKDB_POOL = "duckdb"


def held_warehouse(context: PipelineContext) -> AbstractContextManager[None]:
    """The warehouse's lock; reports which process it waits for."""

    def waiting(holder: str) -> None:
        advance(f"waiting for the warehouse ({holder})", 0, None)

    return warehouse.warehouse_lock(context.store.home, timeout=LOCK_WAIT, on_wait=waiting)


def _mart(dataset: str, model: str) -> Stage:
    @contextmanager
    def mart(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
        """Write a mart into the store, if its tests passed on exactly what is in the warehouse."""
        context = inputs.context
        with (
            held_warehouse(context),
            warehouse.mart_build(context.store, dataset, settings) as (build, checks),
        ):
            report.checks += checks
            yield build

    return Stage(
        datasets=(dataset,),
        code_version=warehouse.CODE_VERSION,
        open=mart,
        after=(f"marts.{model}",),
        kinds=("duckdb", "parquet"),
        pool=DUCKDB_POOL,
        retry=True,
    )


STAGES = [_mart(dataset, model) for dataset, model in sorted(warehouse.MARTS.items())]
