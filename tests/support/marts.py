"""Raw tables of one row, and marts of the warehouse exported into the store."""

from __future__ import annotations

import polars as pl

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.store import Snapshot, Store
from pipelines.warehouse import SOURCES, mart_build

#: For dbt's environment: unit tests have a test of their own (`test_dbt_unit_tests.py`).
NO_UNIT_TESTS = {"DBT_EXCLUDE_RESOURCE_TYPES": "unit_test"}

_VALUES = {pl.Int64: 1, pl.String: "1", pl.Float64: 1.0, pl.Boolean: True, pl.List: []}
#: Columns that take certain values only.
_CHOICES = {"reason": "not_found", "scale": "0.5-5", "gender": "F"}


def commit_raw_rows(store: Store) -> None:
    """One small row in each raw table that dbt reads."""
    for dataset in SOURCES:
        schema = CONTRACTS[dataset].polars_schema()
        row = {name: _VALUES[type(dtype)] for name, dtype in schema.items()}
        row |= {name: value for name, value in _CHOICES.items() if name in row}
        store.commit(dataset, pl.DataFrame([row], schema=schema), code_version="t")


def export_mart(
    store: Store, dataset: str, settings: Settings, *, run_id: str | None = None
) -> Snapshot:
    """The snapshot of a mart, with the outcomes of its dbt tests on record."""
    with mart_build(store, dataset, settings) as (build, checks):
        (snapshot,) = store.build(build, run_id=run_id).values()
    store.record_checks(dataset, snapshot.version, checks)
    return snapshot
