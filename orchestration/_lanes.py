"""Tasks side by side: lanes are processes of their own that a coordinator hands tasks to."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from orchestration._interrupts import bounded_end
from pipelines.errors import UnderstudyError

#: Time for lanes to end before they are killed (seconds).
GRACE = 60.0
#: The same after an interrupt: a lane's own limit, and the coordinator's for all of them.
INTERRUPTED_GRACE = 5.0
SHUTDOWN_GRACE = 6.5

#: Sends an event from a lane to the coordinator.
Send: TypeAlias = Callable[..., None]
#: Context of a lane's work, entered in the lane before its first task, so that it must be
#: picklable. It yields the function of a task's payload that returns the task's result.
Work: TypeAlias = Callable[[Send], AbstractContextManager[Callable[[Any], Any]]]


@dataclass(frozen=True)
class Task:
    """A unit of work."""

    #: Name in error messages.
    name: str
    #: Argument of the work; picklable.
    payload: Any
    #: Numbers of the tasks that must have ended before it starts, all of them earlier.
    after: Collection[int] = ()


@contextmanager
def open_lanes(work: Work, count: int) -> Iterator[Lanes]:
    """Start that many processes; they end with the block, interrupted if it raised."""
    lanes = Lanes(work, count)
    try:
        yield lanes
    except BaseException:
        lanes.interrupt()
        raise
    finally:
        lanes.shutdown()


class Lanes:
    """Processes that do tasks; see :func:`open_lanes`."""

    def __init__(self, work: Work, count: int) -> None:
        # Spawned, not forked: this process may have threads (Polars, Arrow, torch).
        context = multiprocessing.get_context("spawn")
        self._lanes: dict[Connection, BaseProcess] = {}
        self._grace = GRACE
        # A lane that is still importing has no handler yet: it inherits the blocked signal and
        # lets it in when it has.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            for number in range(count):
                ours, theirs = context.Pipe()
                lane = context.Process(target=_lane, args=(theirs, work), name=f"lane-{number}")
                lane.start()
                theirs.close()
                self._lanes[ours] = lane
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def run(self, tasks: Sequence[Task], *, on_event: Send = lambda *_: None) -> list[Any]:
        """Do the tasks: the first that is ready goes to the first free lane.

        Parameters
        ----------
        tasks
            In order of preference.
        on_event
            Called, in this process, with each event of the work.

        Returns
        -------
        Results in the order of the tasks.

        Raises
        ------
        UnderstudyError
            The first fault of a task, or the death of a lane. Tasks that run beside it end
            first; no other one is started.
        KeyboardInterrupt
            If a lane was interrupted.
        """
        left, results = list(range(len(tasks))), dict[int, Any]()
        running: dict[Connection, int] = {}
        fault: BaseException | None = None
        while (left and fault is None) or running:
            if fault is None:
                self._hand_out(tasks, left, running, results)
            for line in wait(list(running)):
                assert isinstance(line, Connection)
                kind, content = self._listen(line, tasks[running[line]].name)
                if kind == "event":
                    on_event(*content)
                    continue
                number = running.pop(line)
                if kind == "done":
                    results[number] = content
                elif fault is None or kind == "interrupted":
                    # An interrupt counts before the faults that it caused.
                    fault = content
        if fault is not None:
            raise fault
        return [results[n] for n in range(len(tasks))]

    def _hand_out(
        self,
        tasks: Sequence[Task],
        left: list[int],
        running: dict[Connection, int],
        results: dict[int, Any],
    ) -> None:
        for line in self._lanes:
            if line in running:
                continue
            ready = (n for n in left if all(before in results for before in tasks[n].after))
            number = next(ready, None)
            if number is None:
                return
            left.remove(number)
            running[line] = number
            # A dead lane is noticed when its answer is read.
            with suppress(BrokenPipeError):
                line.send(tasks[number].payload)

    def _listen(self, line: Connection, task: str) -> tuple[str, Any]:
        try:
            kind, content = line.recv()
        except (EOFError, OSError):
            lane = self._lanes[line]
            lane.join(GRACE)
            return "fault", UnderstudyError(
                f"the process that ran it died (exit code {lane.exitcode})",
                where=task,
                hint="what it had committed stays; run again (was it short of memory?)",
            )
        return kind, KeyboardInterrupt() if kind == "interrupted" else content

    def interrupt(self) -> None:
        """Stop what the lanes do, as Ctrl-C would."""
        self._grace = SHUTDOWN_GRACE
        for lane in self._lanes.values():
            if lane.pid is not None and lane.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(lane.pid, signal.SIGINT)

    def shutdown(self) -> None:
        """Wait for the lanes to end; those that do not are killed."""
        for line in self._lanes:
            # A lane that waits for a task reads the end of its line, and goes.
            line.close()
        deadline = time.monotonic() + self._grace
        for lane in self._lanes.values():
            lane.join(max(0.0, deadline - time.monotonic()))
            if lane.is_alive():
                lane.kill()
                lane.join()


def _lane(line: Connection, work: Work) -> None:
    """Main function of a lane."""
    # Ctrl-C goes to the coordinator alone, which passes it on once.
    os.setpgid(0, 0)
    # A run in the background of a script is started with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sending = threading.Lock()

    def send(kind: str, content: Any) -> None:
        # Without a coordinator there is no reader: an interrupt is on its way.
        with sending, suppress(BrokenPipeError, ConnectionResetError):
            line.send((kind, content))

    do: Callable[[Any], Any] | None = None
    with (
        suppress(EOFError, ConnectionResetError, KeyboardInterrupt),
        bounded_end(INTERRUPTED_GRACE),
        ExitStack() as stack,
    ):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        _end_with_the_coordinator()
        while True:
            payload = line.recv()
            try:
                if do is None:
                    do = stack.enter_context(work(lambda *content: send("event", content)))
                result = do(payload)
            except UnderstudyError as fault:
                send("fault", fault)
            except KeyboardInterrupt:
                send("interrupted", None)
                raise
            except Exception as fault:  # noqa: BLE001 - raised again by the coordinator
                shown = {"traceback": traceback.format_exc()}
                send("fault", UnderstudyError(f"{type(fault).__name__}: {fault}", details=shown))
            else:
                send("done", result)


def _end_with_the_coordinator() -> None:
    """Interrupt this process, and silence it, when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="coordinator-watch", daemon=True).start()
