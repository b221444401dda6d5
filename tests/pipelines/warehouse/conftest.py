"""A store with one row in each raw table that dbt reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.marts import commit_raw_rows

from pipelines.store import Store


@pytest.fixture
def raw_store(tmp_path: Path) -> Store:
    """Every raw table with one small row."""
    store = Store(tmp_path / "home")
    commit_raw_rows(store)
    return store
