"""Leases on an object store: a holder that was paused for too long publishes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import polars as pl
import pytest

from pipelines.errors import LockedError, StoreError
from pipelines.paths import ObjectPath
from pipelines.store import Store, objects
from pipelines.store.objects import Lease, ObjectFiles

ROWS = pl.DataFrame({"user_id": ["ml-user:1"], "item_id": ["ml:1"], "split": ["train"]})

#: Takes the run lock of two homes, and commits to both when a line comes in.
DRIVER = """
import sys
import polars as pl
from pipelines.errors import LockedError, StoreError
from pipelines.store import Store, objects

objects.LEASE = 4.0
rows = pl.DataFrame({"user_id": ["ml-user:9"], "item_id": ["ml:9"], "split": ["test"]})
stores = [Store(home) for home in sys.argv[1:]]
for store in stores:
    store.run_lock().__enter__()
print("holds", flush=True)
sys.stdin.readline()
for store in stores:
    try:
        store.commit("movies.splits", rows, code_version="1")
        print("published", flush=True)
    except LockedError as error:
        print(error, flush=True)
"""


@pytest.fixture
def files(s3_home: str) -> Callable[[], ObjectFiles]:
    """What another process opens: the files of one home."""
    return lambda: ObjectFiles(ObjectPath(s3_home))


@pytest.fixture
def path(s3_home: str) -> Path:
    return ObjectPath(s3_home) / "_locks" / "run.lock"


@pytest.fixture(autouse=True)
def _equal_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SKEW", 0.0)


def paused(lease: Lease) -> None:
    """Let a lease end as if its process were paused."""
    lease._ended.set()
    while lease.held:
        time.sleep(0.02)


def pointer(number: int) -> bytes:
    return orjson.dumps({"version": number})


@pytest.mark.pipeline
def test_frozen_driver_wakes_and_publishes_nothing(s3_home: str) -> None:
    taken, free = f"{s3_home}/taken", f"{s3_home}/free"
    before = [Store(h).commit("movies.splits", ROWS, code_version="1") for h in (taken, free)]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, taken, free],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "holds\n"
    driver.send_signal(signal.SIGSTOP)
    with pytest.raises(LockedError, match=rf"process {driver.pid} on "):
        Store(free).run_lock().__enter__()
    # As long as the lease was renewed last, and a moment more.
    time.sleep(4.1)
    with Store(taken).run_lock() as lease:
        assert lease.fence == 2
        driver.send_signal(signal.SIGCONT)
        output, _ = driver.communicate("\n", timeout=60)
    refused = output.splitlines()
    assert len(refused) == 2
    for line, home in zip(refused, (taken, free), strict=True):
        assert line.startswith(f"this process lost its lock and publishes nothing: {home}/_locks")
    assert [Store(h).current("movies.splits") for h in (taken, free)] == before


def test_renewed_lease_outlives_its_first_end(
    files: Callable[[], ObjectFiles], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "LEASE", 4.0)
    with Lease(files(), path, timeout=0) as lease:
        time.sleep(4.2)
        lease.check()
        with pytest.raises(LockedError, match="held this lock"):
            files().lock(path, timeout=0).__enter__()


def test_numbers_grow_and_the_lock_stays_as_an_object(
    files: Callable[[], ObjectFiles], path: Path
) -> None:
    numbers = []
    for _ in range(3):
        with Lease(files(), path, timeout=0) as lease:
            numbers.append(lease.fence)
    assert numbers == [1, 2, 3]
    record = orjson.loads(files().read(path) or b"")
    assert (record["fence"], record["expires"]) == (3, None)


def test_pointer_carries_the_numbers_of_all_locks_held(
    files: Callable[[], ObjectFiles], path: Path
) -> None:
    place, ref = files(), path.parents[1] / "refs" / "a.json"
    with place.lock(path), place.lock(path.with_name("a-b.lock")):
        place.move(ref, lambda data: pointer(1))
    files().move(ref, lambda data: pointer(2))
    assert orjson.loads(place.read(ref) or b"") == {"version": 2, "fences": {"run": 1, "a-b": 1}}


@pytest.mark.parametrize("moment", ["before the pointer is read", "after the lease is checked"])
def test_lock_lost_at_the_worst_moment_moves_no_pointer(
    files: Callable[[], ObjectFiles], path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The check is left out: the numbers and the entity tag alone have to refuse."""
    monkeypatch.setattr(objects, "LEASE", 0.3)
    ref = path.parents[1] / "refs" / "a.json"
    files().move(ref, lambda data: pointer(0))
    old, new = files(), files()
    lease = Lease(old, path, timeout=0).__enter__()
    monkeypatch.setattr(lease, "check", lambda: None)
    taken: list[Lease] = []

    def take_over() -> None:
        if not taken:
            paused(lease)
            monkeypatch.setattr(objects, "LEASE", 30.0)
            taken.append(Lease(new, path, timeout=0).__enter__())

    def moved(data: bytes | None) -> bytes:
        take_over()
        return pointer(1)

    if moment == "before the pointer is read":
        take_over()
    with pytest.raises(LockedError, match="lost its lock"):
        old.move(ref, moved)
    assert orjson.loads(new.read(ref) or b"") == {"version": 0, "fences": {"run": 2}}
    new.move(ref, lambda data: pointer(2))
    taken[0].__exit__()
    assert orjson.loads(new.read(ref) or b"")["version"] == 2


def test_killed_holder_is_waited_for_and_replaced(
    files: Callable[[], ObjectFiles], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "LEASE", 3.0)
    dead = Lease(files(), path, timeout=0).__enter__()
    dead._ended.set()
    with pytest.raises(LockedError, match="the lock of a dead process ends after 3 s"):
        files().lock(path, timeout=0).__enter__()
    with Lease(files(), path, timeout=60) as lease:
        assert lease.fence == 2
        with pytest.raises(LockedError, match="paused or cut off for longer than"):
            dead.check()


def test_damaged_lock_is_no_free_lock(files: Callable[[], ObjectFiles], path: Path) -> None:
    files().put(path, b"{}")
    with pytest.raises(StoreError, match=r"the lock is damaged: .*run\.lock"):
        files().lock(path, timeout=0).__enter__()
