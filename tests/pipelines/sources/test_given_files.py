"""Files that settings name: paths as they are, addresses downloaded once and whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.given_worlds import GivenWorld

from pipelines.config import Settings
from pipelines.errors import ConfigError, SourceError
from pipelines.progress import listening
from pipelines.sources import open_source
from pipelines.sources._folders import given_files, relative_name
from pipelines.worlds import prepare_world

TREE = b"".join(b"Toys > Kind %d\n" % n for n in range(2000))


class Shop(ThreadingHTTPServer):
    """Serves ``TREE`` at any path but /gone/…; cuts the first answer after ``cut`` bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cut = 0
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append((self.path, wanted))
        if self.path.startswith("/gone"):
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-") or 0)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(TREE) - 1}/{len(TREE)}")
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(TREE) - start))
        self.end_headers()
        end, self.server.cut = self.server.cut or len(TREE), 0
        self.wfile.write(TREE[start:end])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runtime={"home": tmp_path / "home"})  # type: ignore[arg-type]


def test_a_path_is_itself_and_named_by_its_place(tmp_path: Path, settings: Settings) -> None:
    (found,) = given_files([str(tmp_path / "data" / "a.txt")], settings)
    assert found == tmp_path / "data" / "a.txt"
    assert relative_name(found, tmp_path) == "data/a.txt"
    assert relative_name(found, tmp_path / "other") == "a.txt"


def test_an_address_is_downloaded_once(shop: Shop, settings: Settings) -> None:
    address = f"{shop.url}/trees/tree.txt?v=2"
    first = given_files([address], settings)
    assert given_files([address], settings) == first
    assert first[0].name == "tree.txt"
    assert first[0].read_bytes() == TREE
    assert shop.asked == [("/trees/tree.txt?v=2", "")]


def test_files_of_one_name_from_two_addresses_are_apart(shop: Shop, settings: Settings) -> None:
    found = given_files([f"{shop.url}/a/tree.txt", f"{shop.url}/b/tree.txt"], settings)
    assert found[0] != found[1]
    assert [p.name for p in found] == ["tree.txt"] * 2


def test_a_download_that_was_cut_goes_on_and_is_never_half_there(
    shop: Shop, tmp_path: Path
) -> None:
    shop.cut = 9000
    world = GivenWorld(tmp_path, "taxonomy")
    found = world.ingest(data={"taxonomy": {"file": f"{shop.url}/tree.txt"}})
    assert found["raw.taxonomy_categories"].rows == 2000
    assert [asked for _, asked in shop.asked] == ["", "bytes=9000-"]


@pytest.mark.parametrize(
    ("source", "data", "files"),
    [
        (
            "amazon",
            {"reviews": ["Toys.jsonl"], "meta": ["meta_Toys.jsonl"]},
            ["Toys.jsonl", "meta_Toys.jsonl"],
        ),
        (
            "steam",
            {"games": "games.json", "reviews": "reviews.json", "items": "items.json"},
            ["games.json", "reviews.json", "items.json"],
        ),
        ("taxonomy", {"file": "tree.txt"}, ["tree.txt"]),
        ("personas", {"files": ["a.txt", "b.jsonl"]}, ["a.txt", "b.jsonl"]),
    ],
)
def test_every_source_reports_how_far_its_downloads_are(
    shop: Shop, tmp_path: Path, source: str, data: dict[str, Any], files: list[str]
) -> None:
    addresses = {
        key: f"{shop.url}/{named}" if isinstance(named, str) else [f"{shop.url}/{n}" for n in named]
        for key, named in data.items()
    }
    tree = GivenWorld(tmp_path, source).settings(data={source: addresses})
    reported: list[tuple[str, int, int | None]] = []
    name = {"personas": "persona_files"}.get(source, source)
    reader = open_source(name, tree)
    with listening(lambda *event: reported.append(event)):
        found = reader.files(tmp_path / "data")
    assert sorted(path.name for path in found) == sorted(files)
    ends = [(stage, done, total) for stage, done, total in reported if done == total]
    assert ends == [(f"downloading {file}", len(TREE), len(TREE)) for file in files]
    # An existing file is not downloaded, nor reported, again.
    reported.clear()
    with listening(lambda *event: reported.append(event)):
        assert reader.files(tmp_path / "data") == found
    assert reported == []


def test_a_world_reports_what_is_downloaded_for_it(shop: Shop, tmp_path: Path) -> None:
    given = GivenWorld(tmp_path, "steam")
    given.folder.mkdir()
    shop.cut = 9000
    reported: list[tuple[str, int, int | None]] = []
    steam = {"games": f"{shop.url}/g.json", "reviews": f"{shop.url}/r.json"}
    with listening(lambda *event: reported.append(event)):
        world = prepare_world(given.settings(data={"steam": steam}))
    assert world.domains == {"games"}
    counts = [done for stage, done, _ in reported if stage == "downloading g.json"]
    # The first answer was cut: the count goes on from there, and never back.
    assert 9000 in counts
    assert counts == sorted(counts)
    assert reported[-1] == ("downloading r.json", len(TREE), len(TREE))


def test_what_a_server_does_not_have_and_an_address_without_a_file_are_errors(
    shop: Shop, settings: Settings
) -> None:
    with pytest.raises(SourceError, match=r"404.*gone/tree\.txt"):
        given_files([f"{shop.url}/gone/tree.txt"], settings)
    home = settings.runtime.home
    assert not [p for p in home.rglob("tree.txt") if p.is_file()]
    with pytest.raises(ConfigError, match="names no file"):
        given_files([f"{shop.url}/"], settings)
