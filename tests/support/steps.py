"""`understudy run` on a small home, killed or interrupted when a named step starts.

Steps are named as Dagster names them: ``ingest_movielens``, ``dbt_movies``, ``movies_items``. Their
starts are read from Dagster's event log, where they are written before the step's body runs.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from pathlib import Path

import psutil
from support.fork_server import ForkedProcess, ForkServer

from pipelines.sources import SOURCES

__all__ = ["FILMS", "PATIENCE", "SMALL", "StartedRun", "start_run", "steps_of"]

#: Options of a run that makes every table of one domain from few rows.
SMALL = (
    *("--job", "movies", "--set", "personas.count=20"),
    *("--set", "world.sample.films=60", "--set", "world.sample.users=40"),
    *("--set", "world.sample.ratings=2000"),
)
#: Options that select the original files of the films, and a model of dbt that is made of them.
FILMS = tuple(
    f"--select={asset}"
    for asset in (
        "sources/world_files",
        *(
            f"raw/{d.removeprefix('raw.')}"
            for n in ("movielens", "tmdb")
            for d in SOURCES[n].datasets
        ),
        "staging/stg_movielens__ratings",
    )
)
#: Longest wait for a step (seconds): a test that reaches it has failed.
PATIENCE = 1_800.0


class StartedRun:
    """A running `understudy run`.

    Attributes
    ----------
    process
        The process that was started; leader of its own session.
    home
        Home that it works on.
    log
        File with everything that it printed.
    """

    def __init__(
        self, process: subprocess.Popen[bytes] | ForkedProcess, home: Path, log: Path
    ) -> None:
        self.process, self.home, self.log = process, home, log
        self._known = set(_run_logs(home))

    def wait_for_step(self, step: str) -> None:
        """Wait until this step of this run has started.

        Raises
        ------
        AssertionError
            The run ended without it.
        """
        self._wait_until(lambda: step in steps_of(self.home, since=self._known), f"step {step}")

    def wait_for_child(self, name: str) -> psutil.Process:
        """Wait until a child process of this program or module, such as ``dbt``, runs."""
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = [p for p in self.processes() if _runs(p, name)]
            return bool(found)

        self._wait_until(look, f"process {name}")
        return found[0]

    def processes(self) -> list[psutil.Process]:
        """The run's process and all its descendants."""
        try:
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL for every process of the run: none outlives the others."""
        stopped: set[psutil.Process] = set()
        # A stopped process starts no others, so that the list is complete after few rounds.
        while new := set(self.processes()) - stopped:
            for process in new:
                _send(process, signal.SIGSTOP)
            stopped |= new
        for process in stopped:
            _send(process, signal.SIGKILL)
        self.process.wait(PATIENCE)
        _, alive = psutil.wait_procs(list(stopped), timeout=PATIENCE)
        assert not alive, alive

    def output(self) -> str:
        """Output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            ended = self.process.poll()
            assert ended is None, f"ended ({ended}) before {what}: {self.output()[-2000:]}"
            assert time.monotonic() < deadline, f"{what} never started: {self.output()[-2000:]}"
            time.sleep(0.05)


def start_run(
    program: Path | ForkServer, home: Path, *options: str, file_size: int | None = None
) -> StartedRun:
    """Start `understudy run` on a home with these options, in a session of its own.

    Parameters
    ----------
    program
        The console script, or a server that forks it.
    home
        Home of the run.
    options
        Further options of the command.
    file_size
        Limit of the size of a file that a fork writes (bytes).
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    log = home.with_name(f"{home.name}.log")
    words = ["run", "--home", str(home), *options]
    if isinstance(program, ForkServer):
        return StartedRun(program.start(words, log, file_size=file_size), home, log)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "TMDB_"))}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=clean,
            start_new_session=True,
        )
    return StartedRun(process, home, log)


def steps_of(home: Path, *, since: Collection[Path] = ()) -> list[str]:
    """Steps that started on a home, in order; with ``since`` only those of later event logs."""
    found: list[tuple[float, str]] = []
    for path in _run_logs(home):
        if path in since:
            continue
        query = "select timestamp, step_key from event_logs where dagster_event_type = 'STEP_START'"
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as log:
                found += log.execute(query).fetchall()
        except sqlite3.OperationalError:
            continue  # being created
    return [step for _, step in sorted(found)]


def _run_logs(home: Path) -> list[Path]:
    return [p for p in (home / "dagster" / "history" / "runs").glob("*.db") if p.stem != "index"]


def _runs(process: psutil.Process, name: str) -> bool:
    try:
        return any(name in Path(word).name.split(".")[-1] for word in process.cmdline()[:4])
    except psutil.Error:
        return False


def _send(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
