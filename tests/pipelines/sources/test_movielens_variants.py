"""ML-1M and ML-100K: their own separators, codes and flags, and what each bad row becomes."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.errors import SourceError
from pipelines.sources import RejectLog, Workspace, World, ingest, open_source
from pipelines.sources.movielens import ARCHIVES, find_layout
from pipelines.store import Store

ML_1M = {
    "movies.dat": [
        "1::Alpha (1999)::Drama|Comedy",
        "2::Métier: Beta, The (2001)::Action",
        '3::Gamma: A "Quoted" Story (1990)::Children\'s',
    ],
    "ratings.dat": ["1::1::5::1000000100", "1::2::3::1000000200", "2::1::1::1000000300"],
    "users.dat": ["1::F::1::10::48067", "2::M::56::16::70072-1"],
}
FLAGS = "0|" * 18 + "0"


def item(film: int, title: str, *genres: int) -> str:
    flags = "|".join("1" if n in genres else "0" for n in range(19))
    return f"{film}|{title}|01-Jan-1995||http://us.imdb.com/M/title-exact?x|{flags}"


ML_100K = {
    "u.item": [
        item(1, "Alpha (1995)", 3, 4, 5),
        item(2, "Misérables, Les (1995)", 8),
        item(267, "unknown", 0),
    ],
    "u.data": ["1\t1\t5\t881250949", "2\t1\t3\t891717742", "1\t2\t1\t878887116"],
    "u.user": ["1|24|M|technician|85711", "2|53|F|other|"],
}


def write(folder: Path, variant: str, **files: list[str]) -> Path:
    content = {"ml-1m": ML_1M, "ml-100k": ML_100K}[variant]
    content = content | {name.replace("__", "."): lines for name, lines in files.items()}
    target = folder / "movielens" / variant
    target.mkdir(parents=True)
    for name, lines in content.items():
        (target / name).write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
    return folder


class Read:
    """All tables of a variant, and what was rejected."""

    def __init__(self, folder: Path, scratch: Path, variant: str = "auto") -> None:
        settings = Settings(world={"folder": folder, "variant": variant})
        work = Workspace(scratch / "work", settings, RejectLog(scratch / "rejects"))
        work.scratch.mkdir(parents=True)
        self.tables: dict[str, pl.DataFrame] = {}
        for table in open_source("movielens", settings).read(folder, work):
            contract = CONTRACTS[table.dataset]
            frames = [contract.validate(frame) for frame in table.batches]
            frame = pl.concat([pl.DataFrame(schema=contract.polars_schema()), *frames])
            if table.file is not None:
                left_out = work.rejects.count(table.file) + sum(table.filtered.values())
                assert table.rows.total() == frame.height + left_out
            self.tables[table.dataset.removeprefix("raw.movielens_")] = frame
        self.rejected = [
            (row[0].rpartition("/")[2], *row[1:4])
            for frame in work.rejects.batches()
            for row in frame.iter_rows()
        ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def test_ml_1m_comes_out_as_published(data: Path, scratch: Path) -> None:
    read = Read(write(data, "ml-1m"), scratch)
    assert read.tables["movies"].rows() == [
        (1, "Alpha (1999)", "Drama|Comedy"),
        (2, "Métier: Beta, The (2001)", "Action"),
        (3, 'Gamma: A "Quoted" Story (1990)', "Children's"),
    ]
    assert read.tables["ratings"].rows() == [
        (1, 1, 5.0, "1-5", 1000000100),
        (1, 2, 3.0, "1-5", 1000000200),
        (2, 1, 1.0, "1-5", 1000000300),
    ]
    assert read.tables["users"].rows() == [
        (1, "F", None, 1, None, 10, "48067"),
        (2, "M", None, 56, None, 16, "70072-1"),
    ]
    assert (read.tables["links"].height, read.tables["tags"].height) == (0, 0)
    assert read.rejected == []


def test_ml_10m_comes_out_with_half_stars_and_tags(data: Path, scratch: Path) -> None:
    folder = data / "movielens/ml-10M100K"
    folder.mkdir(parents=True)
    (folder / "movies.dat").write_text("1::Misérables, Les (1995)::Drama\n", encoding="utf-8")
    (folder / "ratings.dat").write_text("1::1::3.5::838985046\n")
    (folder / "tags.dat").write_text("15::1::excellent!::1215184630\n")
    read = Read(data, scratch)
    assert find_layout(data).variant == "ml-10m"
    assert read.tables["movies"].rows() == [(1, "Misérables, Les (1995)", "Drama")]
    assert read.tables["ratings"].rows() == [(1, 1, 3.5, "0.5-5", 838985046)]
    assert read.tables["tags"].rows() == [(15, 1, "excellent!", 1215184630)]
    assert read.rejected == []


def test_ml_100k_comes_out_with_genres_for_flags(data: Path, scratch: Path) -> None:
    read = Read(write(data, "ml-100k"), scratch)
    assert read.tables["movies"].rows() == [
        (1, "Alpha (1995)", "Animation|Children's|Comedy"),
        (2, "Misérables, Les (1995)", "Drama"),
        (267, "unknown", "(no genres listed)"),
    ]
    # u.data has no order; the table has.
    assert read.tables["ratings"].rows() == [
        (1, 1, 5.0, "1-5", 881250949),
        (1, 2, 1.0, "1-5", 878887116),
        (2, 1, 3.0, "1-5", 891717742),
    ]
    assert read.tables["users"].rows() == [
        (1, "M", 24, None, "technician", None, "85711"),
        (2, "F", 53, None, "other", None, None),
    ]
    assert read.rejected == []


def test_each_bad_row_of_ml_1m_is_rejected_for_its_reason_and_with_its_line(
    data: Path, scratch: Path
) -> None:
    write(
        data,
        "ml-1m",
        movies__dat=[
            *ML_1M["movies.dat"],
            "4::No genres (2000)",
            "x::Bad (2000)::Drama",
            "1::Alpha (1999)::War",
            "5::  ::War",
        ],
        ratings__dat=[
            *ML_1M["ratings.dat"],
            "1::3::3.5::1000000300",
            "1::3::6::1000000300",
            "1::3::0::1000000300",
            "1::3::five::1000000300",
            "1::3::5",
            "1:3::5::300",
            "",
            "1::99::5::1000000300",
            "2::1::2::1000000400",
            "2::3::2::99999999999",
        ],
        users__dat=[
            *ML_1M["users.dat"],
            "3::X::25::1::1",
            "4::F::26::1::1",
            "5::F::25::21::1",
            "2::F::25::2::1",
        ],
    )
    read = Read(data, scratch)
    assert read.rejected == [
        ("movies.dat", 4, "wrong_columns", "4::No genres (2000)"),
        ("movies.dat", 5, "bad_id", "x::Bad (2000)::Drama"),
        ("movies.dat", 6, "duplicate_key", "1::Alpha (1999)::War"),
        ("movies.dat", 7, "missing_title", "5::  ::War"),
        ("ratings.dat", 4, "off_scale", "1::3::3.5::1000000300"),
        ("ratings.dat", 5, "off_scale", "1::3::6::1000000300"),
        ("ratings.dat", 6, "off_scale", "1::3::0::1000000300"),
        ("ratings.dat", 7, "bad_rating", "1::3::five::1000000300"),
        ("ratings.dat", 8, "wrong_columns", "1::3::5"),
        ("ratings.dat", 9, "wrong_columns", "1:3::5::300"),
        ("ratings.dat", 10, "blank_line", ""),
        ("ratings.dat", 11, "unknown_film", "1::99::5::1000000300"),
        ("ratings.dat", 13, "bad_timestamp", "2::3::2::99999999999"),
        ("users.dat", 3, "bad_gender", "3::X::25::1::1"),
        ("users.dat", 4, "bad_age", "4::F::26::1::1"),
        ("users.dat", 5, "bad_occupation", "5::F::25::21::1"),
        ("users.dat", 6, "duplicate_key", "2::F::25::2::1"),
    ]


def test_each_bad_row_of_ml_100k_is_rejected_for_its_reason(data: Path, scratch: Path) -> None:
    write(
        data,
        "ml-100k",
        u__item=[
            *ML_100K["u.item"],
            item(3, "Gamma (1995)", 8).removesuffix("0") + "2",
            "4|Delta|||",
        ],
        u__user=[
            *ML_100K["u.user"],
            "3|0|M|artist|1",
            "4|130|M|artist|1",
            "5|30|m|artist|1",
            "6|30|M| |1",
        ],
        u__data=[*ML_100K["u.data"], "1 1\t5\t100"],
    )
    read = Read(data, scratch)
    assert [row[:3] for row in read.rejected] == [
        ("u.data", 4, "wrong_columns"),
        ("u.item", 4, "bad_genre_flag"),
        ("u.item", 5, "wrong_columns"),
        ("u.user", 3, "bad_age"),
        ("u.user", 4, "bad_age"),
        ("u.user", 5, "bad_gender"),
        ("u.user", 6, "bad_occupation"),
    ]


def test_a_row_is_what_its_line_is_however_the_bytes_are_cut(data: Path, scratch: Path) -> None:
    from pipelines.sources._files import any_file
    from pipelines.sources._reader import Column, Separated

    path = scratch / "movies.dat"
    path.parent.mkdir(parents=True)
    path.write_bytes("1::Ü::a\r\n2::é|\x1f::b\n3::c::::d\n4::e:::f\n5::g::h".encode("latin-1"))
    columns = (Column("a", "a", "integer", "bad_id"), Column("b", "b"), Column("c", "c"))
    separated = Separated("::", quoted=False, headed=False, encoding="latin-1")
    for block in range(1, 45):
        batches = list(separated.rows(any_file(path, "f"), columns, block))
        lines = [line for batch in batches for line in batch.frame["line"]]
        assert lines == [1, 2, 3, 4, 5]
        rows = [
            row
            for batch in batches
            for n, row in enumerate(batch.frame.rows())
            if n not in batch.faults
        ]
        assert rows == [
            (1, "Ü", "a", 1),
            (2, "é|\x1f", "b", 2),
            (4, "e", ":f", 4),
            (5, "g", "h", 5),
        ]
        ((fault, text),) = [(b.faults[n], b.text(n)) for b in batches for n in b.faults]
        assert (fault[0], text) == ("wrong_columns", "3::c::::d")


def test_a_part_of_an_archive_may_stand_in_for_it(data: Path) -> None:
    folder = data / "movielens"
    folder.mkdir(parents=True)
    for name in ("ml-1m-partial.zip", "ml-100k.zip"):
        with zipfile.ZipFile(folder / name, "w"):
            pass
    assert find_layout(data, "ml-1m").name == "movielens/ml-1m-partial.zip"
    assert find_layout(data, "ml-1m").format == "dat"
    assert find_layout(data, "ml-100k").format == "u"
    with pytest.raises(SourceError, match="which MovieLens variant"):
        find_layout(data)


def test_a_file_that_is_missing_or_empty_is_named(data: Path, scratch: Path) -> None:
    folder = write(data, "ml-1m") / "movielens" / "ml-1m"
    (folder / "ratings.dat").write_bytes(b"")
    with pytest.raises(SourceError, match=r"the file is empty: .*ratings\.dat .*userId::movieId"):
        Read(data, scratch)
    (folder / "users.dat").unlink()
    with pytest.raises(SourceError, match=r"users\.dat missing.*expected movies\.dat, users\.dat"):
        Read(data, scratch / "again")


@pytest.mark.parametrize("folder", ["movielens", "movielens/mine", "movielens/ml-25m", "my data"])
def test_links_and_tags_of_a_folder_may_be_absent(data: Path, scratch: Path, folder: str) -> None:
    target = data / folder
    target.mkdir(parents=True)
    (target / "movies.csv").write_text("movieId,title,genres\n1,Alpha (1999),Drama\n")
    (target / "ratings.csv").write_text("userId,movieId,rating,timestamp\n7,1,4.5,1000000100\n")
    got = Read(data, scratch)
    assert got.tables["ratings"].height == 1
    assert not got.tables["links"].height + got.tables["tags"].height


def test_published_archive_without_its_links_is_an_error(data: Path, scratch: Path) -> None:
    (data / "movielens").mkdir(parents=True)
    with zipfile.ZipFile(data / "movielens" / "ml-25m.zip", "w") as archive:
        for name in ("movies", "ratings", "tags"):
            archive.writestr(f"ml-25m/{name}.csv", "")
    with pytest.raises(SourceError, match=r"links\.csv missing"):
        Read(data, scratch)


#: Files of two films as people save them: by pandas with and without an index, by a spreadsheet,
#: with columns of their own, packed.
SAVED = {
    "pandas": (",movieId,title,genres\n0,1,A (1999),War\n", ",userId,movieId,rating,timestamp\n"
               "0,7.0,1.0,4.5,964982703.0\n"),
    "other order": ("genres,title,movieId\nWar,A (1999),1\n",
                    "timestamp,rating,movieId,userId\n964982703,4.5,1,7\n"),
    "other names": ("MOVIE_ID,Title,Genres\n1,A (1999),War\n",
                    "user_id,movie_id,Rating,timestamp\n7,1,4.5,964982703\n"),
    "spreadsheet": ("movieId;title;genres\n1;A (1999);War\n",
                    "userId;movieId;rating;timestamp\n7;1;4.5;964982703\n"),
    "more columns": ("movieId,title,genres,note\n1,A (1999),War,\"good, old\"\n",
                     "userId, movieId, rating, timestamp, x\n7, 1, 4.5, 964982703, 3\n"),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("saved", SAVED)
def test_files_that_were_saved_again_are_read(
    data: Path, scratch: Path, saved: str, packed: bool
) -> None:
    folder = data / "ml-latest-small"
    folder.mkdir(parents=True)
    for name, text in zip(("movies", "ratings"), SAVED[saved], strict=True):
        if packed:
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{name}.csv").write_text(text)
    tables = Read(data, scratch).tables
    assert tables["movies"].rows() == [(1, "A (1999)", "War")]
    assert tables["ratings"].rows() == [(7, 1, 4.5, "0.5-5", 964982703)]


def test_every_archive_has_an_address_and_a_checksum() -> None:
    assert set(ARCHIVES) == {"ml-latest-small", "ml-25m", "ml-32m", "ml-1m", "ml-100k"}
    for name, archive in ARCHIVES.items():
        assert archive.path == f"datasets/movielens/{name}.zip"
        assert (archive.algorithm, len(archive.checksum)) == ("md5", 32)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("variant", "films", "ratings", "users"),
    [("ml-100k", 1682, 100_000, 943), ("ml-1m", 3883, 53_383, 6040)],
)
def test_the_real_files_come_out_whole(
    shared_data: Path, tmp_path: Path, variant: str, films: int, ratings: int, users: int
) -> None:
    settings = Settings(
        world={"folder": shared_data, "variant": variant}, runtime={"home": tmp_path}
    )
    files = tuple(open_source("movielens", settings).files(shared_data))
    world = World(variant, shared_data, "given", {"movielens": files}, frozenset({"movies"}))
    found = ingest("movielens", world, Store(tmp_path), settings)
    assert found["raw.movielens_movies"].rows == films
    assert found["raw.movielens_ratings"].rows == ratings
    assert found["raw.movielens_users"].rows == users
    assert found["raw.movielens_rejected"].rows == 0
    titles = found["raw.movielens_movies"].read()["title"]
    assert "Misérables, Les (1995)" in titles
