"""Locks and staging folders: who holds what, and what death does to it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import LockedError, StoreError
from pipelines.store import Store
from pipelines.store.files import storage_errors
from pipelines.store.locks import mutex

ROWS = pl.DataFrame({"user_id": ["ml-user:1"], "item_id": ["ml:1"], "split": ["train"]})


def start(code: str) -> subprocess.Popen[str]:
    """A process that runs the code and then waits to be killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}\nprint('ready', flush=True)\nimport time\ntime.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_one_run_at_a_time_and_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.run_lock() as lock:
        assert lock.held
        message = rf"process {os.getpid()} on .* since .*: {tmp_path}"
        with pytest.raises(LockedError, match=message) as caught:
            store.run_lock().__enter__()
        assert caught.value.details["pid"] == os.getpid()
        assert not caught.value.permanent
    assert not lock.held
    with store.run_lock():
        pass


@pytest.mark.pipeline
def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    other = start(
        "from pipelines.store import Store\n"
        f"lock = Store({str(tmp_path)!r}).run_lock()\n"
        "lock.__enter__()"
    )
    try:
        with pytest.raises(LockedError, match=f"process {other.pid} on "):
            Store(tmp_path).run_lock().__enter__()
    finally:
        kill(other)
    with Store(tmp_path).run_lock() as lock:
        assert lock.held


def test_a_run_lock_is_let_go_when_the_run_fails(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def failing() -> None:
        with store.run_lock():
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        failing()
    with store.run_lock():
        pass


def test_an_unreadable_holder_still_locks(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.run_lock() as lock:
        lock.path.write_text("")
        with pytest.raises(LockedError, match="it has just started"):
            store.run_lock().__enter__()


def test_a_mutex_waits_only_so_long(tmp_path: Path) -> None:
    with (
        mutex(tmp_path / "m.lock"),
        pytest.raises(LockedError, match=r"held this lock for 0\.05 s.*m\.lock"),
        mutex(tmp_path / "m.lock", timeout=0.05),
    ):
        pass
    with mutex(tmp_path / "m.lock", timeout=0.05):
        pass


def test_what_a_living_process_stages_is_left_alone(tmp_path: Path) -> None:
    store, neighbour = Store(tmp_path), Store(tmp_path)
    writer = store.write("movies.splits", code_version="1")
    writer.append(ROWS)
    assert neighbour.sweep() == 0
    neighbour.commit("movies.splits", ROWS.with_columns(split=pl.lit("test")), code_version="1")
    assert writer.commit().read().equals(ROWS)
    assert not list((tmp_path / "_staging").iterdir())


@pytest.mark.pipeline
def test_what_a_killed_process_staged_is_removed_by_the_next_write(tmp_path: Path) -> None:
    other = start(
        "from pipelines.store.files import LocalFiles\n"
        "from pathlib import Path\n"
        f"files = LocalFiles(Path({str(tmp_path)!r}))\n"
        "staging = files.stage({'pid': 1})\n"
        "(staging.folder('table') / 'part-00000.parquet').write_bytes(b'half')\n"
        "temporary = files._claim_file()\n"
    )
    staging = tmp_path / "_staging"
    assert len(list(staging.iterdir())) == 2
    assert Store(tmp_path).sweep() == 0
    kill(other)
    Store(tmp_path).commit("movies.splits", ROWS, code_version="1")
    assert not list(staging.iterdir())


@pytest.mark.parametrize("left", ["empty", "record", "half"])
def test_every_stage_of_an_incomplete_staging_is_removed(tmp_path: Path, left: str) -> None:
    folder = tmp_path / "_staging" / ("0" * 32)
    (folder / "table").mkdir(parents=True)
    if left == "empty":
        (folder / "table").rmdir()
    if left == "record":
        (folder / "_owner.json").write_text("{}")
    assert Store(tmp_path).sweep() == 1
    assert not folder.exists()


def test_a_forgotten_writer_takes_its_staging_with_it(tmp_path: Path) -> None:
    writer = Store(tmp_path).write("movies.splits", code_version="1")
    writer.append(ROWS)
    assert len(list((tmp_path / "_staging").iterdir())) == 1
    del writer
    assert not list((tmp_path / "_staging").iterdir())


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            errno.ENOSPC,
            r"no space left on the disk for up to 1,234 bytes: .*/x \(.* bytes are free",
        ),
        (errno.EDQUOT, r"the disk quota is used up for up to 1,234 bytes: .*/x"),
        (errno.EFBIG, r"the file size limit is reached for up to 1,234 bytes: .*/x"),
        (errno.EACCES, r"not allowed to write \(Permission denied\): .*/x \(check the owner"),
        (errno.EROFS, r"not allowed to write \(Read-only file system\): .*/x"),
        (errno.EIO, r"the disk reports an error for up to 1,234 bytes: .*/x"),
    ],
)
def test_what_the_system_says_becomes_one_line(tmp_path: Path, number: int, message: str) -> None:
    with (
        pytest.raises(StoreError, match=message) as caught,
        storage_errors(tmp_path / "x", needed=1234),
    ):
        raise OSError(number, os.strerror(number))
    assert caught.value.details["errno"] == number
    assert "\n" not in str(caught.value)


def test_a_home_below_a_file_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "home")
    assert store.datasets() == []
    with pytest.raises(StoreError, match="the store can't be written"):
        store.commit("movies.splits", ROWS, code_version="1")
    with pytest.raises(StoreError, match="the store can't be written"):
        store.run_lock().__enter__()
