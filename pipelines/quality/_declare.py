"""Short forms for the expectations that suites use most."""

from __future__ import annotations

from typing import Any, Literal

from pipelines.quality._spec import Expectation

__all__ = ["between", "row_count"]


def between(
    name: str,
    severity: Literal["error", "warn"],
    view: str,
    column: str,
    because: str,
    **bounds: Any,
) -> Expectation:
    """Values of a column within ``min_value`` and ``max_value``, for a share ``mostly`` of rows."""
    kind = "ExpectColumnValuesToBeBetween"
    return Expectation(name, severity, view, kind, {"column": column, **bounds}, because)


def row_count(
    name: str, severity: Literal["error", "warn"], view: str, because: str, **bounds: Any
) -> Expectation:
    """Rows of a view within ``min_value`` and ``max_value``."""
    return Expectation(name, severity, view, "ExpectTableRowCountToBeBetween", bounds, because)
