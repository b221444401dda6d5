"""Damaged original files of every registered source: named or listed, never silently nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.sources import SOURCES, ingest
from pipelines.store import Store
from pipelines.worlds import prepare_world

pytestmark = pytest.mark.faults

SAMPLE = {"films": 20, "users": 20, "ratings": 300}


def dangle(file: Path) -> None:
    file.symlink_to(file.with_name("nowhere"))


#: Kinds of non-files in place of a source file.
NO_FILES: dict[str, Callable[[Path], None]] = {
    "dangling link": dangle,
    "FIFO": os.mkfifo,
    "folder": Path.mkdir,
    "endless device": lambda file: file.symlink_to("/dev/zero"),
}


def break_off(data: bytes) -> bytes:
    """An archive without its second half, a text with a broken line in its middle."""
    if data[:2] in {b"\x1f\x8b", b"PK"}:
        return data[: len(data) // 2]
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[: len(lines) // 2], b'\xff\xfe"{\x00\n', *lines[len(lines) // 2 :]])


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "broken off": break_off,
    "noise": lambda data: bytes((7 * n * n + n) % 251 for n in range(max(64, len(data)))),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every source in their formats."""
    home = tmp_path_factory.mktemp("world")
    world = prepare_world(Settings(world={"sample": SAMPLE}, runtime={"home": home}))
    own = world.folder / "own"
    own.mkdir()
    dishes = "".join(f"{n},Dish {n},Thai\n" for n in range(30))
    (own / "items.csv").write_text(f"item,title,genre\n{dishes}")
    (own / "ratings.csv").write_text(
        "user,item,rating\n" + "".join(f"u,{n},4\n" for n in range(30))
    )
    (own / "users.csv").write_text("user,age\nu,30\n")
    return world.folder


def files_of(source: str, folder: Path, home: Path) -> tuple[Settings, list[Path]]:
    settings = Settings(world={"folder": folder}, runtime={"home": home})
    # Records of films are asked for by the links of another source.
    read("movielens", settings)
    return settings, list(prepare_world(settings).files[source])


def read(source: str, settings: Settings) -> dict[str, int]:
    """Rows by dataset."""
    store = Store(settings.runtime.home)
    found = ingest(source, prepare_world(settings), store, settings, run_id="run")
    return {dataset: snapshot.rows for dataset, snapshot in found.items()}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("source", SOURCES)
def test_file_that_is_none_is_named(source: str, kind: str, original: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "data"))
    settings, files = files_of(source, folder, tmp_path / "home")
    for file in files:
        kept = file.with_name("kept-aside")
        file.rename(kept)
        NO_FILES[kind](file)
        with pytest.raises(SourceError) as caught:
            read(source, settings)
        assert file.name in str(caught.value)
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
        kept.rename(file)
    assert read(source, settings)


@pytest.mark.pipeline
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("source", SOURCES)
def test_damaged_file_is_named_or_its_rows_are_listed(
    source: str, damage: str, original: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "data"))
    settings, files = files_of(source, folder, tmp_path / "home")
    whole = read(source, settings)
    listed = [name for name in whole if name.endswith("_rejected")]
    for file in files:
        data = file.read_bytes()
        file.write_bytes(DAMAGES[damage](data))
        rows, message = whole, ""
        try:
            rows = read(source, settings)
        except SourceError as error:
            message = str(error)
        more = sum(rows[name] - whole[name] for name in listed)
        assert file.name in message or more > 0, (
            f"{file} is neither named nor listed: {message or rows}"
        )
        file.write_bytes(data)
