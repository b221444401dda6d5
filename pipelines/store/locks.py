"""Locks that the operating system releases when their holder dies, however it dies.

``flock`` on an open file: no lease to renew, no stale lock after SIGKILL, no trust in process
ids (they are written into the file only so that messages can name the holder).
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import orjson

from pipelines.errors import LockedError
from pipelines.store.files import storage_errors

__all__ = ["PATIENCE", "RunLock", "holder_record", "mutex"]

#: Longest wait for another process that may be reading many gigabytes (seconds).
PATIENCE = 600.0

#: Interval at which a waiting process looks again (seconds).
_POLL = 0.01


def holder_record() -> dict[str, Any]:
    """Identity of this process: pid, host, when it started and the present time (UTC).

    >>> sorted(holder_record())
    ['host', 'pid', 'process_started', 'since']
    """
    import psutil

    started = datetime.fromtimestamp(psutil.Process().create_time(), UTC)
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "process_started": started.isoformat(timespec="seconds"),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class RunLock:
    """Lock for a pipeline run per home: a context manager around ``<home>/_locks/run.lock``.

    The file is created when missing and never removed: removing a lock file lets two processes hold
    locks on two different files of the same name. On entering, LockedError names the process that
    holds it and since when.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._owner = os.getpid()

    @property
    def held(self) -> bool:
        """True while this object holds the lock."""
        return self._descriptor is not None

    def __enter__(self) -> Self:
        with storage_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _try_lock(descriptor, self.path):
                holder = _read_holder(descriptor)
                raise LockedError(
                    f"another run is using this store ({_describe(holder)})",
                    where=str(self.path.parent.parent),
                    hint="wait for it or stop it; a dead run leaves no lock behind",
                    details=holder,
                )
            with storage_errors(self.path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, orjson.dumps(holder_record()), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._owner = os.getpid()
        self._descriptor = descriptor
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # Closing is not enough where a forked child holds a copy; and such a child must
            # not free what its parent holds.
            if self._owner == os.getpid():
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


@contextmanager
def mutex(path: Path, *, timeout: float = 60.0, shared: bool = False) -> Iterator[None]:
    """Mutual exclusion for a read-change-write of small files; the lock file is created if missing.

    Any number of ``shared`` holders exclude the others only. LockedError if another process held it
    for the whole of ``timeout`` (seconds).
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + timeout
        while not _try_lock(descriptor, path, shared=shared):
            if time.monotonic() >= deadline:
                raise LockedError(
                    f"another process has held this lock for {timeout:g} s",
                    where=str(path),
                    hint="wait for it or stop it",
                )
            time.sleep(_POLL)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, path: Path, *, shared: bool = False) -> bool:
    """Take the lock of an open file unless another has it; whether it was taken."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with storage_errors(path):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _read_holder(descriptor: int) -> dict[str, Any]:
    """Record of the holder; empty if it has not finished writing."""
    try:
        record = orjson.loads(os.pread(descriptor, 4096, 0))
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def _describe(holder: dict[str, Any]) -> str:
    if not holder:
        return "it has just started"
    return f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"
