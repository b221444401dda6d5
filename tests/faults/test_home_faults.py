"""Homes in unlucky places: read-only, a clock that goes back, a pointer set back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from support import small_release
from support.disks import small_disk
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.errors import ConfigError, ReleaseError, StoreError
from pipelines.store import Release, Store
from sim import open_release

pytestmark = pytest.mark.faults


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=16) as folder:
        yield folder


def publish(store: Store, rows: int, *, name: str = "movies") -> Release:
    frame = pl.DataFrame({"tmdb_id": list(range(1, rows + 1)), "reason": ["not_found"] * rows})
    table = store.commit("raw.tmdb_missing", frame, code_version="1")
    return store.publish(
        name, {"missing": table}, world="w", required={}, card=f"# {rows}\n", settings={}
    )


@pytest.mark.pipeline
def test_release_opens_from_read_only_home(disk: Path) -> None:
    small_release.build(disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    release = open_release("movies@latest", home=disk / "home", verify=True)
    assert release["items"].polars().height == release["items"].rows
    for command in (["release", "verify", "--lineage"], ["release", "show"], ["status"]):
        result = CliRunner().invoke(app, [*command, "--home", str(disk / "home")])
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("home", ["s3://bucket/home", "s3:", "gs://bucket/home", "file:///home"])
@pytest.mark.parametrize("command", ["gc", "run", "status", "release list", "backup c.tar"])
def test_home_at_an_address_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, home: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for options in (["--home", home], []):
        monkeypatch.setenv("UNDERSTUDY_HOME", home)
        result = CliRunner().invoke(app, [*command.split(), *options])
        assert result.exit_code == 2, result.output
        assert result.stderr.count("\n") == 1
        assert "a home is a folder on a local disk" in result.stderr
        assert "understudy release push s3://" in result.stderr
    with pytest.raises(ConfigError, match="a home is a folder on a local disk"):
        open_release("movies", home=home)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["gs://bucket/releases", "s3://", "folder"])
def test_push_to_no_address_is_refused(tmp_path: Path, target: str) -> None:
    small_release.build(tmp_path / "home")
    words = ["release", "push", target, "--home", str(tmp_path / "home")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    assert "write s3://<bucket>/<prefix>" in result.stderr


@pytest.mark.pipeline
def test_write_to_read_only_home_is_exit_5(disk: Path) -> None:
    small_release.build(disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StoreError, match=r"not allowed to write.*Read-only file system"):
        publish(Store(disk / "home"), 1)
    for home in (disk / "home", disk / "new"):
        result = CliRunner().invoke(app, ["run", "--home", str(home), "--job", "movies"])
        assert result.exit_code == 5, result.output
        assert result.stderr.count("\n") == 1
        assert "Read-only file system" in result.stderr
        assert str(disk) in result.stderr


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Set the store's clock so far from the real time."""
    modules = ("_manifest", "_records", "_store", "_writer")

    def shift(by: timedelta) -> None:
        for module in modules:
            monkeypatch.setattr(
                f"pipelines.store.{module}.now",
                lambda: (datetime.now(UTC) + by).isoformat(timespec="microseconds"),
            )

    return shift


def test_clock_one_day_back_does_not_hide_newest_release(
    tmp_path: Path, at: Callable[[timedelta], None]
) -> None:
    store = Store(tmp_path)
    publish(store, 1)
    at(-timedelta(days=1))
    newest = publish(store, 2)
    assert newest.created_at < store.releases("movies")[-1].created_at
    assert store.release("movies@latest") == newest
    assert open_release("latest", home=tmp_path).ref == str(newest)
    assert store.current("raw.tmdb_missing").rows == 2
    assert store.verify(newest, lineage=True).ok
    # Builds from before the clock change are still found and reused.
    assert publish(store, 1).version != newest.version
    assert store.release("movies@latest").tables["missing"].rows == 1
    assert not list((tmp_path / "_staging").iterdir())


def test_pointer_set_back_opens_older_release_until_next_publish(tmp_path: Path) -> None:
    store = Store(tmp_path)
    older, newer = publish(store, 1), publish(store, 2)
    pointer = tmp_path / "refs" / "releases" / "movies.json"
    record = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({**record, "version": older.version}))
    assert store.release("movies@latest") == older
    open_release("movies@latest", home=tmp_path).verify(lineage=True)
    # The newer version is complete, and publishing it again moves the pointer forward.
    assert open_release(str(newer), home=tmp_path)["missing"].rows == 2
    assert publish(store, 2) == newer
    assert store.release("movies@latest") == newer


def test_pointer_to_removed_release_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _, release = publish(store, 1), publish(store, 2)
    release.path.unlink()
    with pytest.raises(ReleaseError, match=f"{release}.json"):
        store.release("movies@latest")
    for command in (["release", "list"], ["status"]):
        result = CliRunner().invoke(app, [*command, "--home", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert "movies" in result.output
    assert publish(store, 2).version == release.version
