"""Processes to kill, and the log by which is seen how far they came."""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = [
    "asked",
    "die_at",
    "forked",
    "import_all",
    "in_child",
    "kill_at_random",
    "kill_once",
    "wait_for",
]

#: Operations that change the disk, and ``open`` where it creates a file. A kill at any other
#: operation (reading, syncing, closing, locking) leaves what a kill at the next of these leaves.
OPERATIONS = (
    *("open", "write", "pwrite", "ftruncate", "fchmod"),
    *("mkdir", "rename", "replace", "link", "unlink", "rmdir"),
)


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


def in_child(step: Callable[[], Any]) -> int:
    """Run a step in a forked process; the signal that killed it, or 0."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            step()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    if os.WEXITSTATUS(status):
        raise SystemExit("the child failed; see above")
    return 0


def import_all(step: Callable[[], object], listing: Path) -> None:
    """Import here whatever a step imports: forked children then need not, each again.

    ``listing`` is a file that is written for it.
    """

    def listed() -> None:
        step()
        # Compiled packages add modules that no file has.
        named = [name for name, module in sys.modules.items() if getattr(module, "__spec__", None)]
        listing.write_text("\n".join(named))

    in_child(listed)
    for name in listing.read_text().splitlines():
        if name not in sys.modules:
            importlib.import_module(name)


def die_at(number: int, *, partial: bool) -> None:
    """Let this process kill itself at its n-th file operation, instead of doing it.

    With ``partial``, only writes are counted, and half of the n-th is done first.
    """
    count = 0

    def wrap(module: Any, name: str) -> None:
        real = getattr(module, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += name != "open" or bool(arguments[1] & os.O_CREAT)
            if count == number:
                if partial:
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        setattr(module, name, counted)

    if partial:
        wrap(os, "write")
        return
    for name in OPERATIONS:
        wrap(os, name)
