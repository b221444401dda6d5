"""Ends of processes: after Ctrl-C or SIGTERM, even while they wait, and of workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import psutil

#: Exit code of an interrupted command.
INTERRUPTED = 130
#: Time for a worker without a parent to end before it is killed (seconds).
ORPHAN_GRACE = 5.0


@contextmanager
def bounded_end(grace: float, message: str = "") -> Iterator[None]:
    """End this process at most ``grace`` seconds after SIGINT or SIGTERM.

    Both raise `KeyboardInterrupt`. If the process has not ended by then, because a library holds
    the signal back, a call into C does not return or the interpreter takes long to shut down, it
    kills its descendants and exits. A forced end is safe: it is one of the moments at which a kill
    leaves a whole store. A ``message`` is written to standard error at a forced end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are delivered to the main thread only
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The descriptor is written whichever Python handler is installed at the time: Dagster
    # replaces the handlers while a run executes.
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    left = threading.Event()
    # A copy: Dagster redirects the descriptor itself while a step runs.
    screen = os.dup(2)
    args = (reader, screen, left, grace, message)
    threading.Thread(target=_watch, args=args, name="interrupt-watch", daemon=True).start()
    try:
        yield
    finally:
        left.set()
        signal.signal(signal.SIGTERM, handler)
        signal.set_wakeup_fd(before)
        os.close(writer)


def _watch(reader: int, screen: int, left: threading.Event, grace: float, message: str) -> None:
    """Force the end ``grace`` seconds after a signal; without one, end with the block."""
    received = 0
    while received not in {signal.SIGINT, signal.SIGTERM}:
        data = os.read(reader, 1)
        if not data:
            os.close(reader)
            os.close(screen)
            return
        received = data[0]
    deadline = time.monotonic() + grace
    if not left.wait(grace / 2):
        # An exception raised in a finalizer is only logged: once more, in case it was.
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(max(0.0, deadline - time.monotonic()))
    kill_descendants()
    if message and not left.is_set():
        with suppress(OSError):
            os.write(screen, f"\n{message}\n".encode())
    os._exit(INTERRUPTED)


def kill_descendants() -> None:
    """SIGKILL for every process that this one started, directly or not."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def start_fork_server(preload: Sequence[str], variables: Mapping[str, str]) -> None:
    """Start multiprocessing's fork server, if none runs yet, with these modules imported.

    ``variables`` are added to its environment.

    Its processes hold interrupts back until :func:`follow_parent`: Ctrl-C at a terminal would
    otherwise end a worker that has no handler yet. They write nothing to standard error, where
    Dagster reports the start of each; what a step prints, Dagster keeps.
    """
    multiprocessing.set_forkserver_preload(list(preload))
    resource_tracker.ensure_running()  # it would lift the block
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    screen, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    # Restored below: no step runs yet whose threads could be reading the environment.
    before = {name: os.environ.get(name) for name in variables}
    try:
        os.dup2(nowhere, 2)
        os.environ.update(variables)
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        os.dup2(screen, 2)
        os.close(screen)
        os.close(nowhere)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def follow_parent(parent: BaseProcess) -> None:
    """Let this worker be interrupted by its parent alone, and end when that is gone."""
    # Ctrl-C at a terminal goes to the parent's group; the parent passes it on once.
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(ORPHAN_GRACE)
        kill_descendants()
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
