"""Lock for linking sources, running dbt and recording its builds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from pipelines.errors import IntegrityError, LockedError, StoreError
from pipelines.paths import home_path
from pipelines.warehouse._layout import WarehouseLayout, read_record, write_record


@contextmanager
def warehouse_lock(
    home: Path | str, *, timeout: float = 60.0, on_wait: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold the warehouse from linking its sources to recording the run.

    The operating system releases the lock when its holder dies, however it dies. Another holder is
    waited for up to ``timeout`` seconds, and described to ``on_wait`` first.

    Raises
    ------
    LockedError
        Another process held it for the whole of ``timeout``; names the process.
    StoreError
        The lock file can't be made.
    """
    layout = WarehouseLayout(home_path(home))
    holder = layout.lock.with_suffix(".json")
    try:
        layout.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(layout.lock, timeout=timeout, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if timeout:
                on_wait(_describe(holder))
            lock.acquire()
    except Timeout:
        raise LockedError(
            f"another process is using the warehouse ({_describe(holder)})",
            where=str(layout.folder),
            hint="wait for it or stop it; a dead process leaves no lock behind",
        ) from None
    except OSError as error:
        raise StoreError(
            f"the warehouse can't be locked ({error.strerror or error})", where=str(layout.folder)
        ) from error
    try:
        write_record(
            holder, {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        )
        yield
    finally:
        lock.release()


def _describe(holder: Path) -> str:
    try:
        record = read_record(holder)
    except IntegrityError:
        record = None
    if not record:
        return "it has just started"
    return f"process {record.get('pid')} since {record.get('since')}"
