"""Results by key, kept whole or not at all, so that a killed run goes on where it was."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from pipelines.errors import IntegrityError
from pipelines.store.files import LocalFiles

__all__ = ["Kept"]


class Kept:
    """Frames and records below one folder of a home, each under a key (hex).

    Parameters
    ----------
    home
        The store's folder.
    """

    def __init__(self, home: Path) -> None:
        self._files = LocalFiles(Path(home))
        self._folder = Path(home) / "ablations"

    def frame(self, kind: str, key: str) -> pl.DataFrame | None:
        """The frame of that key, or None.

        Raises
        ------
        IntegrityError
            If its file is not what was written.
        """
        path = self._path(kind, key, "parquet")
        data = self._files.read(path)
        if data is None:
            return None
        try:
            return pl.read_parquet(io.BytesIO(data))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise IntegrityError(
                "a stored result can't be read",
                where=str(path),
                hint="remove the file: the result is made again",
            ) from error

    def put(self, kind: str, key: str, frame: pl.DataFrame) -> None:
        """Keep a frame: atomically, synced to the disk."""
        data = io.BytesIO()
        frame.write_parquet(data, compression="zstd")
        self._files.put(self._path(kind, key, "parquet"), data.getvalue())

    def record(self, kind: str, key: str) -> dict[str, Any] | None:
        """The record of that key, or None.

        Raises
        ------
        IntegrityError
            If its file is not what was written.
        """
        path = self._path(kind, key, "json")
        data = self._files.read(path)
        if data is None:
            return None
        try:
            found: dict[str, Any] = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise IntegrityError(
                "a stored result can't be read",
                where=str(path),
                hint="remove the file: the result is made again",
            ) from error
        return found

    def note(self, kind: str, key: str, record: dict[str, Any]) -> None:
        """Keep a record: atomically, synced to the disk."""
        data = orjson.dumps(record, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
        self._files.put(self._path(kind, key, "json"), data)

    def drop(self, kind: str, keys: Iterable[str]) -> None:
        """Remove frames, if they are there."""
        for key in keys:
            self._path(kind, key, "parquet").unlink(missing_ok=True)

    def _path(self, kind: str, key: str, ending: str) -> Path:
        return self._folder / kind / key[:2] / f"{key}.{ending}"
