"""From the warehouse to its readers: marts as published tables, and rows to look at."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.contracts import PUBLISHED, Contract
from pipelines.contracts.dbt import duckdb_type
from pipelines.errors import ContractError, StoreError
from pipelines.paths import home_path
from pipelines.store import Build, CheckRecord, Store, Table
from pipelines.warehouse._builds import BuildRecords, MartEvidence, mart_evidence
from pipelines.warehouse._folder import (
    WarehouseLayout,
    columns_of,
    dbt_vars,
    last_builds,
    linked_sources,
    open_warehouse,
    plain_rows,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from pipelines.config import Settings


#: Version of the exporting code; the dbt models have their own, see ``MartEvidence.code``.
CODE_VERSION = "1"

#: Marts of every domain.
_TABLES = ("items", "interactions", "splits", "item_stats", "human_users", "user_traits")
#: Published dataset to the dbt model that makes it.
MARTS: dict[str, str] = {
    f"{domain}.{table}": f"{domain}_{table}"
    for domain, tables in {
        "movies": (*_TABLES, "training_traits"),
        "games": (*_TABLES, "training_traits"),
        "books": (*_TABLES, "training_traits"),
        "products": _TABLES,
        "own": (*_TABLES, "training_traits"),
    }.items()
    for table in tables
}

#: Rows per batch on their way into the store (count).
_BATCH = 122_880


@contextmanager
def mart_build(
    store: Store, dataset: str, settings: Settings
) -> Iterator[tuple[Build, list[CheckRecord]]]:
    """The build of a mart whose tests passed on what is in the warehouse, and their outcomes.

    The rows stream in the contract's order; memory is bounded by the settings, not the table. The
    inputs are the raw versions that dbt read. ``stats`` has ``filtered``: rows left out on purpose,
    by reason, as the domain's ``int_<domain>__drops`` model has them, and ``facts``, counts of its
    ``int_<domain>__facts`` model, where there is one. As long as it is open, no dbt can change the
    warehouse. The settings must be those that dbt was run with.

    Raises
    ------
    ContractError
        A blocking test did not pass, ran on something older, or never ran (all are listed); the
        mart's columns differ from the contract.
    StoreError
        There is no such mart or warehouse, or it was built from other sources, with other
        settings, or by a run that left no record. :class:`LockedError` while dbt runs.
    """
    model = MARTS.get(dataset)
    if model is None:
        raise StoreError(
            "no mart for this dataset", where=dataset, hint=f"known: {', '.join(MARTS)}"
        )
    contract = PUBLISHED[dataset]
    layout = WarehouseLayout(store.home)
    runtime = settings.runtime
    with open_warehouse(
        layout, memory_limit_mb=runtime.memory_limit_mb, threads=runtime.threads
    ) as connection:
        # Read only now: as long as the file is open for reading, no dbt can change it.
        records = BuildRecords.load(store.home)
        evidence = mart_evidence(
            records,
            model,
            linked=linked_sources(store.home),
            variables=dbt_vars(settings),
            in_database=last_builds(connection),
        )
        _check_columns(connection, evidence.relation, contract, dataset)

        def stats() -> dict[str, Any]:
            facts = _facts(connection, records, dataset)
            left_out = _left_out(connection, records, dataset)
            return {
                "dbt_model": model, "filtered": left_out, **({"facts": facts} if facts else {})
            }  # fmt: skip

        def make() -> list[Table]:
            return [Table(dataset, _batches(connection, evidence.relation, contract), stats)]

        build = Build(
            (dataset,),
            make,
            f"{CODE_VERSION}+{evidence.code}",
            evidence.variables,
            evidence.sources,
        )
        yield build, _records(connection, evidence)


def _left_out(
    connection: duckdb.DuckDBPyConnection, records: BuildRecords, dataset: str
) -> dict[str, int]:
    """Rows that the models left out of a dataset on purpose, by reason."""
    query = "select reason, sum(dropped) from {} where dataset = ? group by 1 order by 1"
    rows = _noted(connection, records, dataset, "drops", query)
    return {str(reason): int(dropped) for reason, dropped in rows if dropped}


def _facts(
    connection: duckdb.DuckDBPyConnection, records: BuildRecords, dataset: str
) -> dict[str, int]:
    """Further counts of a dataset (``int_<domain>__facts``)."""
    query = "select fact, value from {} where dataset = ? order by 1"
    rows = _noted(connection, records, dataset, "facts", query)
    return {str(fact): int(value) for fact, value in rows if value is not None}


def _noted(
    connection: duckdb.DuckDBPyConnection,
    records: BuildRecords,
    dataset: str,
    kind: str,
    query: str,
) -> list[tuple[Any, ...]]:
    """Rows of a domain's model ``int_<domain>__<kind>``; none if it has no such model."""
    node = records.nodes.get(records.model(f"int_{dataset.partition('.')[0]}__{kind}") or "")
    if node is None or node["status"] != "success":
        return []
    return connection.execute(query.format(node["relation"]), [dataset]).fetchall()


def _check_columns(
    connection: duckdb.DuckDBPyConnection, relation: str, contract: Contract, dataset: str
) -> None:
    actual = columns_of(connection, relation)
    if actual is None:
        raise StoreError(
            "the mart is not in the warehouse", where=relation, hint="run dbt build again"
        )
    expected = {name: duckdb_type(dtype) for name, dtype in contract.polars_schema().items()}
    if list(actual.items()) != list(expected.items()):
        differing = sorted(
            {n for n in {*actual, *expected} if actual.get(n) != expected.get(n)} or {"the order"}
        )
        raise ContractError(
            f"the mart's columns differ from the contract in {', '.join(differing)}",
            where=dataset,
            hint="run make docs, and select these columns in dbt/models/marts",
            details={"found": actual, "expected": expected},
        )


def _batches(
    connection: duckdb.DuckDBPyConnection, relation: str, contract: Contract
) -> Iterator[pa.RecordBatch]:
    columns = ", ".join(f'"{name}"' for name in contract.polars_schema())
    order = ", ".join(f'"{name}"' for name in contract.order)
    query = f"select {columns} from {relation} order by {order}"  # noqa: S608
    yield from connection.execute(query).to_arrow_reader(_BATCH)


def _records(connection: duckdb.DuckDBPyConnection, evidence: MartEvidence) -> list[CheckRecord]:
    records = []
    for test in evidence.tests:
        details: dict[str, Any] = {
            "description": test.description,
            "status": test.status,
            "failures": test.failures,
            "of": "this table" if test.direct else "a table it is made from",
        }
        if test.failures and test.relation:
            details["rows"] = plain_rows(connection, test.relation, 20) or []
        records.append(
            CheckRecord(
                name=test.name,
                passed=test.passed,
                severity=test.severity,
                kind="dbt",
                details=details,
                checked_at=test.checked_at,
            )
        )
    return records


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
