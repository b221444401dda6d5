"""Conformance of publishers' declarations."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.sources._ingest import ingest
from pipelines.sources._protocol import open_source
from pipelines.sources._world import GIVEN, open_world
from pipelines.sources.own import OwnSource
from pipelines.store import Store

__all__ = ["check_source"]


def check_source(chosen: str | type[Any], folder: Path) -> dict[str, int]:
    """Check a declaration of `data.own.source` on its publisher's files.

    Every row is in a table that meets its contract or is rejected, and a second reading gives the
    same tables.

    Parameters
    ----------
    chosen
        Its name, or its class.
    folder
        Folder with the files in its folder ``own``.

    Returns
    -------
    Rows (count) by table, such as ``raw.own_ratings``.

    Raises
    ------
    AssertionError
        Naming what is wrong.
    SourceError
        If a file is missing or can't be read.
    """
    name = chosen if isinstance(chosen, str) else f"{chosen.__module__}:{chosen.__qualname__}"
    settings = Settings(data={"own": {"source": name}}, world={"folder": folder})
    licence = open_source("own", settings).licence
    assert licence != OwnSource.licence, f"source {name}: it states the licence of its files"
    world = open_world(folder, GIVEN, settings)
    readings = []
    for _ in range(2):
        with TemporaryDirectory() as home:
            tables = ingest("own", world, Store(Path(home)), settings)
            for dataset, table in tables.items():
                CONTRACTS[dataset].validate(table.read())
            readings.append({n: (table.version, table.rows) for n, table in tables.items()})
    assert readings[0] == readings[1], f"source {name}: a second reading gives the same tables"
    return {dataset: rows for dataset, (_, rows) in readings[0].items()}
