"""Raw tables of one row, and marts of the warehouse exported into the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.store import Snapshot, Store
from pipelines.warehouse import SOURCES, dbt_environment, dbt_vars, mart_build

PROJECT = Path(__file__).resolve().parents[2] / "dbt"

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


def dbt(
    settings: Settings, command: str, *words: str, unit_tests: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the dbt program on the project, as the orchestration does it.

    Unit tests are left out by default: they have a test of their own (`test_dbt_unit_tests.py`).
    """
    program = [str(Path(sys.executable).with_name("dbt")), command, *words]
    project = ("--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT))
    left_out = {} if unit_tests else {"DBT_EXCLUDE_RESOURCE_TYPES": "unit_test"}
    return subprocess.run(
        [*program, *project, "--vars", json.dumps(dbt_vars(settings))],
        env={**os.environ, **dbt_environment(settings), **left_out},
        capture_output=True,
        text=True,
        check=False,
    )


def export_mart(
    store: Store, dataset: str, settings: Settings, *, run_id: str | None = None
) -> Snapshot:
    """The snapshot of a mart, with the outcomes of its dbt tests on record."""
    with mart_build(store, dataset, settings) as (build, checks):
        (snapshot,) = store.build(build, run_id=run_id).values()
    store.record_checks(dataset, snapshot.version, checks)
    return snapshot
