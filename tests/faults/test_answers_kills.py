"""SIGKILL and SIGINT during bulk runs: nothing committed is lost, nothing is asked for nothing.

The file is also the program that is killed: ``python test_answers_kills.py MODE HOME LOG``. It
imports everything once and forks a child per kill, because importing takes far longer than what
is killed; the parent itself only reads the log, so that no thread pool exists when it forks.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

# Imported before the fork, not after, in each child again.
import psutil  # noqa: F401
from support.calls import question
from support.killing import die_at, forked, import_all, in_child, kill_once, wait_for

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, Tally, answer_keys, ask
from pipelines.llm.engines import Request
from pipelines.llm.engines.scripted import ScriptedEngine

pytestmark = pytest.mark.faults

KILLS = 20
COUNT = 1200
EVERY = 8
WINDOW = 5


def requests(count: int) -> list[Request]:
    """Different requests, and some of them twice."""
    made = [question(n, tag=n) for n in range(count)]
    return [*made, *made[::7]]


def engine_of(log: int, window: int, delay: float) -> ScriptedEngine:
    """Writes down what it is asked before it answers, as a bill would."""

    def rule(request: Request) -> str:
        os.write(log, f"{request.tag}\n".encode())
        time.sleep(delay)
        return f"Answer {request.tag}."

    return ScriptedEngine(rule, name="billed", window=window)


def bulk_run(home: Path, log: Path) -> None:
    """Killed process: ask all requests, and store the answers."""
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with AnswerStore(home) as store:
        engine = engine_of(written, WINDOW, 0.0005)
        for _ in ask(engine, requests(COUNT), store, serving=ServingSettings(commit_every=EVERY)):
            pass


def figures(home: Path) -> dict[str, Any]:
    """State of the store, read in a child."""
    place = home.with_name("figures")
    pid = forked(lambda: place.write_text(json.dumps(AnswerStore(home).stats().to_dict())) and None)
    assert os.waitpid(pid, 0)[1] == 0
    found: dict[str, Any] = json.loads(place.read_text())
    return found


def billed(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def kill_at_random(home: Path, log: Path) -> None:
    """Kill runs at random moments, look at what is left, and let the last one end."""
    dice = random.Random(3)
    stored = 0
    for _ in range(KILLS):
        before = len(billed(log))
        kill_once(lambda: bulk_run(home, log), log, dice, 80)
        found = figures(home)
        assert found["problems"] == []
        # All that this run asked is stored but its last, uncommitted N and what was under way;
        # and what was stored before it is there.
        asked = len(billed(log)) - before
        assert stored <= found["answers"]
        assert asked - EVERY - WINDOW < found["answers"] - stored <= asked
        stored = found["answers"]
    assert 0 < stored < COUNT
    pid = forked(lambda: bulk_run(home, log))
    assert os.waitpid(pid, 0)[1] == 0


def few(home: Path, log: Path, turn: int) -> None:
    """Killed process: ask and store ten requests of a turn, in three commits."""
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    batch = [question(f"{turn}.{n}", tag=turn) for n in range(10)]
    with AnswerStore(home) as store:
        engine = engine_of(written, 1, 0)
        for _ in ask(engine, batch, store, serving=ServingSettings(commit_every=4)):
            pass


def die_at_statement(number: int) -> None:
    """Kill this process when it sends its n-th statement to a file of answers."""
    count = 0
    connect = sqlite3.connect

    def watched(statement: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(watched)
        return connection

    sqlite3.connect = connected


def kill_everywhere(home: Path, log: Path) -> None:
    """Kill a bulk run at its first statement, its second, …; look, and let it end."""
    stored = 0
    for turn in range(1, 1000):

        def killed_run(turn: int = turn) -> None:
            die_at(turn, partial=False)
            die_at_statement(turn)
            few(home, log, turn)

        killed = in_child(killed_run)
        left = figures(home)
        assert left["problems"] == []
        assert stored <= left["answers"] <= stored + 10, "what was stored stays"
        in_child(lambda turn=turn: few(home, log, turn))
        stored += 10
        ended = figures(home)
        assert (ended["problems"], ended["answers"]) == ([], stored)
        # Asked again at most: a commit of four that was not stored, and the one under way.
        assert billed(log).count(turn) <= 10 + 5
        if not killed:
            break
    print(turn - 1)


def run(mode: str, home: Path, log: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, __file__, mode, str(home), str(log)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.forks
def test_kill_at_any_statement_loses_no_stored_answer(folder: Path) -> None:
    process = run("everywhere", folder / "home", folder / "log")
    kills, complaint = process.communicate()
    assert process.returncode == 0, complaint.decode()
    assert int(kills) > 20


@pytest.mark.night
def test_after_kills_at_random_moments_every_request_has_one_answer_and_few_were_asked_twice(
    folder: Path,
) -> None:
    home, log = folder / "home", folder / "log"
    process = run("kills", home, log)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint.decode()
    assert complaint == b""

    store = AnswerStore(home)
    every = requests(COUNT)
    keys = answer_keys(engine_of(0, 1, 0).identity, every)
    got = store.get(keys)
    assert {key: got[key].text for key in keys} == {
        key: f"Answer {r.tag}." for key, r in zip(keys, every, strict=True)
    }
    assert store.stats().answers == COUNT
    bill = Counter(billed(log))
    assert set(bill) == set(range(COUNT))
    assert bill.total() - COUNT <= KILLS * (EVERY + WINDOW)

    tally = Tally()
    with log.open("a") as again:
        engine = engine_of(again.fileno(), 3, 0)
        rows = list(ask(engine, every, store, serving=ServingSettings(), tally=tally))
    assert (len(rows), tally.calls, tally.hits) == (len(every), 0, len(every))
    assert Counter(billed(log)) == bill, "a rerun asks nothing"


@pytest.mark.forks
def test_ctrl_c_commits_what_was_answered(folder: Path) -> None:
    home, log = folder / "home", folder / "log"
    process = run("once", home, log)
    wait_for(log, 30)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in complaint
    asked = len(billed(log))
    assert asked < COUNT
    # The window may hold one request that was asked and interrupted before it was answered.
    assert asked - 1 <= AnswerStore(home).stats().answers <= asked


if __name__ == "__main__":
    mode, where, journal = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if mode != "once":
        import_all(lambda: few(where, journal, 0), where.with_name("modules"))
        for path in (where, journal):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
    {"kills": kill_at_random, "once": bulk_run, "everywhere": kill_everywhere}[mode](where, journal)
