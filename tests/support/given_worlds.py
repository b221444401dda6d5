"""Data folders that tests write by hand, and their ingest."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.config import Settings
from pipelines.sources import World, ingest, open_source
from pipelines.store import Snapshot, Store


@dataclass(frozen=True)
class GivenWorld:
    """A data folder, a store, and how to ingest one source from one into the other."""

    root: Path
    source: str

    @property
    def folder(self) -> Path:
        return self.root / "data"

    @property
    def store(self) -> Store:
        return Store(self.root / "home")

    def write(self, name: str, content: bytes | str, *, packed: bool = False) -> Path:
        """A file of the data folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if packed else data)
        return path

    def settings(self, **sections: Any) -> Settings:
        given = {"world": {"folder": self.folder}, "runtime": {"home": self.root / "home"}}
        return Settings(**(given | sections))

    def ingest(self, **sections: Any) -> dict[str, Snapshot]:
        """The source's snapshots by dataset."""
        tree = self.settings(**sections)
        reader = open_source(self.source, tree)
        self.folder.mkdir(exist_ok=True)
        files = {self.source: tuple(reader.files(self.folder))}
        world = World("test", self.folder, "given", files, frozenset())
        return ingest(self.source, world, self.store, tree, run_id="run")

    def rejected(self, found: dict[str, Snapshot]) -> list[tuple[str, int, str]]:
        """File, line and reason of every rejected row."""
        frame: pl.DataFrame = found[list(found)[-1]].read(["file", "line", "reason"])
        return frame.rows()
