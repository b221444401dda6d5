"""File operations of the store: what appears, appears whole and once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.files import LocalFiles
from pipelines.store.locks import holder_record


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "home")


def in_threads(work: Callable[[int], object], number: int) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_file_is_what_was_put_last(files: LocalFiles) -> None:
    path = files.root / "refs" / "a.json"
    assert files.read(path) is None
    assert files.digest(path) is None
    assert files.names(path.parent) == []
    files.put(path, b"1")
    files.put(path, b"22")
    assert files.read(path) == b"22"
    assert files.names(files.root) == ["_staging", "refs"]
    assert files.sizes(path.parent) == {"a.json": 2}
    # echo -n 22 | sha256sum
    assert str(files.digest(path)).startswith("785f3ec7eb32f30b90cd0fcf3657d388")
    files.remove(path)
    files.remove(path)
    assert files.read(path) is None


def test_first_of_many_creators_wins(files: LocalFiles) -> None:
    path = files.root / "refs" / "a.json"
    created: list[int] = []

    def create(number: int) -> None:
        if LocalFiles(files.root).put_new(path, b"%d" % number):
            created.append(number)

    in_threads(create, 4)
    assert len(created) == 1
    assert files.read(path) == b"%d" % created[0]


def test_a_folder_appears_once_and_whole(files: LocalFiles) -> None:
    target, staging = files.root / "data" / "a" / "1", files.stage(holder_record())
    for name in ("first", "second"):
        folder = staging.folder(name)
        files.write_staged(folder / "part-00000.parquet", name.encode())
        files.write_staged(folder / "_manifest.json", b"{}")
    assert files.place(staging.path / "first", target)
    assert not files.place(staging.path / "second", target)
    assert files.read(target / "part-00000.parquet") == b"first"
    files.set_aside(target, staging)
    assert files.names(target) == []
    assert files.place(staging.path / "second", target)
    assert files.sizes(target) == {"_manifest.json": 2, "part-00000.parquet": 6}
    staging.drop()
