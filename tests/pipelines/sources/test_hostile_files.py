"""Files that are not what their names say: links, pipes, long lines, bombs, unclear names."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import polars as pl
import pytest
from support.amazon_files import meta_2018, meta_2023, review_2018, review_2023
from support.given_worlds import GivenWorld

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.sources import SOURCES, open_source
from pipelines.sources import _files as original_module
from pipelines.sources._files import open_file
from pipelines.worlds import prepare_world

ASIN = "B000000001"
GAME = "{'id': '10', 'app_name': 'Game'}\n"
REVIEW = "{'user_id': 'a', 'reviews': [{'item_id': '10', 'recommend': True, 'posted': ''}]}\n"
TIMES = "{'user_id': 'a', 'items': [{'item_id': '10', 'playtime_forever': 5}]}\n"
PERSONA = "A retired teacher who restores old clocks and sings in a choir.\n"
ITEM = "1|Heat (1995)|01-Jan-1995||http://x|" + "|".join("0" * 18) + "|1\n"

#: A whole set of files for each source and format, by place in a data folder.
WHOLE: dict[str, dict[str, str]] = {
    "csv": {
        "movielens/ml-25m/movies.csv": "movieId,title,genres\n1,Heat,Drama\n",
        "movielens/ml-25m/ratings.csv": "userId,movieId,rating,timestamp\n1,1,3.5,1000000009\n",
        "movielens/ml-25m/links.csv": "movieId,imdbId,tmdbId\n1,1,1\n",
        "movielens/ml-25m/tags.csv": "userId,movieId,tag,timestamp\n1,1,fun,1000000009\n",
    },
    "dat": {
        "movielens/ml-1m/movies.dat": "1::Heat (1995)::Drama\n",
        "movielens/ml-1m/users.dat": "1::F::1::10::48067\n",
        "movielens/ml-1m/ratings.dat": "1::1::5::978300760\n",
    },
    "u": {
        "movielens/ml-100k/u.item": ITEM,
        "movielens/ml-100k/u.user": "1|24|M|writer|85711\n",
        "movielens/ml-100k/u.data": "1\t1\t3\t881250949\n",
    },
    "steam": {
        "steam/steam_games.json": GAME,
        "steam/australian_user_reviews.json": REVIEW,
        "steam/australian_users_items.json": TIMES,
    },
    "amazon-2018": {
        "amazon/2018/Books.json": review_2018("A1", ASIN).decode() + "\n",
        "amazon/2018/meta_Books.json": meta_2018(ASIN).decode() + "\n",
    },
    "amazon-2023": {
        "amazon/2023/Books.jsonl": review_2023("A1", ASIN).decode() + "\n",
        "amazon/2023/meta_Books.jsonl": meta_2023(ASIN).decode() + "\n",
    },
    "tree-lines": {"taxonomy/tree.txt": "Home\nHome > Kitchen\n"},
    "tree-csv": {"taxonomy/tree.csv": "level1,level2\nHome,\nHome,Kitchen\n"},
    "personas-text": {"personas/a.txt": PERSONA},
    "personas-json": {"personas/a.jsonl": orjson.dumps({"persona": PERSONA}).decode() + "\n"},
    "tmdb": {"tmdb/movies.jsonl": '{"id": 1}\n'},
    "own": {
        "own/items.csv": "item,title,genre\na,Soup,Thai\n",
        "own/ratings.csv": "user,item,rating\nu,a,4\n",
    },
}
SOURCE = {
    "csv": "movielens", "dat": "movielens", "u": "movielens", "steam": "steam", "tmdb": "tmdb",
    "amazon-2018": "amazon", "amazon-2023": "amazon", "tree-lines": "taxonomy",
    "tree-csv": "taxonomy", "personas-text": "persona_files", "personas-json": "persona_files",
    "own": "own",
}  # fmt: skip
EVERY_FILE = [(form, name) for form, files in WHOLE.items() for name in files]
#: Forms that may be packed by gzip.
PACKED = [form for form in WHOLE if SOURCE[form] != "movielens"]

IRREGULAR: dict[str, tuple[Callable[[Path], object], str]] = {
    "dangling link": (lambda p: p.symlink_to("nowhere"), "the link leads nowhere"),
    "named pipe": (os.mkfifo, "a named pipe where a regular file is expected"),
    "folder": (Path.mkdir, "a folder where a regular file is expected"),
    "endless device": (lambda p: p.symlink_to("/dev/zero"), "a device where a regular file"),
}


def world_of(root: Path, form: str) -> GivenWorld:
    world = GivenWorld(root, SOURCE[form])
    for name, content in WHOLE[form].items():
        world.write(name, content)
    return world


def test_every_source_has_files_here() -> None:
    assert set(SOURCE.values()) == set(SOURCES)


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize(("form", "name"), EVERY_FILE)
def test_irregular_file_is_refused_by_name(tmp_path: Path, form: str, name: str, kind: str) -> None:
    world = world_of(tmp_path, form)
    make, expected = IRREGULAR[kind]
    (world.folder / name).unlink()
    make(world.folder / name)
    with pytest.raises(SourceError) as caught:
        open_source(world.source, world.settings()).files(world.folder)
    assert str(caught.value).startswith(expected)
    assert str(world.folder / name) in str(caught.value)


@pytest.mark.parametrize("kind", IRREGULAR)
def test_irregular_archive_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    make, expected = IRREGULAR[kind]
    place = tmp_path / "movielens" / "ml-25m.zip"
    place.parent.mkdir()
    make(place)
    with pytest.raises(SourceError, match=rf"^{expected}.*ml-25m\.zip"):
        open_source("movielens", Settings(world={"folder": tmp_path})).files(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "data", "name"),
    [
        ("amazon", {"amazon": {"reviews": ["Toys.jsonl"]}}, "Toys.jsonl"),
        ("steam", {"steam": {"games": "g.json", "reviews": "r.json"}}, "g.json"),
        ("taxonomy", {"taxonomy": {"file": "tree.txt"}}, "tree.txt"),
        ("persona_files", {"personas": {"files": ["a.txt"]}}, "a.txt"),
    ],
)
def test_named_pipe_from_settings_is_refused(
    tmp_path: Path,
    source: str,
    data: dict[str, dict[str, object]],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError, match=f"^a named pipe.*{name}"):
        open_source(source, Settings(data=data)).files(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["named pipe", "endless device", "folder"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    IRREGULAR[kind][0](tmp_path / "f")
    with pytest.raises(SourceError, match=rf"^a {kind.split()[-1]}|^a named pipe"):
        open_file(tmp_path / "f", "data/f")


@pytest.mark.parametrize("folder", ["movielens", "tmdb", "steam", "amazon", "taxonomy", "personas"])
@pytest.mark.parametrize("kind", ["dangling link", "file"])
def test_source_folder_that_is_no_folder_is_an_error(
    tmp_path: Path, folder: str, kind: str
) -> None:
    world = world_of(tmp_path, "steam" if folder != "steam" else "csv")
    place = world.folder / folder
    place.write_text("x") if kind == "file" else place.symlink_to("nowhere")
    with pytest.raises(SourceError, match=rf"leads nowhere|a file where a folder.*{folder}"):
        prepare_world(world.settings())


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("csv", "movielens/ml-25m/ratings (1).csv"),
        ("csv", "movielens/ml-25m (1).zip"),
        ("tmdb", "tmdb/movies (1).jsonl.gz"),
        ("steam", "steam/steam_games [old].json.gz"),
        ("steam", "steam/australian_users_ items.json"),
        ("amazon-2018", "amazon/2018/Books (1).json.gz"),
        ("amazon-2018", "amazon/2018/Cell Phones.json.gz"),
        ("amazon-2023", "amazon/2023/Toys[2].jsonl"),
        ("amazon-2023", "amazon/2023/Home-Kitchen.JSONL.GZ"),
    ],
)
def test_name_that_resembles_a_source_file_is_an_error(
    tmp_path: Path, form: str, name: str
) -> None:
    world = world_of(tmp_path, form)
    world.write(name, "x")
    with pytest.raises(SourceError, match=r"^the name resembles a source file's") as caught:
        open_source(world.source, world.settings()).files(world.folder)
    assert str(world.folder / name) in str(caught.value)


def test_blanks_in_persona_file_names_are_read(tmp_path: Path) -> None:
    world = GivenWorld(tmp_path, "persona_files")
    world.write("personas/my people (1).txt", PERSONA)
    assert world.ingest()["raw.persona_files"].rows == 1


def test_unread_files_of_a_data_folder_are_listed(tmp_path: Path) -> None:
    world = world_of(tmp_path, "csv")
    for name in (
        "movielens/ml-25m/README.txt", "movielens/ml-1m/movies.dat", "personas/a.parquet",
        "persona_files/a.txt", "amazon/Books.csv", "steam/bundle_data.json.gz", "notes.txt",
    ):  # fmt: skip
        world.write(name, "x")
    found = prepare_world(world.settings(world={"folder": world.folder, "variant": "ml-25m"}))
    assert list(found.unread) == [
        "amazon/Books.csv",
        "movielens/ml-1m/",
        "movielens/ml-25m/README.txt",
        "notes.txt",
        "persona_files/",
        "personas/a.parquet",
        "steam/bundle_data.json.gz",
    ]


def test_empty_world_hint_names_folders_and_unread(tmp_path: Path) -> None:
    (tmp_path / "persona_files").mkdir()
    with pytest.raises(SourceError) as caught:
        prepare_world(Settings(world={"folder": tmp_path}))  # type: ignore[arg-type]
    assert "personas/; not read: persona_files/" in str(caught.value)


# -- Amazon without a part -----------------------------------------------------------------


def test_amazon_without_records_names_them(tmp_path: Path) -> None:
    world = world_of(tmp_path, "amazon-2018")
    (world.folder / "amazon/2018/meta_Books.json").unlink()
    with pytest.raises(SourceError, match=r"^reviews without product records: .*meta_Books"):
        prepare_world(world.settings())


def test_amazon_without_a_tree_makes_products(tmp_path: Path) -> None:
    world = GivenWorld(tmp_path, "taxonomy")
    world.write("amazon/2018/Toys.json", review_2018("A1", ASIN))
    world.write("amazon/2018/meta_Toys.json", meta_2018(ASIN))
    assert prepare_world(world.settings()).domains == {"products"}
    assert world.ingest()["raw.taxonomy_categories"].rows == 0


def test_reviews_of_one_domain_without_records_are_reported(tmp_path: Path) -> None:
    world = world_of(tmp_path, "amazon-2018")
    world.write("amazon/2018/Toys.json", review_2018("A1", ASIN))
    found = prepare_world(world.settings())
    assert found.domains == {"books"}
    assert [text.partition(" (")[0] for text in found.unused] == [
        "reviews without product records: amazon/2018/Toys.json"
    ]


# -- long lines ----------------------------------------------------------------------------

LONG = 2_100_000
LONG_LINES = {
    "movielens/ml-25m/movies.csv": "2,{},Drama\n",
    "movielens/ml-25m/ratings.csv": "1,1,{},1000000009\n",
    "movielens/ml-25m/links.csv": "1,{},1\n",
    "movielens/ml-25m/tags.csv": "1,1,{},1000000009\n",
    "movielens/ml-1m/movies.dat": "2::{}::Drama\n",
    "movielens/ml-1m/users.dat": "2::F::1::10::{}\n",
    "movielens/ml-100k/u.item": ITEM.replace("1|Heat", "2|{}"),
    "movielens/ml-100k/u.data": "1\t1\t3\t{}\n",
    "steam/steam_games.json": "{{'id': '11', 'app_name': '{}'}}\n",
    "steam/australian_user_reviews.json": "{{'user_id': 'b', 'x': '{}', 'reviews': []}}\n",
    "amazon/2018/Books.json": '{{"reviewText": "{}"}}\n',
    "amazon/2018/meta_Books.json": '{{"asin": "B000000002", "title": "{}"}}\n',
    "amazon/2023/Books.jsonl": '{{"text": "{}"}}\n',
    "amazon/2023/meta_Books.jsonl": '{{"parent_asin": "B000000002", "title": "{}"}}\n',
    "taxonomy/tree.txt": "Home > {}\n",
    "taxonomy/tree.csv": "Home,{}\n",
    "personas/a.txt": "{}\n",
    "personas/a.jsonl": '{{"persona": "{}"}}\n',
}


@pytest.mark.parametrize("name", LONG_LINES)
def test_long_line_is_rejected_with_its_line_and_size(tmp_path: Path, name: str) -> None:
    form = next(form for form, each in EVERY_FILE if each == name)
    world = world_of(tmp_path, form)
    # Steam's lists have a line for each user, with all games.
    size = 8 * LONG if SOURCE[form] == "steam" else LONG
    long, before = LONG_LINES[name].format("a" * size), WHOLE[form][name]
    world.write(name, before + long + before.splitlines()[-1] + "\n")
    found = world.ingest(ingest={"max_rejected_share": 1.0})
    rejected = found[list(found)[-1]].read(["file", "line", "reason", "text"])
    row = rejected.filter(reason="too_long").row(0, named=True)
    assert (row["file"], row["line"]) == (name, len(before.splitlines()) + 1)
    assert row["text"].endswith(f"… ({len(long.rstrip())} characters)")


@pytest.mark.pipeline
@pytest.mark.parametrize("name", [*LONG_LINES, "tmdb/movies.jsonl"])
def test_endless_line_names_file_and_line(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(original_module, "MAX_RECORD", 9 << 20)
    form = next(form for form, each in EVERY_FILE if each == name)
    world = world_of(tmp_path, form)
    before = WHOLE[form][name]
    world.write(name, before + "a" * (30 << 20))
    if form == "tmdb":
        frame = pl.DataFrame({"movie_id": [1], "imdb_id": ["1"], "tmdb_id": [1]})
        titles = pl.DataFrame({"movie_id": [1], "title": ["Heat"], "genres": ["Drama"]})
        world.store.commit("raw.movielens_links", frame, code_version="t")
        world.store.commit("raw.movielens_movies", titles, code_version="t")
    line = len(before.splitlines()) + 1
    with pytest.raises(SourceError, match=rf"^a line is longer than 9 MiB: {name}:{line} "):
        world.ingest()


def test_category_tree_header_of_one_long_cell_is_an_error(tmp_path: Path) -> None:
    world = GivenWorld(tmp_path, "taxonomy")
    world.write("taxonomy/tree.csv", "a" * 200_000 + "\nHome\n")
    with pytest.raises(SourceError, match="the header is not the expected one"):
        world.ingest()


# -- compression bombs ---------------------------------------------------------------------


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_module, "_RATIO_APPLIES_FROM", 1 << 20)


def pieces(file: original_module.Original) -> Iterator[bytes]:
    """The bytes of a file, 64 KiB at a time."""
    yield from file.pieces(1 << 16)


def bomb(world: GivenWorld, form: str) -> str:
    """Pack the last file of a form, followed by 30 million empty lines."""
    name = list(WHOLE[form])[-1]
    (world.folder / name).unlink()
    world.write(f"{name}.gz", WHOLE[form][name].encode() + b"\n" * 30_000_000, packed=True)
    return f"{name}.gz"


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.usefixtures("low_limits")
def test_gzip_bomb_is_refused_early(tmp_path: Path, form: str) -> None:
    world = world_of(tmp_path, form)
    name = bomb(world, form)
    file, sizes = original_module.any_file(world.folder / name, name), []
    with pytest.raises(SourceError, match=f"unpack to .*{name}"):
        sizes.extend(len(data) for data in pieces(file))
    assert sum(sizes) < 10 << 20


@pytest.mark.usefixtures("low_limits")
def test_unpack_limits_of_settings_reach_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, original_module.UnpackLimits] = {}

    def note(limits: original_module.UnpackLimits, packed: int, _: int, name: str) -> None:
        assert packed, name
        seen[form] = limits

    monkeypatch.setattr(original_module.UnpackLimits, "check", note)
    data = {"max_unpack_ratio": 7, "max_unpacked_gb": 0.5}
    for form in [*PACKED, "csv"]:
        if form == "tmdb":
            continue
        world = world_of(tmp_path / form, form)
        for name, content in WHOLE[form].items():
            (world.folder / name).unlink()
            if form != "csv":
                world.write(f"{name}.gz", content, packed=True)
        if form == "csv":
            (world.folder / "movielens/ml-25m").rmdir()
            with zipfile.ZipFile(world.folder / "movielens/ml-25m.zip", "w") as archive:
                for name, content in WHOLE[form].items():
                    archive.writestr(Path(name).name, content)
        world.ingest(data=data, ingest={"max_rejected_share": 1.0})
    expected = original_module.UnpackLimits(ratio=7, size=500_000_000)
    assert seen == {form: expected for form in [*PACKED, "csv"] if form != "tmdb"}


def test_file_over_the_size_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(os.urandom(3_000_000)))
    limits = original_module.UnpackLimits(size=2_000_000)
    file = original_module.any_file(path, "a.gz", limits)
    with pytest.raises(SourceError, match="max_unpacked_gb"):
        list(pieces(file))
