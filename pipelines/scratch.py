"""The scratch folder of an ingest: one process at a time, no litter, named faults."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import LockedError, StoreError

__all__ = ["scratch_errors", "scratch_folder"]


@contextmanager
def scratch_errors(folder: Path) -> Iterator[None]:
    """Turn a failed write into a :class:`StoreError` that names the folder."""
    import duckdb
    import polars as pl

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        # DuckDB uses this message for memory and for its spill folder alike.
        raise _full(folder, error, "raise runtime.memory_limit_mb or free disk space") from None
    except (OSError, pl.exceptions.ComputeError, duckdb.IOException) as error:
        raise _full(folder, error, "is the disk full?") from None


def _full(folder: Path, error: Exception, hint: str) -> StoreError:
    return StoreError(
        "the scratch folder can't be used", where=f"{folder}: {str(error)[:200]}", hint=hint
    )


@contextmanager
def scratch_folder(home: Path, name: str) -> Iterator[Path]:
    """Give an empty folder on the store's disk that one process at a time has.

    Raises LockedError if another process has it, StoreError if it can't be made.
    """
    import filelock

    folder = home / "scratch" / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder.with_name(f"{name}.lock"), timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise LockedError(
            "another process is doing the same",
            where=f"{name} in {home}",
            hint="wait for it, or stop it",
        ) from None
    except OSError as error:
        raise _full(folder, error, "check the folder's permissions") from None
    try:
        # The folder of a killed run: its lock is free.
        shutil.rmtree(folder, ignore_errors=True)
        with scratch_errors(folder):
            folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
