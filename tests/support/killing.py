"""Processes to kill, and the log by which is seen how far they came."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

__all__ = ["asked", "forked", "kill_at_random", "kill_once", "wait_for"]


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


def kill_once(
    step: Callable[[], object], log: Path, dice: random.Random, most: int, *, least: int = 1
) -> None:
    """Kill a step after so many more calls, and a moment more."""
    pid = forked(step)
    wait_for(log, dice.randrange(least, most))
    time.sleep(dice.uniform(0, 0.01))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it was in the middle of its work"


def kill_at_random(step: Callable[[], object], log: Path, seed: int, kills: int, most: int) -> None:
    """Kill a step at random moments, let the last one end, then run it once more.

    How many calls there were after each of these two is written beside the log, to ``ends``.
    """
    dice = random.Random(seed)
    for _ in range(kills):
        kill_once(step, log, dice, most)
    for _ in range(2):
        assert os.waitpid(forked(step), 0)[1] == 0
        with log.with_name("ends").open("a") as ends:
            ends.write(f"{len(asked(log))}\n")
