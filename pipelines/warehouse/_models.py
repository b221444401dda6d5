"""What a built model holds, for people: row count and first rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.warehouse._database import open_warehouse, plain_rows
from pipelines.warehouse._layout import WarehouseLayout
from pipelines.warehouse._ledger import Ledger

__all__ = ["ModelView", "describe_models"]


@dataclass(frozen=True, slots=True)
class ModelView:
    """A built model.

    Attributes
    ----------
    rows
        Its row count.
    head
        First rows as the warehouse returns them, values JSON-ready.
    """

    rows: int
    head: list[dict[str, Any]]


def describe_models(
    home: Path | str, models: Iterable[str], *, head: int = 8, memory_limit_mb: int = 1024
) -> dict[str, ModelView]:
    """Row count and first rows of models, by dbt's unique id; unknown or missing ones are left out.

    Parameters
    ----------
    home
        The store's folder.
    models
        Unique ids, such as ``model.understudy.movies_items``.
    head
        Rows to show (count).
    memory_limit_mb
        DuckDB's memory limit (MiB).

    Raises
    ------
    StoreError
        There is no warehouse; :class:`LockedError` while dbt writes it.
    """
    layout = WarehouseLayout(Path(home).expanduser().absolute())
    nodes = Ledger.load(layout.home).nodes
    out = {}
    with open_warehouse(layout, memory_limit_mb=memory_limit_mb) as connection:
        for model in models:
            relation = nodes.get(model, {}).get("relation")
            rows = plain_rows(connection, relation, head) if relation else None
            if rows is None:
                continue
            counted = connection.execute(f"select count(*) from {relation}").fetchone()  # noqa: S608
            out[model] = ModelView(int(counted[0]) if counted else 0, rows)
    return out
