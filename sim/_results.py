"""Results by key, stored whole or not at all, so that a killed run resumes where it was."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from pipelines.errors import IntegrityError
from pipelines.paths import home_path
from pipelines.store.files import LocalFiles


class ResultCache:
    """Frames and records in a folder below the home, such as ``ablations``, each under a key (hex).

    Reading raises IntegrityError if a file is not as it was written. Writes are atomic and synced
    to the disk.
    """

    def __init__(self, home: Path, folder: str) -> None:
        self._files = LocalFiles(home_path(home))
        self._folder = home_path(home) / folder

    def frame(self, kind: str, key: str) -> pl.DataFrame | None:
        """The frame of that key, or None."""
        frame: pl.DataFrame | None = self._read(
            self._path(kind, key, "parquet"), lambda data: pl.read_parquet(io.BytesIO(data))
        )
        return frame

    def put(self, kind: str, key: str, frame: pl.DataFrame) -> None:
        """Store a frame."""
        data = io.BytesIO()
        frame.write_parquet(data, compression="zstd")
        self._files.put(self._path(kind, key, "parquet"), data.getvalue())

    def record(self, kind: str, key: str) -> dict[str, Any] | None:
        """The record of that key, or None."""
        record: dict[str, Any] | None = self._read(self._path(kind, key, "json"), orjson.loads)
        return record

    def note(self, kind: str, key: str, record: dict[str, Any]) -> None:
        """Store a record."""
        data = orjson.dumps(record, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
        self._files.put(self._path(kind, key, "json"), data)

    def drop(self, kind: str, keys: Iterable[str]) -> None:
        """Remove frames, if they are there."""
        for key in keys:
            self._path(kind, key, "parquet").unlink(missing_ok=True)

    def _read(self, path: Path, parse: Callable[[bytes], Any]) -> Any:
        data = self._files.read(path)
        try:
            return None if data is None else parse(data)
        except (pl.exceptions.PolarsError, OSError, orjson.JSONDecodeError) as error:
            raise IntegrityError(
                "a stored result can't be read",
                where=str(path),
                hint="remove the file: the result is computed again",
            ) from error

    def _path(self, kind: str, key: str, ending: str) -> Path:
        return self._folder / kind / key[:2] / f"{key}.{ending}"
