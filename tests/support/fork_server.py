"""`understudy` in forks of a process that has done the slow imports once.

A command starts in well under a second instead of ten, which makes a kill at every step by name
affordable. The file is also the server's program.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["ForkServer", "ForkedProcess"]

#: Slow imports that start no thread pool before use.
_PRELOAD = (
    "orchestration.cli",
    "orchestration.headless",
    "great_expectations",
    "matplotlib.pyplot",
)


class ForkedProcess:
    """A child of the server, with the methods of :class:`subprocess.Popen` that tests use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server._ask(poll=self.pid)["code"]
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end (seconds); its exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("understudy", timeout)
            time.sleep(0.02)
        return code


class ForkServer:
    """A context manager around the server process."""

    def __enter__(self) -> Self:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "TMDB_"))}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Threads do not survive a fork: these libraries start a pool when imported.
            env={**clean, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.wait(60)

    def start(self, words: list[str], log: Path) -> ForkedProcess:
        """Start ``understudy`` with these words in a session of its own; output goes to a file."""
        return ForkedProcess(self, self._ask(words=words, log=str(log))["pid"])

    def _ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def _serve() -> None:
    for name in _PRELOAD:
        importlib.import_module(name)
    for line in sys.stdin:
        question = json.loads(line)
        if "words" in question:
            answer = {"pid": _fork(question["words"], question["log"])}
        else:
            pid, status = os.waitpid(question["poll"], os.WNOHANG)
            answer = {"code": os.waitstatus_to_exitcode(status) if pid else None}
        print(json.dumps(answer), flush=True)


def _fork(words: list[str], log: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, handler)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for source, target in ((nowhere, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        from pipelines.cli.main import main

        main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - shown in the log, and the exit code tells
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
