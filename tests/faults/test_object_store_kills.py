"""SIGKILL before every write to an object store of a commit and publish, and at random moments.

The file is also the program that forks and kills: ``python test_object_store_kills.py MODE HOME
FOLDER``. Its parent never opens the store, because the client's threads do not survive a fork.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore  # imported before the fork, not after
import polars as pl
import pytest

import pipelines.contracts  # noqa: F401
from pipelines.errors import IntegrityError
from pipelines.store import Build, CheckRecord, Store, Table

pytestmark = [pytest.mark.faults, pytest.mark.night]

KILLS = 20


def publish(home: str, turn: int) -> str:
    """Write two tables together, record a check, publish: what a run does. Its version."""
    store = Store(home)
    splits = pl.DataFrame({"user_id": [f"ml-user:{turn}"], "item_id": ["ml:1"], "split": ["train"]})
    missing = pl.DataFrame({"tmdb_id": [turn + 1], "reason": ["not_found"]})
    with store.lock("run", timeout=60):
        tables = [Table("movies.splits", [splits]), Table("raw.tmdb_missing", [missing])]
        datasets = tuple(t.dataset for t in tables)
        # The rows of the last turn again: a killed one is completed by the next.
        made = store.build(Build(datasets, lambda: tables, "1", {}, {}, reusable=False))
        for dataset, snapshot in made.items():
            store.record_checks(dataset, snapshot.version, [CheckRecord("rows", passed=True)])
        release = store.publish(
            "movies",
            {name.partition(".")[2]: snapshot for name, snapshot in made.items()},
            world="w",
            required={"movies.splits": ["rows"], "raw.tmdb_missing": ["rows"]},
            card=f"# Turn {turn}\n",
            settings={"turn": turn},
        )
    return release.version


def problems(home: str) -> list[str]:
    """Faults that a reader could meet; versions without a manifest do not exist."""
    store, found = Store(home), []
    files, layout = store.files, store._layout
    for dataset in files.names(layout.data):
        for version in files.names(layout.data / dataset):
            if "_manifest.json" in files.names(layout.snapshot(dataset, version)):
                found += [str(p) for p in store.get(dataset, version).problems()]
        for name in files.names(layout.builds(dataset)):
            record = json.loads(files.read(layout.builds(dataset) / name) or b"")
            store.get(dataset, record["version"])
        if store.has(dataset):
            store.current(dataset).verify()
    locks = [n for n in files.names(layout.releases) if n.endswith(".json")]
    releases = store.releases()
    if len(releases) != len(locks):
        found.append(f"{len(locks)} lock files, {len(releases)} of them whole")
    for release in releases:
        found += store.verify(release, lineage=True).problems
    if releases:
        store.release("movies@latest")
    return found


def end_leases(home: str) -> None:
    """Let every lease be past its end, as if the time had gone by."""
    files = Store(home).files
    for name in files.names(files.root / "_locks"):
        path = files.root / "_locks" / name
        record = json.loads(files.read(path) or b"")
        files.put(path, json.dumps({**record, "expires": "2000-01-01T00:00:00+00:00"}).encode())


def forked(step: Callable[[], Any], out: Path | None = None) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            found = step()
            if out is not None:
                out.write_text(json.dumps(found))
            code = 0
        except IntegrityError as error:
            if out is not None:
                out.write_text(json.dumps([repr(error)]))
                code = 0
        except BaseException:  # noqa: BLE001 - shown, and the parent sees the code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def in_child(step: Callable[[], Any], out: Path) -> Any:
    _, status = os.waitpid(forked(step, out), 0)
    assert status == 0, "the child failed; see above"
    return json.loads(out.read_text())


def die_at(number: int) -> None:
    """Let this process die before that write from now on."""
    left = iter(range(number - 1, -1, -1))

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return write(*args, **options)

        return counted

    obstore.put, obstore.delete = dying(obstore.put), dying(obstore.delete)


def kill_everywhere(home: str, folder: Path) -> dict[str, Any]:
    findings: list[str] = []
    out, kills = folder / "out", 0
    in_child(lambda: publish(home, 0), out)
    for turn in range(1, 100):

        def dying_publish(turn: int = turn, number: int = kills + 1) -> None:
            die_at(number)
            publish(home, turn)

        _, status = os.waitpid(forked(dying_publish), 0)
        if status == 0:
            break
        assert os.WIFSIGNALED(status), "the driver failed; see above"
        kills += 1
        in_child(lambda: end_leases(home), out)
        findings += [f"write {kills}: {p}" for p in in_child(lambda: problems(home), out)]
    return {"kills": kills, "findings": findings}


def kill_at_random(home: str, folder: Path) -> dict[str, Any]:
    findings: list[str] = []
    chance, mark, out = random.Random(20), folder / "published", folder / "out"
    for kill in range(KILLS):
        mark.unlink(missing_ok=True)

        def endless(first: int = kill * 1000) -> None:
            for turn in range(first, first + 1000):
                publish(home, turn)
                mark.touch()

        pid = forked(endless)
        # Not before it has published something, so that the kill comes in the middle of work.
        deadline = time.monotonic() + 120
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.6))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            findings.append(f"kill {kill}: the driver had ended")
        in_child(lambda: end_leases(home), out)
        if kill % 5 == 4:
            findings += in_child(lambda: problems(home), out)
    last = in_child(lambda: publish(home, KILLS * 1000), out)
    findings += in_child(lambda: problems(home), out)
    ends = in_child(lambda: [Store(home).release("movies@latest").version], out)
    published = in_child(lambda: len(Store(home).releases()), out)
    return {"latest": ends == [last], "published": published, "findings": findings}


def run(mode: str, home: str, folder: Path) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, __file__, mode, home, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_kills_before_every_write_leave_only_whole_things(s3_home: str, tmp_path: Path) -> None:
    found = run("everywhere", s3_home, tmp_path)
    assert found["findings"] == []
    # Two tables of two files, four records and two pointers, card, lock file, two leases.
    assert found["kills"] >= 16


def test_kills_at_random_moments_leave_only_whole_things(s3_home: str, tmp_path: Path) -> None:
    found = run("random", s3_home, tmp_path)
    assert found["findings"] == []
    assert found["latest"]
    assert found["published"] > KILLS


if __name__ == "__main__":
    program = {"everywhere": kill_everywhere, "random": kill_at_random}[sys.argv[1]]
    print(json.dumps(program(sys.argv[2], Path(sys.argv[3]))))
