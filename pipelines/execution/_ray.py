"""Parts as tasks of a Ray cluster; the only module that imports Ray.

Tasks, not actors: an actor pool did not survive the loss of a node where tasks did
(docs/decisions/0016). Ray repeats a task whose worker or node died.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import pipelines
from pipelines import instructions
from pipelines.config import ExecutionSettings
from pipelines.errors import ConfigError, EngineError, UnderstudyError
from pipelines.execution import Work
from pipelines.extras import missing_package

# A worker imports this module before anything that loads NumPy.
instructions.fix()
# Read when Ray is imported: no figures of ours go to its makers, and its messages to no file.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
try:
    import ray
    from ray import exceptions
except ModuleNotFoundError as error:
    raise missing_package(error, where="execution.executor=ray", extra="cluster") from error

#: Longest wait for a worker that begins (seconds).
_PATIENCE = 60.0
#: Longest wait for a cluster's address to answer (seconds).
_ANSWER = 10.0
#: Interval at which a wait looks for Ctrl-C and for lost nodes (seconds).
_LOOK = 1.0
#: Submitted parts per worker: one runs, one waits (count).
_AHEAD = 2
#: Exceptions of lost workers or nodes.
_LOST = (
    exceptions.LocalRayletDiedError,
    exceptions.NodeDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
    exceptions.RaySystemError,
    exceptions.WorkerCrashedError,
)


P = TypeVar("P")
R = TypeVar("R")


class RayExecutor:
    """Computes each part as a task of a Ray cluster; see :class:`Executor`.

    Connects to ``execution.address``, or starts a cluster of this machine's cores if that is empty.
    Raises ConfigError if the address can't be reached, or the cluster has another version of Python
    or Ray.
    """

    name = "ray"

    def __init__(self, settings: ExecutionSettings) -> None:
        self._cpus, self._retries = settings.cpus, settings.max_rounds - 1
        address = settings.address or None
        before = signal.getsignal(signal.SIGTERM)
        try:
            _connect(settings.address)
            ray.init(
                # Without an address Ray joins a cluster that somebody else runs on this machine.
                address=address or "local",
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"no Ray cluster answers ({_line(error)})",
                where=f"execution.address {settings.address}",
                hint="check the address, and that this machine reaches it",
            ) from error
        except RuntimeError as error:  # of another version
            raise ConfigError(
                " ".join(str(error).split()),  # both sides' versions, on lines of their own
                where=f"execution.address {settings.address or 'of this machine'}",
                hint="start cluster and driver from the same image",
            ) from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray's own handler ends the process at once

    def map(self, work: Work[P, R], parts: Iterable[P]) -> Iterator[R]:
        """See :class:`Executor`."""
        options: dict[str, Any] = {"num_cpus": self._cpus, "scheduling_strategy": "SPREAD"}
        shared = ray.put(work)
        self._compare(work, shared, options)
        run: Any = ray.remote(max_retries=self._retries, **options)(_run)
        remaining = iter(parts)
        running: deque[Any] = deque()
        try:
            while True:
                free = max(_AHEAD * self._workers() - len(running), 0)
                running.extend(run.remote(shared, part) for part in islice(remaining, free))
                if not running:
                    return
                self._wait(running[0])
                yield _result(running.popleft())
        finally:
            for reference in running:
                with contextlib.suppress(Exception):
                    ray.cancel(reference, force=True)

    def _wait(self, reference: Any) -> None:
        """Wait for a result, and no longer than a minute without workers."""
        seen = time.monotonic()
        while not ray.wait([reference], timeout=_LOOK)[0]:
            if self._workers(at_least=0):
                seen = time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                raise EngineError(
                    f"the cluster has had no {self._cpus:g} CPUs for {_PATIENCE:g} s",
                    where="executor ray",
                    hint="add nodes and run again",
                )

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        ray.shutdown()

    def _workers(self, at_least: int = 1) -> int:
        """Parts that the cluster can compute at once (count)."""
        cpus: float = ray.cluster_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
        return max(at_least, math.floor(cpus / self._cpus))

    def _compare(self, work: Work[Any, Any], shared: Any, options: Mapping[str, Any]) -> None:
        """Ask one worker for its versions: ConfigError if they are others."""
        reference = ray.remote(max_retries=0, **options)(_versions).remote(shared)
        ready, _ = ray.wait([reference], timeout=_PATIENCE)
        if not ready:
            ray.cancel(reference, force=True)
            free = ray.available_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
            raise EngineError(
                f"no worker started within {_PATIENCE:g} s: {free:g} CPUs are free, a part needs "
                f"{self._cpus:g}",
                where="executor ray",
                hint="wait for other jobs, add nodes, or lower execution.cpus",
            )
        try:
            there = ray.get(reference)
        except _LOST as error:
            raise EngineError(
                f"the first worker died ({type(error).__name__})",
                where="executor ray",
                hint="see Ray's logs on its node; a worker needs the memory of a part",
            ) from None
        except exceptions.RayTaskError as error:
            raise ConfigError(
                f"a worker can't load the work ({_line(error.cause)})",
                where="executor ray",
                hint="install the same version of understudy on the cluster's nodes",
            ) from None
        here = _versions(work)
        for what in here:
            if there.get(what) != here[what]:
                raise ConfigError(
                    f"{what} is {here[what]} here and {there.get(what)} on a worker",
                    where="executor ray",
                    hint="start cluster and driver from the same image",
                )


def _connect(address: str) -> None:
    """Raise an OSError at a closed port: Ray would try for minutes, and then without end."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), _ANSWER).close()


def _versions(work: Work[Any, Any]) -> dict[str, Any]:
    return {
        "Python": platform.python_version(),
        "Ray": ray.__version__,
        "understudy": pipelines.__version__,
        **work.versions(),
    }


def _run(work: Work[P, R], part: P) -> R | UnderstudyError:
    """A task: a part's result, or our own error as a value, which Ray would wrap."""
    try:
        return work(part)
    except UnderstudyError as fault:
        return fault


def _result(reference: Any) -> Any:
    try:
        found = ray.get(reference)
    except _LOST as error:
        raise EngineError(
            f"the workers of a part died ({type(error).__name__})",
            where="executor ray",
            hint="see Ray's logs on their nodes; a worker needs the memory of a part",
        ) from None
    except exceptions.RayTaskError as error:
        raise error.cause from None
    if isinstance(found, UnderstudyError):
        raise found
    return found


def _line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
