"""`understudy` in forks of a process that has done the slow imports once.

A command starts in well under a second instead of fifteen, which makes a kill at every step by
name affordable. The file is also the server's program.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
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
    "sentence_transformers",
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
            time.sleep(0.05)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal; one that has ended gets none."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A context manager around the server process, which starts with the first command."""

    _process: subprocess.Popen[str] | None = None
    _asked = 0

    def __enter__(self) -> Self:
        return self

    def _start(self) -> subprocess.Popen[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "TMDB_"))}
        # Threads do not survive a fork: these libraries start a pool when imported.
        clean |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean,
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process:
            self._process.stdin.close()  # type: ignore[union-attr]
            self._process.stdout.close()  # type: ignore[union-attr]
            self._process.wait(60)

    def start(
        self,
        words: list[str],
        log: Path,
        *,
        errors: Path | None = None,
        env: Mapping[str, str] | None = None,
        file_size: int | None = None,
    ) -> ForkedProcess:
        """Start ``understudy`` in a session of its own.

        Parameters
        ----------
        words
            Arguments of the command.
        log
            File for its standard output.
        errors
            File for its standard error; default: ``log``.
        env
            Environment variables beside the server's.
        file_size
            Soft limit of the size of a file that it writes (bytes).
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        files = [str(log), str(errors or log)]
        answer = self._ask(words=words, files=files, env=dict(env or {}), file_size=file_size)
        return ForkedProcess(self, answer["pid"])

    def run(
        self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 1800
    ) -> subprocess.CompletedProcess[str]:
        """Run ``understudy`` to its end, as :func:`subprocess.run` does."""
        with tempfile.TemporaryDirectory() as folder:
            out, errors = Path(folder, "out"), Path(folder, "errors")
            process = self.start(list(words), out, errors=errors, env=env)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            return subprocess.CompletedProcess(
                ["understudy", *words], code, out.read_text("utf-8"), errors.read_text("utf-8")
            )

    def _send(self, **question: Any) -> subprocess.Popen[str]:
        self._process = self._process or self._start()
        assert self._process.stdin is not None
        self._asked += 1
        self._process.stdin.write(json.dumps(question | {"number": self._asked}) + "\n")
        self._process.stdin.flush()
        return self._process

    def _ask(self, **question: Any) -> dict[str, Any]:
        process = self._send(**question)
        assert process.stdout is not None
        while True:
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            # A test that its time limit ended may have left an answer unread.
            if answer.pop("number") == self._asked:
                return answer


def _serve() -> None:
    for name in _PRELOAD:
        importlib.import_module(name)
    # No collection of a child walks through what was imported, and copies its pages.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    codes: dict[int, int] = {}  # the system tells a code once; the answer may be left unread
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, Any] = {"number": question["number"]}
        if "words" in question:
            answer["pid"] = _fork(question)
            codes.pop(answer["pid"], None)
        else:
            asked = question["poll"]
            if asked not in codes:
                pid, status = os.waitpid(asked, os.WNOHANG)
                if pid:
                    codes[pid] = os.waitstatus_to_exitcode(status)
            answer["code"] = codes.get(asked)
        print(json.dumps(answer), flush=True)


def _fork(question: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, handler)
        opened = [os.open(os.devnull, os.O_RDONLY)]
        opened += [
            os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            for name in question["files"]
        ]
        for target, source in enumerate(opened):
            os.dup2(source, target)
        os.environ.update(question["env"])
        if question["file_size"]:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (question["file_size"], hard))
        from pipelines.cli.main import main

        main(question["words"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - shown in the log, and the exit code tells
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
