"""Processes to kill, and the log by which is seen how far they came."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

__all__ = ["asked", "forked", "wait_for"]


def forked(step: Callable[[], object]) -> int:
    """Start a step in a child process; its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            step()
            code = 0
        except BaseException:  # noqa: BLE001 - shown, and the parent sees the code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def asked(log: Path) -> list[str]:
    """The calls that were logged, one line each."""
    return log.read_text().splitlines() if log.exists() else []


def wait_for(log: Path, more: int) -> None:
    """Until so many more calls were made, on a machine of any speed."""
    goal, deadline = len(asked(log)) + more, time.monotonic() + 60
    while len(asked(log)) < goal and time.monotonic() < deadline:
        time.sleep(0.0005)
