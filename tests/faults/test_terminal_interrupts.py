"""Ctrl-C typed at a terminal while a run works in several processes."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from support.steps import steps_of

from pipelines.store import Store

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

TINY = (
    *("--set", "personas.count=6", "--set", "world.sample.films=30"),
    *("--set", "world.sample.users=40", "--set", "world.sample.ratings=700"),
)
#: Longest time in which a run ends after Ctrl-C (seconds), on a machine with other work.
GRACE = 60.0


def command_line(process: psutil.Process) -> str:
    """Command line of a process; empty once it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def test_ctrl_c_at_terminal_ends_parallel_work(tmp_path: Path, understudy: Path) -> None:
    home = tmp_path / "home"
    ours, theirs = pty.openpty()
    # The terminal is the program's controlling one: Ctrl-C reaches its foreground group.
    command = ["setsid", "--ctty", "--wait", understudy, "run", "--home", home]
    process = subprocess.Popen(
        [*command, *TINY, "--set", "runtime.executor=multiprocess"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""

    def read(until: float) -> bool:
        """Read what is shown within 0.1 s, often a bar that never rests; True after the end."""
        nonlocal shown
        if time.monotonic() > until:
            raise AssertionError(shown.decode(errors="replace")[-500:])
        if not select.select([ours], [], [], 0.1)[0]:
            return process.poll() is not None
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the last process of the terminal has ended
            return True
        return False

    deadline = time.monotonic() + 300
    started: list[psutil.Process] = []
    workers: list[psutil.Process] = []
    while len(workers) < 2 or not any(s.startswith(("ingest_", "dbt_")) for s in steps_of(home)):
        assert not read(deadline), shown.decode(errors="replace")
        started = psutil.Process(process.pid).children(recursive=True)
        workers = [p for p in started if "multiprocessing.forkserver" in command_line(p)]
    os.write(ours, b"\x03")
    deadline = time.monotonic() + GRACE
    while not read(deadline):
        pass
    assert process.wait(GRACE) == 130, shown.decode(errors="replace")
    os.close(ours)
    assert b"interrupted" in shown
    _, alive = psutil.wait_procs(started, timeout=GRACE)
    assert not alive
    store = Store(home)
    for dataset in store.datasets():
        store.current(dataset).verify()
    with store.run_lock():
        store.sweep()
    assert not list((home / "_staging").iterdir())
