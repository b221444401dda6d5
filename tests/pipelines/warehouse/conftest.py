"""A store with one row in each raw table that dbt reads."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipelines.contracts import CONTRACTS
from pipelines.store import Store
from pipelines.warehouse import SOURCES

VALUES = {
    pl.Int64: 1,
    pl.String: "1",
    pl.Float64: 1.0,
    pl.Boolean: True,
    pl.List: [],
}
#: Columns that take certain values only.
CHOICES = {"reason": "not_found", "scale": "0.5-5", "gender": "F"}


@pytest.fixture
def raw_store(tmp_path: Path) -> Store:
    """Every raw table with one small row."""
    store = Store(tmp_path / "home")
    for dataset in SOURCES:
        schema = CONTRACTS[dataset].polars_schema()
        row = {name: VALUES[type(dtype)] for name, dtype in schema.items()}
        row |= {name: value for name, value in CHOICES.items() if name in row}
        store.commit(dataset, pl.DataFrame([row], schema=schema), code_version="t")
    return store
