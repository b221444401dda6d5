"""Detect Polars in a forked process: its threads stay behind in the parent, so that it would hang.

A process that is started with ``spawn`` or ``forkserver`` has threads of its own. So has a fork of
a parent in which Polars did not run yet.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pipelines.errors import ConfigError

#: The process that forked while its Polars had threads; None if none did.
_parent: int | None = None


def _before_fork() -> None:
    global _parent
    # Forks of this process's forks have no threads either: the first parent stays the recorded one.
    if _parent is None and "polars" in sys.modules and _polars_runs():
        _parent = os.getpid()


def _polars_runs() -> bool:
    """Return True if a thread of Polars' pool exists here; False where the system does not tell."""
    for name in Path("/proc/self/task").glob("*/comm"):
        try:
            if name.read_text() == "polars-0\n":
                return True
        except OSError:  # the thread has just ended
            continue
    return False


def _after_fork() -> None:
    """In a worker in which Polars would hang, its queries fail instead, whoever runs them."""
    if _parent is None:
        return
    frame = sys.modules["polars"].LazyFrame

    def refused(*_: Any, **__: Any) -> Any:
        check_polars("a query of Polars")

    # Eager operations collect too.
    for name in ("collect", "_collect_eager"):
        if hasattr(frame, name):
            setattr(frame, name, refused)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def check_polars(where: str) -> None:
    """Refuse to start Polars where it would hang; call it before tables are read.

    Raises
    ------
    ConfigError
        If this process is a fork of one in which Polars was running.
    """
    if _parent not in (None, os.getpid()):
        raise ConfigError(
            'Polars can\'t run in a worker of the start method "fork"',
            where=where,
            hint="start workers with multiprocessing.get_context('spawn'); in libraries the "
            "argument is context='spawn' (gymnasium.make_vec: vector_kwargs={'context': 'spawn'}), "
            "start_method='spawn' or multiprocessing_context='spawn'",
        )
