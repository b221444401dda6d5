"""Paths of the warehouse's files below a home, and writing of its small records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import IntegrityError
from pipelines.store.files import storage_errors, whole_file


class WarehouseLayout:
    """The paths below ``<home>/warehouse``; everything there can be built again.

    >>> WarehouseLayout(Path("h")).database.as_posix()
    'h/warehouse/warehouse.duckdb'
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        #: The warehouse's folder.
        self.folder = home / "warehouse"
        #: The DuckDB file; one process at a time writes it.
        self.database = self.folder / "warehouse.duckdb"
        #: Folder with one link per raw table, to the folder of one of its versions.
        self.sources = self.folder / "sources"
        #: Record of what the links point at.
        self.linked = self.folder / "sources.json"
        #: Record of what dbt built and tested, by domain.
        self.builds = self.folder / "builds.json"
        #: Lock for linking, building and recording.
        self.lock = self.folder / "lock"
        #: Spill of DuckDB.
        self.spill = self.folder / "tmp"
        #: Artefacts and log of dbt.
        self.target = self.folder / "dbt" / "target"
        self.logs = self.folder / "dbt" / "logs"


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
