"""Reading the warehouse file: never writing, never while dbt writes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import LockedError, StoreError
from pipelines.warehouse._layout import WarehouseLayout

if TYPE_CHECKING:
    import duckdb


#: Program and process in DuckDB's message about a locked file.
_HOLDER = re.compile(r"lock is held in (.+?) \(PID (\d+)\)")


def database_fault(message: str, database: Path) -> StoreError | None:
    """Error of a database file that could not be opened, from DuckDB's message or a text with it.

    A :class:`LockedError` names the process that has the file open. None if the text is about
    something else.
    """
    message = " ".join(message.split())
    if "could not set lock on file" in message.lower():
        holder = _HOLDER.search(message)
        who = f"process {holder[2]} ({holder[1]})" if holder else "another process"
        return LockedError(
            f"{who} has the warehouse file open",
            where=str(database),
            hint="close it there, or wait until it has finished, and run again",
        )
    if "not a valid DuckDB database" in message or "Corrupt database" in message:
        return StoreError(
            f"the warehouse can't be opened ({message})",
            where=str(database),
            hint="it can be built again: remove the file and run again",
        )
    return None


@contextmanager
def open_warehouse(
    layout: WarehouseLayout, *, memory_limit_mb: int = 1024, threads: int = 0
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A read-only connection; while it is open no other process can write the file.

    DuckDB spills into a folder of its own above its memory limit (MiB); 0 threads takes every core.
    Raises StoreError if there is no warehouse yet or the file is not one, LockedError if another
    process has it open for writing.
    """
    import duckdb

    if not layout.database.is_file():
        raise StoreError(
            "there is no warehouse yet", where=str(layout.database), hint="run dbt build first"
        )
    layout.spill.mkdir(parents=True, exist_ok=True)
    # Two readers must not spill into the same files.
    with tempfile.TemporaryDirectory(prefix="read-", dir=layout.spill) as spill:
        config: dict[str, Any] = {
            "memory_limit": f"{memory_limit_mb}MiB",
            "temp_directory": spill,
            "autoinstall_known_extensions": "false",
        }
        if threads:
            config["threads"] = threads
        try:
            connection = duckdb.connect(str(layout.database), read_only=True, config=config)
        except duckdb.Error as error:
            fault = database_fault(str(error), layout.database)
            raise fault or _unreadable(layout, error) from None
        try:
            connection.execute("set TimeZone = 'UTC'")
            yield connection
        finally:
            connection.close()


def columns_of(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str] | None:
    """Column names and DuckDB types of a relation, in order; None if it does not exist."""
    import duckdb

    try:
        rows = connection.execute(f"describe {relation}").fetchall()
    except duckdb.CatalogException:
        return None
    return {str(row[0]): str(row[1]) for row in rows}


def last_builds(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The dbt invocation that last built each model, by dbt's unique id, from the build log."""
    import duckdb

    query = """
        select model, arg_max(invocation_id, built_at)
        from understudy_meta.builds
        group by model
    """
    try:
        return {str(m): str(i) for m, i in connection.execute(query).fetchall()}
    except duckdb.CatalogException:
        return {}


def plain_rows(
    connection: duckdb.DuckDBPyConnection, relation: str, limit: int
) -> list[dict[str, Any]] | None:
    """The first rows of a relation as JSON-ready values; None if it does not exist."""
    import duckdb

    try:
        result = connection.execute(f"select * from {relation} limit {int(limit)}")  # noqa: S608
    except duckdb.CatalogException:
        return None
    names = [column[0] for column in result.description or ()]
    return [{n: _plain(v) for n, v in zip(names, row, strict=True)} for row in result.fetchall()]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_plain(v) for v in value[:20]]
    return str(value)[:500]


def _unreadable(layout: WarehouseLayout, error: Exception) -> StoreError:
    return StoreError(
        f"the warehouse can't be opened ({error})",
        where=str(layout.database),
        hint="it can be built again: remove the file and run dbt build",
    )
