"""Promises of the sample world's generator about faults."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.config import SampleSettings
from pipelines.errors import SourceError, StoreError
from pipelines.progress import listening
from pipelines.sample_world import KEY_FILE, SampleWorld, write_sample_world

SMALL = SampleSettings(films=60, users=25, ratings=900, seed=5)
KILLED_AT = """
import os, signal, sys
from pathlib import Path
from pipelines.config import SampleSettings
from pipelines.progress import listening
from pipelines.sample_world import write_sample_world

calls = 0
def progress(stage, done, total):
    global calls
    calls += 1
    print(stage, flush=True)
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

settings = SampleSettings(films=600, users=3000, ratings=60_000, seed=5)
with listening(progress):
    write_sample_world(Path(sys.argv[1]), settings)
"""


def python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=False
    )


@pytest.mark.pipeline
@pytest.mark.faults
@pytest.mark.parametrize("calls", [1, 3, 5])
def test_killed_half_way_it_leaves_no_world_and_the_next_run_cleans_up(
    tmp_path: Path, calls: int
) -> None:
    killed = python(KILLED_AT, tmp_path / "world", calls)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "world").exists()
    left = list(tmp_path.glob(".world.partial"))
    assert len(left) == 1
    assert not list(left[0].rglob(KEY_FILE))

    write_sample_world(tmp_path / "world", SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ["world"]
    assert SampleWorld.read(tmp_path / "world") is not None


@pytest.mark.faults
def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(stage: str, done: int, total: int | None) -> None:
        if stage == "sample ratings":
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), listening(fail):
        write_sample_world(tmp_path / "world", SMALL)
    assert not any(tmp_path.iterdir())


@pytest.mark.faults
def test_a_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, before[1]))
    try:
        with pytest.raises(
            StoreError, match=r"file size limit is reached.*bytes are free"
        ) as caught:
            write_sample_world(tmp_path / "world", SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "world" in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_complete_world_of_the_same_settings_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "world"
    first = write_sample_world(folder, SMALL)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}

    def never(stage: str, done: int, total: int | None) -> None:
        raise AssertionError(f"generated again: {stage}")

    with listening(never):
        assert write_sample_world(folder, SMALL) == first
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


@pytest.mark.parametrize("lost", ["movielens/sample/tags.csv", "tmdb/movies.jsonl.gz"])
def test_a_world_with_a_lost_file_is_made_again(tmp_path: Path, lost: str) -> None:
    first = write_sample_world(tmp_path / "world", SMALL)
    (tmp_path / "world" / lost).unlink()
    assert SampleWorld.read(tmp_path / "world") is None
    assert write_sample_world(tmp_path / "world", SMALL) == first
    assert (tmp_path / "world" / lost).is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["world"]


def test_a_world_with_a_shortened_file_is_made_again(tmp_path: Path) -> None:
    write_sample_world(tmp_path / "world", SMALL)
    file = tmp_path / "world" / "movielens/sample/ratings.csv"
    whole = file.read_bytes()
    os.truncate(file, len(whole) // 2)
    write_sample_world(tmp_path / "world", SMALL)
    assert file.read_bytes() == whole


@pytest.mark.parametrize("key", [b"", b"{", b"[]", b"null", b'{"files": 1}'])
def test_a_damaged_key_means_no_world(tmp_path: Path, key: bytes) -> None:
    write_sample_world(tmp_path / "world", SMALL)
    (tmp_path / "world" / KEY_FILE).write_bytes(key)
    assert SampleWorld.read(tmp_path / "world") is None
    world = write_sample_world(tmp_path / "world", SMALL)
    assert json.loads((tmp_path / "world" / KEY_FILE).read_bytes())["files"] == world.files


def test_a_world_of_other_settings_is_replaced(tmp_path: Path) -> None:
    write_sample_world(tmp_path / "world", SMALL)
    other = SMALL.model_copy(update={"ratings": 901})
    write_sample_world(tmp_path / "world", other)
    found = SampleWorld.read(tmp_path / "world")
    assert found is not None
    assert found.settings == other
    clean = write_sample_world(tmp_path / "world", other, broken_rows=False)
    assert not clean.broken


def test_a_folder_with_anything_else_is_never_touched(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("years of work")
    with pytest.raises(SourceError, match="something else than a sample world"):
        write_sample_world(folder, SMALL)
    assert [p.name for p in folder.iterdir()] == ["chapter.txt"]
    (tmp_path / "file").write_text("a file")
    with pytest.raises(SourceError):
        write_sample_world(tmp_path / "file", SMALL)


def test_an_empty_folder_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    write_sample_world(tmp_path / "world", SMALL)
    assert SampleWorld.read(tmp_path / "world") is not None


@pytest.mark.faults
def test_two_at_once_end_with_one_whole_world(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        worlds = list(pool.map(lambda _: write_sample_world(tmp_path / "world", SMALL), range(3)))
    assert worlds[0] == worlds[1] == worlds[2] == SampleWorld.read(tmp_path / "world")
    assert [p.name for p in tmp_path.iterdir()] == ["world"]


def test_progress_reaches_the_totals(tmp_path: Path) -> None:
    last: dict[str, tuple[int, int | None]] = {}

    def note(stage: str, done: int, total: int | None) -> None:
        assert done >= last.get(stage, (0, 0))[0]
        last[stage] = (done, total)

    with listening(note):
        write_sample_world(tmp_path / "world", SMALL)
    assert last["sample ratings"] == (900, 900)
