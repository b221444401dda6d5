"""Full disks: nothing half-written stays, nothing written before is lost, and it goes on after."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import StoreError
from pipelines.store import Build, CheckRecord, Store, Table

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

SPLITS = "movies.splits"
PAGE = 4096


def rows(count: int, seed: int = 1) -> pl.DataFrame:
    """Rows that don't compress well."""
    chance = random.Random(seed)
    users = sorted(f"ml-user:{n}" for n in chance.sample(range(10**12), count))
    items = [f"ml:{chance.randrange(10**12)}" for _ in users]
    return pl.DataFrame({"user_id": users, "item_id": items, "split": ["train"] * count})


def fill(disk: Path, *, leave: int) -> Path:
    """Take all space of the disk but this much (bytes)."""
    filler = disk / "filler"
    state = os.statvfs(disk)
    with filler.open("wb") as stream:
        stream.write(b"\0" * (state.f_bavail * state.f_frsize - leave))
    return filler


def staged(store: Store) -> list[str]:
    folder = store.home / "_staging"
    return [p.name for p in folder.iterdir()] if folder.exists() else []


def test_a_table_larger_than_the_disk_is_one_clear_error(small_disk: Path) -> None:
    store = Store(small_disk / "home")
    old = store.commit(SPLITS, rows(1000), code_version="1")
    with pytest.raises(StoreError) as caught:
        store.commit(SPLITS, rows(140_000), code_version="1")  # more than one row group
    text = str(caught.value)
    assert text.startswith("no space left on the disk for up to ")
    assert "part-00000.parquet" in text
    assert "bytes are free" in text
    assert caught.value.details["needed_bytes"] > 1_000_000
    assert staged(store) == []
    assert store.current(SPLITS) == old
    old.verify()
    assert store.commit(SPLITS, rows(2000), code_version="1").rows == 2000


def test_space_that_runs_out_anywhere_in_a_commit_and_publish_harms_nothing(
    small_disk: Path,
) -> None:
    """Each step with 0, 1, 2, … free pages: another write each time is the first to fail."""
    store = Store(small_disk / "home")

    def commit(turn: int) -> None:
        missing = pl.DataFrame({"tmdb_id": [turn + 1], "reason": ["not_found"]})
        tables = [Table(SPLITS, [rows(10, turn)]), Table("raw.tmdb_missing", [missing])]
        datasets = tuple(t.dataset for t in tables)
        store.build(Build(datasets, lambda: tables, "1", {"turn": turn}, {}))

    def check(turn: int) -> None:
        version = store.current(SPLITS).version
        store.record_checks(SPLITS, version, [CheckRecord(f"rows-{turn}", passed=True)])

    def publish(turn: int) -> None:
        store.publish(
            "movies",
            {"splits": store.current(SPLITS)},
            world="w",
            required={},
            card="# Card\n",
            settings={"turn": turn},
        )

    steps = (commit, check, publish)
    for step in steps:
        step(0)
    failures: list[str] = []
    for step in steps:
        for turn in range(1, 60):
            latest = store.release("movies")
            filler = fill(small_disk, leave=(turn - 1) * PAGE)
            error = failure(step, turn)
            assert staged(store) == []
            assert store.verify("movies").ok
            for dataset in store.datasets():
                store.current(dataset).verify()
            assert error is None or store.release("movies") == latest
            filler.unlink()
            step(turn)
            if error is None:
                break
            failures.append(error)
        else:
            pytest.fail(f"{step.__name__} never had enough space")
    places = {f.partition("home/")[2].split()[0] for f in failures}
    for place in ("part-00000.parquet", "_manifest.json", "refs/", "checks/", ".md", ".json"):
        assert any(place in p for p in places), (place, places)


def failure(step: Callable[[int], None], turn: int) -> str | None:
    """The one line with which a step fails for want of space; None if it does not."""
    try:
        step(turn)
    except StoreError as error:
        message = str(error)
    else:
        return None
    assert message.startswith("no space left on the disk")
    return message


def test_a_limit_on_file_sizes_is_one_clear_error(tmp_path: Path) -> None:
    """Runs without special rights: the kernel refuses the write with EFBIG."""
    code = (
        "import resource, sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parents[n]) for n in (0, 1)]!r}\n"
        "from pathlib import Path\n"
        "from pipelines.errors import StoreError\n"
        "from test_store_full_disk import Store, SPLITS, rows, staged\n"
        f"store = Store(Path({str(tmp_path)!r}))\n"
        "old = store.commit(SPLITS, rows(10), code_version='1')\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))\n"
        "try: store.commit(SPLITS, rows(50_000), code_version='1')\n"
        "except StoreError as error: print(error)\n"
        "assert staged(store) == []\n"
        "assert store.current(SPLITS) == old\n"
        "old.verify()\n"
        "assert store.commit(SPLITS, rows(20), code_version='1').rows == 20\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("the file size limit is reached for up to ")
    assert "part-00000.parquet" in result.stdout
    assert result.stderr == ""
