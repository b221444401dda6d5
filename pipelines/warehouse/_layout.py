"""Where the warehouse's files are below a home, and how its small records are written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import IntegrityError
from pipelines.store.files import storage_errors, whole_file

__all__ = ["WarehouseLayout", "read_record", "write_record"]


@dataclass(frozen=True, slots=True)
class WarehouseLayout:
    """The paths below ``<home>/warehouse``; everything there can be built again.

    >>> WarehouseLayout(Path("h")).database.as_posix()
    'h/warehouse/warehouse.duckdb'
    """

    home: Path

    @property
    def folder(self) -> Path:
        """The warehouse's folder."""
        return self.home / "warehouse"

    @property
    def database(self) -> Path:
        """The DuckDB file; one process at a time writes it."""
        return self.folder / "warehouse.duckdb"

    @property
    def sources(self) -> Path:
        """Folder with one link per raw table, to the folder of one of its versions."""
        return self.folder / "sources"

    @property
    def linked(self) -> Path:
        """Record of what the links point at."""
        return self.folder / "sources.json"

    @property
    def builds(self) -> Path:
        """Record of what dbt built and tested, by domain."""
        return self.folder / "builds.json"

    @property
    def lock(self) -> Path:
        """The lock of whoever links, builds or records."""
        return self.folder / "lock"

    @property
    def spill(self) -> Path:
        """Where DuckDB puts what does not fit into memory."""
        return self.folder / "tmp"

    @property
    def target(self) -> Path:
        """Where dbt leaves its artefacts."""
        return self.folder / "dbt" / "target"

    @property
    def logs(self) -> Path:
        """Where dbt writes its log."""
        return self.folder / "dbt" / "logs"


def write_record(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON record whole or not at all.

    Raises :class:`StoreError`: the disk is full or can't be written.
    """
    data = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    with storage_errors(path), whole_file(path) as stream:
        stream.write(data + b"\n")


def read_record(path: Path) -> dict[str, Any] | None:
    """A JSON record, or None if there is none.

    Raises :class:`IntegrityError`: it is not a JSON object.
    """
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, orjson.JSONDecodeError) as error:
        raise IntegrityError(
            f"a record of the warehouse can't be read ({error})",
            where=str(path),
            hint="remove the file and run dbt again; nothing published depends on it",
        ) from None
    if not isinstance(content, dict):
        raise IntegrityError("a record of the warehouse is damaged", where=str(path))
    return content
