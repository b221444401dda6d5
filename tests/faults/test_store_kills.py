"""SIGKILL at every file operation of a commit and a publish, and at random moments.

The file is also the program that is killed: ``python test_store_kills.py MODE HOME``. It
imports everything once and forks a child per kill, because importing takes far longer than
committing; the parent itself only reads files, so that no thread pool exists when it forks.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from support.killing import die_at, import_all, in_child

import pipelines.contracts  # noqa: F401 - imported before the fork, not after
from pipelines.store import Build, CheckRecord, Store, Table

pytestmark = pytest.mark.faults

MOST = 1000
RANDOM_KILLS = 25


def publish(home: Path, turn: int) -> str:
    """Write two tables together, record a check, publish: what a run does. Its version."""
    store = Store(home)
    splits = pl.DataFrame({"user_id": [f"ml-user:{turn}"], "item_id": ["ml:1"], "split": ["train"]})
    missing = pl.DataFrame({"tmdb_id": [turn + 1], "reason": ["not_found"]})
    inputs = {"file:world": f"{turn:064d}"}
    with store.run_lock():
        tables = [Table("movies.splits", [splits]), Table("raw.tmdb_missing", [missing])]
        datasets = tuple(t.dataset for t in tables)
        # Not reused, so that each turn writes and sweeps what the last one left.
        made = store.build(Build(datasets, lambda: tables, "1", {}, inputs, reusable=False))
        for dataset, snapshot in made.items():
            store.record_checks(dataset, snapshot.version, [CheckRecord("rows", passed=True)])
        release = store.publish(
            "movies",
            {
                "splits": store.current("movies.splits"),
                "missing": store.current("raw.tmdb_missing"),
            },
            world="w",
            required={"movies.splits": ["rows"], "raw.tmdb_missing": ["rows"]},
            card=f"# Turn {turn}\n",
            settings={"turn": turn},
        )
    return release.version


def problems(home: Path, seen: set[Path] | None = None) -> list[str]:
    """Faults that a reader could meet, at any moment and after any kill.

    Immutable things in ``seen`` are not read again, and new ones are added to it.
    """
    store, found = Store(home), []
    seen = set() if seen is None else seen

    def unseen(pattern: str) -> list[Path]:
        new = [p for p in home.glob(pattern) if p not in seen]
        seen.update(new)
        return new

    def check(what: str, step: Callable[[], Any]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            found.append(f"{what}: {error!r}")

    for file in home.glob("refs/*.json"):
        check(f"ref {file.name}", lambda f=file: store.current(f.stem).verify())
    for folder in unseen("data/*/*"):
        name, version = folder.parent.name, folder.name
        check(f"data {name}", lambda n=name, v=version: store.get(n, v).verify())
    for file in unseen("builds/*/*.json"):
        check(
            f"build {file}",
            lambda f=file: store.get(f.parent.name, json.loads(f.read_text())["version"]),
        )
    for file in unseen("checks/*/*.json"):
        check(f"checks {file}", lambda f=file: store.checks(f.parent.name, f.stem))
    for file in unseen("releases/*.json"):
        check(f"release {file.name}", lambda f=file: found.extend(store.verify(str(f)).problems))
    for file in home.glob("refs/releases/*.json"):
        check("latest", lambda f=file: found.extend(store.verify(f"{f.stem}@latest").problems))
    # Only complete things have visible names.
    visible = re.compile(
        r"(data/[a-z_.]+/[0-9a-f]{16}(/(part-\d{5}\.parquet|_manifest\.json))?"
        r"|refs/[a-z_.]+\.json|refs/releases/movies\.json|builds/[a-z_.]+/[0-9a-f]{32}\.json"
        r"|checks/[a-z_.]+/[0-9a-f]{16}\.json|releases/movies@[0-9a-f]{16}\.(json|md)"
        r"|_format\.json|_(locks|staging)/.*|refs/releases|(data|builds|checks)(/[a-z_.]+)?"
        r"|refs|releases|_locks|_staging)"
    )
    found += [
        f"unexpected {p}"
        for p in (str(p.relative_to(home)) for p in home.rglob("*"))
        if not visible.fullmatch(p)
    ]
    return found


def latest(home: Path) -> str | None:
    pointer = home / "refs" / "releases" / "movies.json"
    return json.loads(pointer.read_text())["version"] if pointer.exists() else None


def kill_everywhere(home: Path, *, partial: bool) -> dict[str, Any]:
    findings: list[str] = []
    before_kill = after_kill = 0
    seen: set[Path] = set()
    for number in range(1, MOST):
        previous = latest(home)

        def killed_commit(turn: int = number) -> None:
            die_at(turn, partial=partial)
            publish(home, turn)

        killed = in_child(killed_commit)
        findings += [f"killed at operation {number}: {p}" for p in problems(home, seen)]
        interrupted = latest(home)
        in_child(lambda turn=number: publish(home, turn))
        findings += [f"after the rerun {number}: {p}" for p in problems(home, seen)]
        final = latest(home)
        if interrupted not in {previous, final}:
            findings.append(f"killed at operation {number}: latest is {interrupted}")
        if final == previous:
            findings.append(f"after the rerun {number}: latest has not moved")
        findings += [f"left by {number}: {p.name}" for p in (home / "_staging").iterdir()]
        if not killed:
            break
        before_kill += interrupted == previous
        after_kill += interrupted == final
    findings += problems(home)
    return {"kills": number - 1, "old": before_kill, "new": after_kill, "findings": findings}


def kill_at_random(home: Path) -> dict[str, Any]:
    findings: list[str] = []
    seen: set[Path] = set()
    chance = random.Random(20)
    turn = 0
    for _ in range(RANDOM_KILLS):
        start = turn = turn + 1000

        def endless(first: int = start) -> None:
            for n in range(first, first + 1000):
                publish(home, n)

        pid = os.fork()
        if pid == 0:
            endless()
            os._exit(1)
        # Not before it has published something, so that the kill comes in the middle of work
        # on a machine of any speed.
        previous = latest(home)
        deadline = time.monotonic() + 60
        while latest(home) == previous and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        findings += problems(home, seen)
    in_child(lambda: publish(home, turn + 1000))
    findings += problems(home)
    findings += [f"left: {p.name}" for p in (home / "_staging").iterdir()]
    published = len(list(home.glob("releases/*.json")))
    return {"kills": RANDOM_KILLS, "published": published, "findings": findings}


def run(mode: str, home: Path) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, __file__, mode, str(home)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


@pytest.mark.forks
def test_a_kill_at_any_file_operation_leaves_only_whole_things(folder: Path) -> None:
    result = run("everywhere", folder / "home")
    assert result["findings"] == []
    # A commit and publish is that many operations at least; some kills come before the
    # pointer moves and some after.
    assert result["kills"] > 40
    assert result["old"] > 40
    assert result["new"] > 0


@pytest.mark.forks
def test_a_kill_in_the_middle_of_any_write_leaves_only_whole_things(folder: Path) -> None:
    result = run("partial", folder / "home")
    assert result["findings"] == []
    assert result["kills"] >= 10


@pytest.mark.night
def test_kills_at_random_moments_leave_only_whole_things(folder: Path) -> None:
    result = run("random", folder / "home")
    assert result["findings"] == []
    assert result["kills"] >= 20
    assert result["published"] > RANDOM_KILLS


if __name__ == "__main__":
    where = Path(sys.argv[2])
    import_all(lambda: publish(where, 0), where.with_name("modules"))
    outcome = {
        "everywhere": lambda: kill_everywhere(where, partial=False),
        "partial": lambda: kill_everywhere(where, partial=True),
        "random": lambda: kill_at_random(where),
    }[sys.argv[1]]()
    print(json.dumps(outcome))
