"""The rows that made a test fail."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pipelines.errors import StoreError
from pipelines.warehouse._database import open_warehouse, plain_rows
from pipelines.warehouse._layout import WarehouseLayout
from pipelines.warehouse._ledger import Ledger

__all__ = ["failing_rows"]


def failing_rows(home: Path | str, test: str, *, limit: int = 20) -> list[dict[str, Any]]:
    """The rows that a dbt test stored when it last ran.

    Parameters
    ----------
    home
        The store's folder.
    test
        The test's name, such as ``movies_items_unique``, or its unique id.
    limit
        Rows at most (count).

    Returns
    -------
    list
        Column to value, JSON-ready; empty if the test passed, never ran, or stores no rows
        (unit tests).

    Raises
    ------
    StoreError
        dbt knows no such test, or there is no warehouse; :class:`LockedError` while dbt runs.
    """
    layout = WarehouseLayout(Path(home).expanduser().absolute())
    ledger = Ledger.load(layout.home)
    tests = {n["name"]: n for _, n in ledger.tests()}
    node = tests.get(test) or ledger.nodes.get(test)
    if node is None or node["kind"] == "model":
        near = difflib.get_close_matches(test, list(tests), n=1)
        raise StoreError(
            f"dbt has no test {test!r}", hint=f"did you mean {near[0]}?" if near else None
        )
    last = node.get("last")
    if last is None or not last["failures"] or not node["relation"]:
        return []
    with open_warehouse(layout) as connection:
        return plain_rows(connection, node["relation"], limit) or []
