"""Removal of versions that nothing needs, and copies of a home."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from support import small_release
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.errors import IntegrityError, LockedError, StoreError
from pipelines.store import Snapshot, Store, restore
from pipelines.store.locks import mutex

ITEMS = "movies.items"
NOW = timedelta(0)


def items(store: Store, title: str) -> Snapshot:
    frame = small_release.conform(ITEMS, small_release.frames()[ITEMS])
    return store.commit(ITEMS, frame.with_columns(title=pl.lit(title)), code_version=title)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    small_release.build(tmp_path / "home")
    return tmp_path / "home"


def test_only_versions_without_a_user_are_removed(home: Path) -> None:
    store = Store(home)
    pinned = store.release("movies").tables["items"].version
    lost, current = items(store, "lost"), items(store, "current")
    listed = store.collect_garbage(grace=NOW, dry_run=True)
    assert [v[:2] for v in listed.versions] == [(ITEMS, lost.version)]
    assert set(store.versions(ITEMS)) == {pinned, lost.version, current.version}
    done = store.collect_garbage(grace=NOW)
    assert done.versions == listed.versions
    assert done.kept == 12
    assert set(store.versions(ITEMS)) == {pinned, current.version}
    assert store.verify("movies", lineage=True).ok
    assert store.current(ITEMS) == current
    assert store.find_build(ITEMS, lost.manifest.build_key) is None
    # Made again, it is what it was.
    assert items(store, "lost").version == lost.version
    assert store.collect_garbage(grace=timedelta(hours=1)).versions == ()


def test_what_a_current_table_was_made_from_is_kept(home: Path) -> None:
    store = Store(home)
    above = items(store, "above")
    splits = small_release.conform("movies.splits", small_release.frames()["movies.splits"])
    store.commit("movies.splits", splits.head(9), code_version="2", inputs={ITEMS: above.version})
    items(store, "newer")
    assert store.collect_garbage(grace=NOW).versions == ()


def test_damaged_lock_file_stops_removal(home: Path) -> None:
    store = Store(home)
    lost = items(store, "lost")
    items(store, "current")
    lock = store.release("movies").path
    lock.chmod(0o644)
    lock.write_bytes(lock.read_bytes()[:-20])
    with pytest.raises(IntegrityError, match="lock file is damaged"):
        store.collect_garbage(grace=NOW)
    assert lost.version in store.versions(ITEMS)


def test_nothing_is_removed_while_a_run_or_a_commit_goes_on(home: Path) -> None:
    store = Store(home)
    items(store, "lost")
    items(store, "current")
    with store.run_lock(), pytest.raises(LockedError, match="another run"):
        store.collect_garbage(grace=NOW)
    with (
        mutex(home / "_locks" / "versions.lock", shared=True),
        pytest.raises(LockedError, match="another process"),
    ):
        store.collect_garbage(grace=NOW)


@pytest.mark.pipeline
def test_removal_beside_a_writer_leaves_current_tables_whole(home: Path) -> None:
    """A second process commits and goes back and forth between versions meanwhile."""
    writer = """
import sys
sys.path[:0] = [sys.argv[2]]
from support import small_release
import polars as pl
from pipelines.store import Store
store = Store(sys.argv[1])
frame = small_release.conform("movies.items", small_release.frames()["movies.items"])
for n in range(40):
    named = frame.with_columns(title=pl.lit(f"title {n % 4}"))
    store.commit("movies.items", named, code_version=str(n % 4))
    assert store.current("movies.items").read()["title"][0] == f"title {n % 4}"
"""
    support = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen([sys.executable, "-c", writer, str(home), support])
    store, removed = Store(home), 0
    while process.poll() is None:
        try:
            removed += len(store.collect_garbage(grace=NOW).versions)
        except LockedError:
            continue
        store.current(ITEMS).verify()
    assert process.returncode == 0
    assert removed > 0
    assert store.verify("movies").ok


def test_restored_home_is_the_one_that_was_saved(home: Path, tmp_path: Path) -> None:
    store = Store(home)
    lost, current = items(store, "lost"), items(store, "current")
    (home / "answers").mkdir()
    answers = sqlite3.connect(home / "answers" / "t:c.sqlite")
    answers.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t AS SELECT 'paid for' AS text")
    saved = store.backup(tmp_path / "home.tar")
    done = restore(tmp_path / "home.tar", tmp_path / "new" / "home")
    assert done == saved
    assert (done.releases, done.versions) == (1, 12)
    again = Store(tmp_path / "new" / "home")
    assert again.verify("movies", lineage=True).ok
    assert again.release("movies") == store.release("movies")
    assert again.current(ITEMS).read().equals(current.read())
    assert again.find_build(ITEMS, current.manifest.build_key) is not None
    assert again.checks(ITEMS, again.release("movies").tables["items"].version)
    assert lost.version not in again.versions(ITEMS)
    # As of one moment, though another process has the file and its log open.
    answers.close()
    with closing(sqlite3.connect(again.home / "answers" / "t:c.sqlite")) as restored:
        assert restored.execute("SELECT text FROM t").fetchall() == [("paid for",)]
    assert [path.name for path in (again.home / "answers").iterdir()] == ["t:c.sqlite"]
    # It can be worked with: the same content is the same release.
    assert str(small_release.build(again.home)) == str(store.release("movies"))


def test_damaged_backup_leaves_no_home(home: Path, tmp_path: Path) -> None:
    Store(home).backup(tmp_path / "home.tar")
    data = bytearray((tmp_path / "home.tar").read_bytes())
    place = data.index(b"PAR1") + 40
    data[place] ^= 0xFF
    (tmp_path / "bad.tar").write_bytes(data)
    with pytest.raises(IntegrityError, match="not what was committed"):
        restore(tmp_path / "bad.tar", tmp_path / "new")
    (tmp_path / "cut.tar").write_bytes(data[: len(data) // 2])
    with pytest.raises((StoreError, IntegrityError)):
        restore(tmp_path / "cut.tar", tmp_path / "new")
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        member = tarfile.TarInfo("../outside")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"bad"))
    with pytest.raises(StoreError, match="not a backup"):
        restore(tmp_path / "evil.tar", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "outside").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    with pytest.raises(StoreError, match="not empty"):
        restore(tmp_path / "home.tar", home)


def test_commands_save_restore_and_collect(home: Path, tmp_path: Path) -> None:
    def call(*words: str, where: Path = home) -> dict[str, object]:
        done = CliRunner().invoke(app, [*words, "--home", str(where), "--json"])
        assert done.exit_code == 0, done.output
        return dict(json.loads(done.stdout))

    items(Store(home), "lost")
    items(Store(home), "current")
    assert call("gc", "--dry-run")["versions"] == []  # within the hours of grace
    (found,) = call("gc", "--dry-run", "--grace", "0")["versions"]  # type: ignore[misc]
    assert found["dataset"] == ITEMS
    assert call("gc", "--grace", "0")["removed"] is True
    saved = call("backup", str(tmp_path / "b.tar"))
    new = tmp_path / "elsewhere"
    assert call("restore", str(tmp_path / "b.tar"), where=new)["versions"] == saved["versions"]
    assert call("release", "verify", "movies", where=new)["ok"] is True
