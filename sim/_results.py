"""Results by key, stored whole or not at all, so that a killed run resumes where it was."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from pipelines.errors import IntegrityError
from pipelines.paths import home_path
from pipelines.store.files import LocalFiles


class ResultCache:
    """Frames in a folder below the home, such as ``ablations``, each under a key (hex).

    Reading raises IntegrityError if a file is not as it was written. Writes are atomic and synced
    to the disk.
    """

    def __init__(self, home: Path, folder: str) -> None:
        self._files = LocalFiles(home_path(home))
        self._folder = home_path(home) / folder

    def frame(self, kind: str, key: str) -> pl.DataFrame | None:
        """The frame of that key, or None."""
        path = self._path(kind, key)
        data = self._files.read(path)
        try:
            return None if data is None else pl.read_parquet(io.BytesIO(data))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise IntegrityError(
                "a stored result can't be read",
                where=str(path),
                hint="remove the file: the result is computed again",
            ) from error

    def put(self, kind: str, key: str, frame: pl.DataFrame) -> None:
        """Store a frame."""
        data = io.BytesIO()
        frame.write_parquet(data, compression="zstd")
        self._files.put(self._path(kind, key), data.getvalue())

    def _path(self, kind: str, key: str) -> Path:
        return self._folder / kind / key[:2] / f"{key}.parquet"
