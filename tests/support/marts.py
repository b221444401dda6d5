"""Marts of the warehouse built as runs build them, and exported into the store."""

from __future__ import annotations

from pipelines.config import Settings
from pipelines.store import Snapshot, Store
from pipelines.warehouse import mart_build

#: For dbt's environment: unit tests have a test of their own (`test_dbt_unit_tests.py`).
NO_UNIT_TESTS = {"DBT_EXCLUDE_RESOURCE_TYPES": "unit_test"}


def export_mart(
    store: Store, dataset: str, settings: Settings, *, run_id: str | None = None
) -> Snapshot:
    """The snapshot of a mart, with the outcomes of its dbt tests on record."""
    with mart_build(store, dataset, settings) as (build, checks):
        (snapshot,) = store.build(build, run_id=run_id).values()
    store.record_checks(dataset, snapshot.version, checks)
    return snapshot
