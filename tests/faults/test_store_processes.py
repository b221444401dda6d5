"""Two processes on one store at once: both are right at the end.

The file is also the program that runs twice: ``python test_store_processes.py WORK HOME NAME``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from pipelines.store import CheckRecord, Store

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

SPLITS = "movies.splits"
TURNS = 15


def rows(text: str, turn: int) -> pl.DataFrame:
    number = sum(text.encode()) * 1000 + turn
    return pl.DataFrame({"user_id": [f"ml-user:{number}"], "item_id": ["ml:1"], "split": ["train"]})


def same_content(store: Store, name: str) -> None:
    for turn in range(TURNS):
        snapshot = store.commit(SPLITS, rows("both", turn), code_version="1")
        assert snapshot.read().equals(rows("both", turn))


def other_content(store: Store, name: str) -> None:
    for turn in range(TURNS):
        snapshot = store.commit(SPLITS, rows(name, turn), code_version="1")
        assert snapshot.read().equals(rows(name, turn))


def checks(store: Store, name: str) -> None:
    version = store.current(SPLITS).version
    for turn in range(TURNS):
        store.record_checks(SPLITS, version, [CheckRecord(f"{name}-{turn}", passed=True)])


def releases(store: Store, name: str) -> None:
    for turn in range(TURNS):
        # Half of the turns publish what the other process publishes too.
        content = name if turn % 2 else "both"
        snapshot = store.commit(SPLITS, rows(content, turn), code_version="1")
        release = store.publish(
            "movies",
            {"splits": snapshot},
            world="w",
            required={},
            card=f"# By {name}\n",
            settings={},
        )
        assert store.verify(release).ok


def sweeps(store: Store, name: str) -> None:
    """A process commits; the other looks for dead stagings all the while."""
    done = store.home / "done"
    if name == "one":
        for turn in range(TURNS):
            store.commit(SPLITS, rows("both", turn), code_version="1")
            store.record_checks(
                SPLITS, store.current(SPLITS).version, [CheckRecord("a", passed=True)]
            )
        done.touch()
    while not done.exists():
        store.sweep()


def run_twice(work: str, home: Path) -> Store:
    home.mkdir(exist_ok=True)
    both = [
        subprocess.Popen(
            [sys.executable, __file__, work, str(home), name],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    errors = [p.communicate()[1] for p in both]
    assert [p.returncode for p in both] == [0, 0], errors
    store = Store(home)
    assert not list((home / "_staging").iterdir())
    for dataset in store.datasets():
        store.current(dataset).verify()
        for version in store.versions(dataset):
            store.get(dataset, version).verify()
    return store


def test_the_same_content_from_two_processes_is_stored_once(tmp_path: Path) -> None:
    store = run_twice("same_content", tmp_path / "home")
    assert len(store.versions(SPLITS)) == TURNS
    assert store.current(SPLITS).read().equals(rows("both", TURNS - 1))


def test_other_content_from_two_processes_is_all_there(tmp_path: Path) -> None:
    store = run_twice("other_content", tmp_path / "home")
    assert len(store.versions(SPLITS)) == 2 * TURNS
    last = [rows(name, TURNS - 1) for name in ("one", "two")]
    assert any(store.current(SPLITS).read().equals(r) for r in last)


def test_checks_of_two_processes_are_merged(tmp_path: Path) -> None:
    snapshot = Store(tmp_path / "home").commit(SPLITS, rows("x", 0), code_version="1")
    store = run_twice("checks", tmp_path / "home")
    found = store.checks(SPLITS, snapshot.version)
    assert set(found) == {f"{n}-{t}" for n in ("one", "two") for t in range(TURNS)}


def test_releases_of_two_processes_are_whole_with_their_own_cards(tmp_path: Path) -> None:
    store = run_twice("releases", tmp_path / "home")
    shared, own = (TURNS + 1) // 2, TURNS // 2
    assert len(store.releases("movies")) == shared + 2 * own
    for release in store.releases():
        assert store.verify(release).ok
    assert store.release("movies@latest") in store.releases()


def test_a_sweeping_neighbour_never_harms_a_living_process(tmp_path: Path) -> None:
    store = run_twice("sweeps", tmp_path / "home")
    assert len(store.versions(SPLITS)) == TURNS
    assert len(list((store.home / "checks" / SPLITS).iterdir())) == TURNS


if __name__ == "__main__":
    _, task, where, me = sys.argv
    # Start when the other is ready too, so that they meet.
    Path(where, f"ready-{me}").touch()
    deadline = time.monotonic() + 60
    while len(list(Path(where).glob("ready-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    {f.__name__: f for f in (same_content, other_content, checks, releases, sweeps)}[task](
        Store(where), me
    )
