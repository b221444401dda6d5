"""Homes of other versions: an older one is adopted, a newer one is refused."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import IntegrityError, StoreError
from pipelines.store import Store
from sim import open_release

pytestmark = pytest.mark.faults

#: A home with a release, written by commit d3b6621: before homes recorded their format.
OLD_HOME = Path(__file__).with_name("data") / "home_without_format.tar.xz"
ROWS = pl.DataFrame({"tmdb_id": [1], "reason": ["not_found"]})


def marker(home: Path) -> Path:
    return home / "_format.json"


@pytest.fixture
def old_home(tmp_path: Path) -> Path:
    with tarfile.open(OLD_HOME) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "home"


def test_home_of_previous_version_opens_and_is_adopted(old_home: Path) -> None:
    release = open_release("movies@latest", home=old_home, verify=True)
    release.verify(lineage=True)
    assert release["items"].rows == 24
    assert not marker(old_home).exists()
    store = Store(old_home)
    store.commit("raw.tmdb_missing", ROWS, code_version="1")
    assert json.loads(marker(old_home).read_text())["format"] == 2
    assert store.verify("movies@latest", lineage=True).ok


def test_home_of_newer_version_is_refused(old_home: Path, tmp_path: Path) -> None:
    lock_file = Store(old_home).release("movies").path
    marker(old_home).write_text('{"format": 3}')
    with pytest.raises(StoreError, match=r"the store is of format 3.*up to 2: .*newer one"):
        Store(old_home)
    with pytest.raises(StoreError, match="format 3"):
        open_release("movies@latest", home=old_home)
    with pytest.raises(StoreError, match="format 3"):
        Store(tmp_path / "other").release(lock_file)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": "one"}'])
def test_damaged_format_record_is_named(tmp_path: Path, content: str) -> None:
    marker(tmp_path).write_text(content)
    with pytest.raises(IntegrityError, match=str(marker(tmp_path))):
        Store(tmp_path)


def test_format_is_written_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    store.commit("raw.tmdb_missing", ROWS, code_version="1")
    before = marker(store.home).read_bytes()
    store.commit("raw.tmdb_missing", ROWS, code_version="2")
    assert marker(store.home).read_bytes() == before
    assert marker(store.home).stat().st_mode & 0o222 == 0
