"""Work for lanes, in a module that their processes can import."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster._utils.interrupts import capture_interrupts

from orchestration._lanes import Send, Task, open_lanes
from pipelines.errors import SourceError

__all__ = ["SECONDS", "coordinate", "stages"]

#: Longest wait of one task for another (seconds): a test that comes to it has failed.
SECONDS = 60.0


@contextmanager
def stages(folder: Path, send: Send) -> Iterator[Callable[[Any], Any]]:
    """Do what a payload says: ``(verb, *arguments)``; notes beginnings and ends as files."""

    def do(payload: tuple[str, Any]) -> Any:
        verb, about = payload
        if verb == "note":
            (folder / f"{about}").touch()
            send("noted", about)
            return about
        if verb == "seen":
            return sorted(p.name for p in folder.iterdir())
        if verb == "meet":
            mine, other = about
            (folder / mine).touch()
            await_file(folder / other)
            return mine
        if verb == "fail":
            raise SourceError("it broke", where=about, hint="mend it")
        if verb == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "wait":
            return linger(folder, about)
        if verb == "hold":
            return hold_interrupts(folder / about)
        raise AssertionError(verb)

    try:
        yield do
    finally:
        (folder / f"closed-{os.getpid()}").touch()


def linger(folder: Path, name: str) -> str:
    """Wait to be interrupted, and note that it was."""
    partial = folder / f"{name}.partial"
    partial.write_text(str(os.getpid()))
    partial.rename(folder / name)
    try:
        time.sleep(SECONDS)
    except KeyboardInterrupt:
        (folder / f"{name}-interrupted").touch()
        raise
    return name


def hold_interrupts(running: Path) -> None:
    """Hold interrupts back as Dagster does between steps, beside a child process, and wait."""
    child = subprocess.Popen(["sleep", str(SECONDS)])
    with capture_interrupts():
        partial = running.with_suffix(".partial")
        partial.write_text(f"{os.getpid()} {child.pid}")
        partial.rename(running)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.1)


def await_file(path: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.01)


def coordinate(folder: Path, verb: str) -> None:
    """A coordinator whose only lane waits, for tests that kill or interrupt it."""
    with open_lanes(functools.partial(stages, folder), 1) as lanes:
        lanes.run([Task("waits", (verb, "waiting"))])
