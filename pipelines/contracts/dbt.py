"""dbt's YAML of the published tables: columns from the contracts, tests from ``mart_tests.yml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from pipelines.contracts._base import Contract

if TYPE_CHECKING:
    import polars as pl

__all__ = ["duckdb_type", "mart_models"]

#: Generic test whose columns are those that a contract declares not nullable.
_NO_NULLS = "no_nulls"


def duckdb_type(dtype: pl.DataType) -> str:
    """DuckDB's name of a column type that contracts use.

    >>> import polars as pl
    >>> duckdb_type(pl.List(pl.String()))
    'VARCHAR[]'
    """
    import polars as pl

    if isinstance(dtype, pl.List):
        inner = dtype.inner
        return f"{duckdb_type(inner if isinstance(inner, pl.DataType) else inner())}[]"
    names: dict[pl.DataType, str] = {
        pl.String(): "VARCHAR",
        pl.Int64(): "BIGINT",
        pl.Float64(): "DOUBLE",
        pl.Boolean(): "BOOLEAN",
        pl.Date(): "DATE",
        pl.Datetime("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
    }
    return names[dtype]


def mart_models(domain: str, tables: Mapping[str, Contract], tests: Mapping[str, Any]) -> str:
    """Content of a domain's YAML file: a model per table, with its columns and tests.

    ``tests`` are those declared by table and name in ``dbt/mart_tests.yml``.

    Raises :class:`KeyError`: a test names a column that its table does not have.
    """
    models = [_model(domain, table, contract, tests) for table, contract in tables.items()]
    dumped: str = yaml.safe_dump(
        {"version": 2, "models": models}, sort_keys=False, allow_unicode=True, width=110
    )
    return dumped


def _model(domain: str, table: str, contract: Contract, tests: Mapping[str, Any]) -> dict[str, Any]:
    types = contract.polars_schema()
    columns: dict[str, dict[str, Any]] = {
        column.name: {
            "name": column.name,
            "data_type": duckdb_type(types[column.name]).lower(),
            "description": column.description,
        }
        for column in contract.columns()
    }
    model: dict[str, Any] = {
        "name": f"{domain}_{table}",
        "description": contract.description,
        "config": {"tags": [domain]},
        "columns": list(columns.values()),
    }
    for column, test in _tests(domain, table, contract, tests[table]):
        (columns[column] if column else model).setdefault("data_tests", []).append(test)
    return model


def _tests(
    domain: str, table: str, contract: Contract, declared: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """The column (None: the table's) and the entry of each test."""
    for name, test in declared.items():
        if domain not in test.get("only", [domain]):
            continue
        own = test.get(domain, {})
        kind = test.get("test", name)
        arguments = {**test.get("arguments", {}), **own.get("arguments", {})}
        if kind == _NO_NULLS:
            arguments["columns"] = [c.name for c in contract.columns() if not c.nullable]
        severity = own.get("severity", test.get("severity", "error"))
        entry = {
            "name": f"{domain}_{table}_{name}",
            "description": own.get("description", test["description"]),
        }
        if arguments:
            entry["arguments"] = _filled(arguments, domain)
        if severity != "error":
            entry["config"] = {"severity": severity}
        yield test.get("column"), {kind: entry}


def _filled(value: Any, domain: str) -> Any:
    """The value with ``{domain}`` replaced in every text."""
    if isinstance(value, str):
        return value.replace("{domain}", domain)
    if isinstance(value, list):
        return [_filled(item, domain) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, domain) for key, item in value.items()}
    return value
