"""Which original files a run starts from."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipelines.config import Settings
from pipelines.downloads import Download
from pipelines.errors import ConfigError, SourceError, StoreError
from pipelines.sources import SOURCES, open_source
from pipelines.sources.movielens import ARCHIVES
from pipelines.worlds import prepare_world

SAMPLE = {"films": 30, "users": 20, "ratings": 400}


def write_files(folder: Path) -> Path:
    files = {
        "movies.csv": "movieId,title,genres\n1,Alpha (1999),Drama\n",
        "ratings.csv": "userId,movieId,rating,timestamp\n1,1,4.0,1000000100\n",
        "links.csv": "movieId,imdbId,tmdbId\n1,1,1\n",
        "tags.csv": "userId,movieId,tag,timestamp\n",
    }
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


def settings(home: Path, **world: object) -> Settings:
    return Settings(world=world, runtime={"home": home})  # type: ignore[arg-type]


def test_a_given_folder_is_used_as_it_is(tmp_path: Path) -> None:
    write_files(tmp_path / "data/movielens/ml-32m")
    before = sorted(tmp_path.rglob("*"))
    world = prepare_world(settings(tmp_path / "home", folder=tmp_path / "data"))
    assert (world.name, world.origin) == ("ml-32m", "given")
    assert world.folder == tmp_path / "data"
    assert [world.relative(p) for p in world.files["movielens"]] == [
        f"movielens/ml-32m/{name}.csv" for name in ("movies", "ratings", "links", "tags")
    ]
    assert world.has("movielens")
    assert not world.has("tmdb")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dump_in_the_folder_is_seen(tmp_path: Path) -> None:
    write_files(tmp_path / "data/movielens/ml-32m")
    (tmp_path / "data/tmdb").mkdir()
    (tmp_path / "data/tmdb/movies.jsonl").write_text("{}")
    assert prepare_world(settings(tmp_path / "home", folder=tmp_path / "data")).has("tmdb")


def test_a_folder_of_unknown_files_is_described(tmp_path: Path) -> None:
    write_files(tmp_path / "data/movielens/ml-25m")
    (tmp_path / "data/tmdb").mkdir()
    (tmp_path / "data/tmdb/tmdb_5000_movies.csv").write_text("id\n1\n")
    world = prepare_world(settings(tmp_path / "home", folder=tmp_path / "data"))
    (text,) = world.unused
    assert "found tmdb_5000_movies.csv, which looks like Kaggle's TMDB 5000" in text
    assert "expected movies.jsonl.gz" in text


def test_links_without_records_are_reported_with_remedies(tmp_path: Path) -> None:
    write_files(tmp_path / "data/movielens/ml-32m")
    (text,) = prepare_world(settings(tmp_path / "home", folder=tmp_path / "data")).unused
    assert text.startswith("no TMDB records: plots, casts, directors")
    assert str(tmp_path / "data/tmdb") in text
    assert "movies.jsonl.gz" in text
    assert "UNDERSTUDY_TMDB__TOKEN" in text


def test_folder_of_other_files_is_named_beside_what_was_expected(tmp_path: Path) -> None:
    write_files(tmp_path / "data/movielens/ml-32m")
    (tmp_path / "data/tmdb").mkdir()
    for name in ("movies_metadata.csv", "credits.csv", "keywords.csv"):
        (tmp_path / "data/tmdb" / name).write_text("id\n1\n")
    world = prepare_world(settings(tmp_path / "home", folder=tmp_path / "data"))
    (text,) = world.unused
    assert "; found credits.csv, keywords.csv, movies_metadata.csv, which looks like" in text
    assert "The Movies Dataset, CSV" in text
    assert "expected movies.json" in text
    assert world.domains == {"movies"}


@pytest.mark.parametrize("given", ["dump", "token", "archive without links"])
def test_records_that_are_given_or_of_no_use_are_not_missed(tmp_path: Path, given: str) -> None:
    sections: dict[str, object] = {"world": {"folder": tmp_path / "data"}}
    if given == "archive without links":
        names = {"movies": "1::A (1999)::Drama", "ratings": "1::1::4::9", "users": "1::F::1::10::1"}
        (tmp_path / "data/movielens/ml-1m").mkdir(parents=True)
        for name, line in names.items():
            (tmp_path / f"data/movielens/ml-1m/{name}.dat").write_text(f"{line}\n")
    else:
        write_files(tmp_path / "data/movielens/ml-32m")
    if given == "dump":
        (tmp_path / "data/tmdb").mkdir()
        (tmp_path / "data/tmdb/movies.jsonl").write_text("{}")
    if given == "token":
        sections["tmdb"] = {"token": "secret"}
    assert prepare_world(Settings(**sections)).unused == ()  # type: ignore[arg-type]


def test_a_folder_that_is_missing_or_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no such folder.*nowhere"):
        prepare_world(settings(tmp_path, folder=tmp_path / "nowhere"))
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SourceError, match=r"a file where a folder is expected.*file"):
        prepare_world(settings(tmp_path, folder=tmp_path / "file"))


def test_an_unknown_source_names_the_nearest_and_an_unknown_world_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown source: 'imdb' \(did you mean tmdb"):
        open_source("imdb", Settings())
    # Settings refuse the name already; this guards callers that build them without checks.
    odd = settings(tmp_path)
    world = odd.world.model_copy(update={"source": "ml-99m"})
    with pytest.raises(ConfigError, match=r"ml-99m.*known: sample, ml-latest-small, ml-25m"):
        prepare_world(odd.model_copy(update={"world": world}))


def test_every_source_says_its_terms_and_ends_with_its_rejections() -> None:
    for name, source in SOURCES.items():
        assert source.name == name
        # A user's own files are on their makers' terms, wherever those stand.
        own = name in {"own", "persona_files", "taxonomy"}
        assert source.licence.url.startswith("https://") or (own and not source.licence.url)
        assert source.licence.name in source.licence.line
        assert "\n" not in source.licence.line
        assert source.datasets[-1] == f"raw.{name}_rejected"


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "publisher"
    root.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", root
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.mark.shared_data
def test_a_published_archive_is_downloaded_verified_and_opened(
    shared_data: Path, tmp_path: Path, publisher: tuple[str, Path]
) -> None:
    url, root = publisher
    target = root / ARCHIVES["ml-latest-small"].path
    target.parent.mkdir(parents=True)
    target.write_bytes((shared_data / "movielens/ml-latest-small.zip").read_bytes())
    config = settings(tmp_path / "home", source="ml-latest-small")
    world = prepare_world(config, base_url=url)
    assert world.name == "ml-latest-small"
    assert world.origin == f"{url}/datasets/movielens/ml-latest-small.zip"
    assert world.folder == tmp_path / "home/downloads/ml-latest-small"
    # The published checksum is pinned; a second look needs no server.
    target.unlink()
    assert prepare_world(config, base_url=url) == world


@pytest.mark.faults
def test_a_download_with_another_checksum_makes_no_world(
    tmp_path: Path, publisher: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, root = publisher
    (root / "wrong.zip").write_bytes(b"not it")
    right = hashlib.md5(b"it").hexdigest()
    monkeypatch.setitem(
        ARCHIVES,  # type: ignore[arg-type]
        "ml-25m",
        Download("ml-25m.zip", "wrong.zip", "md5", right),
    )
    config = settings(tmp_path / "home", source="ml-25m")
    with pytest.raises(SourceError, match=right):
        prepare_world(config, base_url=url)
    assert not (tmp_path / "home/downloads/ml-25m/movielens/ml-25m.zip").exists()


def test_the_sample_world_is_generated_once_per_size_and_seed(tmp_path: Path) -> None:
    config = settings(tmp_path / "home", sample=SAMPLE)
    world = prepare_world(config)
    assert (world.name, world.origin) == ("sample", "generated")
    assert world.has("movielens")
    assert world.has("tmdb")
    assert world.folder.parent == tmp_path / "home/worlds"
    stamps = {p: p.stat().st_mtime_ns for p in world.folder.rglob("*")}
    assert prepare_world(config) == world
    assert {p: p.stat().st_mtime_ns for p in world.folder.rglob("*")} == stamps
    other = prepare_world(settings(tmp_path / "home", sample={**SAMPLE, "seed": 5}))
    assert other.folder != world.folder


@pytest.mark.faults
def test_remains_of_a_killed_generation_are_replaced(tmp_path: Path) -> None:
    config = settings(tmp_path / "home", sample=SAMPLE)
    world = prepare_world(config)
    left = world.folder.with_name(f".{world.folder.name}.partial")
    world.folder.rename(left)
    (left / "sample_world.json").unlink()
    assert prepare_world(config) == world
    assert list((tmp_path / "home/worlds").iterdir()) == [world.folder]


@pytest.mark.faults
def test_a_home_that_can_not_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the home should be")
    with pytest.raises(StoreError, match="can't be written"):
        prepare_world(settings(tmp_path / "home", sample=SAMPLE))
