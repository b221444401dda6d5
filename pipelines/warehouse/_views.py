"""The warehouse for people: first rows of models, and the rows that made a test fail."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import StoreError
from pipelines.paths import home_path
from pipelines.warehouse._builds import BuildRecords
from pipelines.warehouse._database import open_warehouse, plain_rows
from pipelines.warehouse._layout import WarehouseLayout


@dataclass(frozen=True, slots=True)
class ModelView:
    """A built model."""

    #: Its row count.
    rows: int
    #: First rows as the warehouse returns them, values JSON-ready.
    head: list[dict[str, Any]]


def describe_models(
    home: Path | str, models: Iterable[str], *, memory_limit_mb: int = 1024
) -> dict[str, ModelView]:
    """Row count and first rows of models, by dbt's unique id; unknown or missing ones are left out.

    Raises
    ------
    StoreError
        There is no warehouse; :class:`LockedError` while dbt writes it.
    """
    layout = WarehouseLayout(home_path(home))
    nodes = BuildRecords.load(layout.home).nodes
    out = {}
    with open_warehouse(layout, memory_limit_mb=memory_limit_mb) as connection:
        for model in models:
            relation = nodes.get(model, {}).get("relation")
            rows = plain_rows(connection, relation, 8) if relation else None
            if rows is None:
                continue
            counted = connection.execute(f"select count(*) from {relation}").fetchone()  # noqa: S608
            out[model] = ModelView(int(counted[0]) if counted else 0, rows)
    return out


def failing_rows(home: Path | str, test: str, *, limit: int = 20) -> list[dict[str, Any]]:
    """The rows that a dbt test stored when it last ran.

    Up to ``limit`` of them, JSON-ready; none if the test passed, never ran, or stores no rows (unit
    tests). The test is named, or given by its unique id.

    Raises
    ------
    StoreError
        dbt knows no such test, or there is no warehouse; :class:`LockedError` while dbt runs.
    """
    layout = WarehouseLayout(home_path(home))
    records = BuildRecords.load(layout.home)
    tests = {node["name"]: node for node in records.tests()}
    node = tests.get(test) or records.nodes.get(test)
    if node is None or node["kind"] == "model":
        near = difflib.get_close_matches(test, list(tests), n=1)
        raise StoreError(
            f"dbt has no test {test!r}", hint=f"did you mean {near[0]}?" if near else None
        )
    if not node["failures"] or not node["relation"]:
        return []
    with open_warehouse(layout) as connection:
        return plain_rows(connection, node["relation"], limit) or []
