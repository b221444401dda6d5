"""MovieLens: layouts, archives, and what each kind of bad row becomes."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.errors import SourceError, StoreError
from pipelines.sources import RejectLog, Workspace, open_source
from pipelines.sources._tables import OrderedRows
from pipelines.sources.movielens import find_layout

MOVIES = [
    "movieId,title,genres",
    "1,Alpha (1999),Drama|Comedy",
    '2,"Beta, The (2001)",(no genres listed)',
    "3,Gamma,Action",
]
RATINGS = [
    "userId,movieId,rating,timestamp",
    "1,1,4.0,1000000100",
    "1,2,0.5,1000000200",
    "2,1,5.0,1000000300",
]
LINKS = ["movieId,imdbId,tmdbId", "1,0000001,11", "2,0000002,", "3,,33"]
TAGS = ["userId,movieId,tag,timestamp", '1,1,"so ""good""",1000000005', "2,2,slow,1000000006"]


def write_world(folder: Path, variant: str = "ml-25m", **files: list[str]) -> Path:
    content = {"movies": MOVIES, "ratings": RATINGS, "links": LINKS, "tags": TAGS} | files
    target = folder / "movielens" / variant
    target.mkdir(parents=True)
    for name, lines in content.items():
        (target / f"{name}.csv").write_text("\r\n".join(lines) + "\r\n", newline="")
    return folder


def pack(folder: Path, variant: str = "ml-25m") -> Path:
    """Turn a variant's folder into the archive that is published."""
    source = folder / "movielens" / variant
    path = source.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.iterdir()):
            archive.write(file, f"{variant}/{file.name}")
    shutil.rmtree(source)
    return path


class Read:
    """All tables of a data folder, and what was rejected."""

    def __init__(self, folder: Path, scratch: Path, **world: object) -> None:
        settings = Settings(world={"folder": folder, **world})  # type: ignore[arg-type]
        work = Workspace(scratch / "work", settings, RejectLog(scratch / "rejects"))
        work.scratch.mkdir(parents=True)
        self.tables: dict[str, pl.DataFrame] = {}
        self.read: dict[str, int] = {}
        self.filtered: dict[str, int] = {}
        for table in open_source("movielens", settings).read(folder, work):
            contract = CONTRACTS[table.dataset]
            frames = [contract.validate(frame) for frame in table.batches]
            empty = pl.DataFrame(schema=contract.polars_schema())
            name = table.dataset.removeprefix("raw.movielens_")
            self.tables[name] = frame = pl.concat([empty, *frames])
            assert frame.equals(frame.sort(contract.order))
            if table.file is None:
                assert not frame.height
                continue
            self.read[name] = table.rows.total()
            filtered = table.filtered
            rejected = work.rejects.count(table.file)
            assert self.read[name] == frame.height + rejected + sum(filtered.values())
            self.filtered |= filtered
        rejects = [row for frame in work.rejects.batches() for row in frame.iter_rows()]
        self.rejected = [(row[0].rpartition("/")[2], *row[1:4]) for row in rejects]
        self.fields = [row[4:] for row in rejects]


def rows(read: Read, name: str) -> list[tuple[object, ...]]:
    """The rows of a table; ratings without their scale."""
    frame = read.tables[name]
    return frame.drop("scale").rows() if "scale" in frame.columns else frame.rows()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


# -- what comes out ------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_rows_come_out_as_published_from_a_folder_and_from_an_archive(
    data: Path, scratch: Path, packed: bool
) -> None:
    write_world(data)
    if packed:
        pack(data)
    read = Read(data, scratch)
    assert read.tables["movies"].rows() == [
        (1, "Alpha (1999)", "Drama|Comedy"),
        (2, "Beta, The (2001)", "(no genres listed)"),
        (3, "Gamma", "Action"),
    ]
    assert rows(read, "ratings") == [
        (1, 1, 4.0, 1000000100),
        (1, 2, 0.5, 1000000200),
        (2, 1, 5.0, 1000000300),
    ]
    assert read.tables["links"].rows() == [(1, "0000001", 11), (2, "0000002", None), (3, None, 33)]
    assert read.tables["tags"].rows() == [
        (1, 1, 'so "good"', 1000000005),
        (2, 2, "slow", 1000000006),
    ]
    assert read.rejected == []


def test_each_bad_rating_is_rejected_for_its_reason_and_with_its_line(
    data: Path, scratch: Path
) -> None:
    write_world(
        data,
        ratings=[
            RATINGS[0],
            "1,1,4.0,1000000100",
            "1.5,1,4.0,1000000100",
            "1,-1,4.0,1000000100",
            "1,2,five,1000000100",
            "1,2,5.5,1000000100",
            "1,2,0.0,1000000100",
            "1,2,3.7,1000000100",
            "1,2,3.5,-1",
            "1,2,3.5,1700000000000",
            "1,99,3.5,1000000100",
            "1,2,3.5,1000000100",
        ],
    )
    read = Read(data, scratch)
    assert rows(read, "ratings") == [(1, 1, 4.0, 1000000100), (1, 2, 3.5, 1000000100)]
    assert read.rejected == [
        ("ratings.csv", 3, "bad_id", "1.5,1,4.0,1000000100"),
        ("ratings.csv", 4, "bad_id", "1,-1,4.0,1000000100"),
        ("ratings.csv", 5, "bad_rating", "1,2,five,1000000100"),
        ("ratings.csv", 6, "off_scale", "1,2,5.5,1000000100"),
        ("ratings.csv", 7, "off_scale", "1,2,0.0,1000000100"),
        ("ratings.csv", 8, "off_scale", "1,2,3.7,1000000100"),
        ("ratings.csv", 9, "bad_timestamp", "1,2,3.5,-1"),
        ("ratings.csv", 10, "bad_timestamp", "1,2,3.5,1700000000000"),
        ("ratings.csv", 11, "unknown_film", "1,99,3.5,1000000100"),
    ]
    assert read.fields == [
        ("userId", "1.5"),
        ("movieId", "-1"),
        ("rating", "five"),
        ("rating", "5.5"),
        ("rating", "0.0"),
        ("rating", "3.7"),
        ("timestamp", "-1"),
        ("timestamp", "1700000000000"),
        ("movieId", "99"),
    ]


def test_of_several_ratings_of_a_film_the_latest_stays_and_at_equal_times_the_last_line(
    data: Path, scratch: Path
) -> None:
    write_world(
        data,
        ratings=[
            RATINGS[0],
            "2,1,1.0,1000000050",
            "1,1,2.0,1000000900",  # the latest
            "1,1,3.0,1000000100",
            "1,2,1.0,1000000007",
            "1,2,1.5,1000000007",  # as late, and further down
            "1,1,4.0,1000000899",
        ],
    )
    read = Read(data, scratch)
    assert rows(read, "ratings") == [
        (1, 1, 2.0, 1000000900),
        (1, 2, 1.5, 1000000007),
        (2, 1, 1.0, 1000000050),
    ]
    assert read.rejected == []
    assert read.filtered == {"repeated_rating": 3}


def test_elsewhere_the_first_of_equal_keys_stays(data: Path, scratch: Path) -> None:
    write_world(
        data,
        movies=[*MOVIES, "1,Alpha again,Drama"],
        links=[LINKS[0], "3,1,1", "1,2,2", "3,3,3"],
        tags=[TAGS[0], "2,2,slow,1000000006", "1,1,x,1000000005", "2,2,slow,1000000006"],
    )
    read = Read(data, scratch)
    assert read.tables["movies"]["title"].to_list()[0] == "Alpha (1999)"
    assert read.tables["links"].rows() == [(1, "2", 2), (3, "1", 1)]
    assert read.tables["tags"].rows() == [(1, 1, "x", 1000000005), (2, 2, "slow", 1000000006)]
    assert read.rejected == [
        ("links.csv", 4, "duplicate_key", "3,3,3"),
        ("movies.csv", 5, "duplicate_key", "1,Alpha again,Drama"),
        ("tags.csv", 4, "duplicate_key", "2,2,slow,1000000006"),
    ]


def test_links_and_tags_of_absent_films_and_without_content_are_rejected(
    data: Path, scratch: Path
) -> None:
    write_world(
        data,
        movies=[*MOVIES, "4,  ,Drama"],
        links=[LINKS[0], "1,nm1,1", "2,2,0", "4,4,4", "3,3,3"],
        tags=[
            TAGS[0],
            "1,1,  ,1000000005",
            "1,4,of a rejected film,1000000005",
            "1,1,fine,1000000005",
        ],
    )
    read = Read(data, scratch)
    assert read.tables["links"].rows() == [(3, "3", 3)]
    assert [row[:3] for row in read.rejected] == [
        ("links.csv", 2, "bad_id"),
        ("links.csv", 3, "bad_id"),
        ("links.csv", 4, "unknown_film"),
        ("movies.csv", 5, "missing_title"),
        ("tags.csv", 2, "missing_tag"),
        ("tags.csv", 3, "unknown_film"),
    ]


def test_texts_of_rejected_rows_are_cut_to_500_characters(data: Path, scratch: Path) -> None:
    write_world(
        data, tags=[TAGS[0], f"1,9,{'long ' * 500},1000000005", f"x,1,{'long ' * 500},1000000005"]
    )
    read = Read(data, scratch)
    assert [row[3][500:] for row in read.rejected] == ["… (2515 characters)"] * 2


def test_a_world_without_tags_is_fine(data: Path, scratch: Path) -> None:
    write_world(data, tags=TAGS[:1])
    assert Read(data, scratch).tables["tags"].height == 0


# -- files that are not what they should be --------------------------------------------------


def test_a_missing_file_is_named_with_what_was_expected(data: Path, scratch: Path) -> None:
    write_world(data)
    (data / "movielens/ml-25m/movies.csv").unlink()
    with pytest.raises(SourceError, match=r"movies.csv missing.*expected movies.csv, ratings.csv"):
        Read(data, scratch)


def test_a_file_missing_from_an_archive_is_named(data: Path) -> None:
    write_world(data)
    (data / "movielens/ml-25m/ratings.csv").unlink()
    pack(data)
    with pytest.raises(SourceError, match=r"ratings\.csv missing: .*ml-25m\.zip"):
        find_layout(data).originals()


def test_a_folder_where_a_file_is_expected_is_an_error_not_a_crash(
    data: Path, scratch: Path
) -> None:
    write_world(data)
    (data / "movielens/ml-25m/tags.csv").unlink()
    (data / "movielens/ml-25m/tags.csv").mkdir()
    with pytest.raises(SourceError, match=r"a folder where a regular file.*tags\.csv"):
        Read(data, scratch)


def test_an_empty_file_is_an_error(data: Path, scratch: Path) -> None:
    write_world(data)
    (data / "movielens/ml-25m/ratings.csv").write_bytes(b"")
    with pytest.raises(SourceError, match=r"the file is empty: movielens/ml-25m/ratings\.csv"):
        Read(data, scratch)


@pytest.mark.faults
@pytest.mark.parametrize("damage", ["truncated", "flipped", "no archive"])
def test_a_corrupt_archive_is_named_and_says_to_download_it_again(
    data: Path, scratch: Path, damage: str
) -> None:
    write_world(data, ratings=[RATINGS[0], *(f"1,{1 + n % 3},3.5,{n}" for n in range(5000))])
    path = pack(data)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    else:
        content = bytearray(b"<html>moved</html>")
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"corrupt.*ml-25m\.zip.*download it again"):
        Read(data, scratch)


@pytest.mark.faults
def test_names_inside_an_archive_never_become_paths(data: Path, scratch: Path) -> None:
    write_world(data)
    path = pack(data)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../../escaped/movies.csv", "movieId,title,genres\n9,Evil,Drama\n")
        archive.writestr("/absolute/deep/ratings.csv", "nothing")
    before = sorted(data.parent.rglob("*"))
    read = Read(data, scratch)
    assert read.tables["movies"].height == 3
    written = [p for p in sorted(data.parent.rglob("*")) if p not in before]
    assert all(p.is_relative_to(scratch) for p in written)


@pytest.mark.faults
def test_an_archive_that_unpacks_to_an_absurd_size_is_refused(data: Path, scratch: Path) -> None:
    write_world(data)
    path = pack(data)
    with zipfile.ZipFile(path) as archive:
        members = {i.filename: archive.read(i) for i in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            padded = content + b"0" * (80 << 20) if name.endswith("tags.csv") else content
            archive.writestr(name, padded)
    with pytest.raises(SourceError, match=r"compressed bytes unpack to 83,.*tags\.csv"):
        Read(data, scratch)


def test_a_member_packed_twice_is_refused(data: Path) -> None:
    write_world(data)
    with zipfile.ZipFile(pack(data), "a") as archive:
        archive.writestr("movies.csv", "movieId,title,genres\n")
    with pytest.raises(SourceError, match=r"holds movies\.csv twice"):
        find_layout(data).originals()


# -- which variant ---------------------------------------------------------------------------


def test_auto_takes_the_only_variant_or_ml_latest_small(data: Path) -> None:
    write_world(data, "ml-32m")
    assert find_layout(data).variant == "ml-32m"
    write_world(data, "ml-latest-small")
    assert find_layout(data).variant == "ml-latest-small"
    assert find_layout(data, "ml-32m").variant == "ml-32m"


def test_the_data_folder_may_be_the_unpacked_archive_or_hold_it(data: Path) -> None:
    write_world(data, "ml-latest-small")
    unpacked = data / "movielens" / "ml-latest-small"
    for folder in (unpacked, unpacked.parent):
        layout = find_layout(folder)
        assert (layout.variant, layout.path) == ("ml-latest-small", unpacked)
        assert layout.paths() == find_layout(data).paths()


def test_auto_asks_when_it_can_not_tell(data: Path) -> None:
    write_world(data, "ml-32m")
    write_world(data, "ml-25m")
    with pytest.raises(SourceError, match=r"found: ml-25m, ml-32m.*set world.variant"):
        find_layout(data)


def test_files_may_lie_directly_in_the_folder(data: Path, scratch: Path) -> None:
    write_world(data)
    for file in (data / "movielens/ml-25m").iterdir():
        file.rename(data / "movielens" / file.name)
    (data / "movielens/ml-25m").rmdir()
    assert find_layout(data).name == "movielens"
    assert find_layout(data, "ml-25m").variant == "ml-25m"
    assert Read(data, scratch).tables["ratings"].height == 3


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("ml-20m", "ml-20m"),
        ("ml-latest", "ml-latest"),
        ("ML_25M", "ml-25m"),
        ("movielens-20m-dataset", "ml-20m"),
        ("my export", "my export"),
    ],
)
def test_variants_in_a_known_layout_are_read(
    data: Path, scratch: Path, name: str, variant: str
) -> None:
    write_world(data, name)
    assert find_layout(data).variant == variant
    assert Read(data, scratch).tables["ratings"].height == 3


def test_kaggles_names_and_dates_are_read(data: Path, scratch: Path) -> None:
    ratings = [
        "userId,movieId,rating,timestamp",
        '1,2,3.5,"2005-04-02 23:53:47"',
        "0,0,4,2005-04-02",
    ]
    movies = [*MOVIES, "0,Zero (2000),Drama"]
    write_world(
        data, "archive", movies=movies, ratings=ratings, links=[LINKS[0], "1,tt0114709,63.0"]
    )
    folder = data / "movielens/archive"
    for name in ("movies", "ratings", "links", "tags"):
        (folder / f"{name}.csv").rename(folder / f"{name.removesuffix('s').title()}.CSV")
    read = Read(data, scratch)
    assert rows(read, "ratings") == [(0, 0, 4.0, 1112400000), (1, 2, 3.5, 1112486027)]
    assert read.tables["links"].rows() == [(1, "0114709", 63)]
    assert read.rejected == []


def test_a_folder_of_something_else_is_described(data: Path) -> None:
    folder = data / "movielens/the-movies-dataset"
    folder.mkdir(parents=True)
    for name in ("movies_metadata.csv", "credits.csv"):
        (folder / name).write_text("id\n1\n")
    with pytest.raises(SourceError, match=r"found credits\.csv, movies_metadata\.csv, which looks"):
        find_layout(data)


def test_two_spellings_of_a_file_are_refused(data: Path, scratch: Path) -> None:
    write_world(data)
    (data / "movielens/ml-25m/Tags.csv").write_text("")
    with pytest.raises(SourceError, match=r"two files of tags\.csv"):
        Read(data, scratch)


def test_what_was_looked_for_is_named_when_nothing_is_there(data: Path) -> None:
    with pytest.raises(SourceError, match=r"no folder with MovieLens files.*ml-latest-small\.zip"):
        find_layout(data)
    (data / "movielens").mkdir(parents=True)
    with pytest.raises(SourceError, match=r"no MovieLens files.*ml-25m\.zip"):
        find_layout(data)
    write_world(data, "ml-25m")
    with pytest.raises(SourceError, match=r"no ml-32m here \(found: ml-25m\)"):
        find_layout(data, "ml-32m")


# -- order, out of core ------------------------------------------------------------------------


def test_rows_are_ordered_and_keys_unique_across_parts(tmp_path: Path) -> None:
    rows = OrderedRows(
        tmp_path / "o", ("k",), (("t", False), ("line", False)), memory_limit_mb=256, threads=1
    )
    # Key 5 lies in three parts; its latest is in the middle one.
    for n, (keys, times) in enumerate([([9, 5], [1, 1]), ([5, 1], [3, 1]), ([5], [2])]):
        line = [10 * n + i for i in range(len(keys))]
        rows.append(pl.DataFrame({"k": keys, "t": times, "line": line}))
    out = pl.concat(list(rows.batches()))
    assert out.rows() == [(1, 1, 11), (5, 3, 10), (9, 1, 0)]
    assert sorted(pl.concat(rows.doubled)["line"]) == [1, 20]


@pytest.mark.pipeline
def test_the_last_of_equal_keys_is_found_across_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.sources._tables._BATCH", 2)
    rows = OrderedRows(tmp_path / "o", ("k",), (("line", False),), memory_limit_mb=256, threads=1)
    keys = [3] * 4100 + [1] * 4100 + [2]
    rows.append(pl.DataFrame({"k": keys, "line": range(len(keys))}))
    assert pl.concat(list(rows.batches())).rows() == [(1, 8199), (2, 8200), (3, 4099)]
    assert sum(s.height for s in rows.doubled) == len(keys) - 3


@pytest.mark.faults
def test_a_scratch_folder_that_vanishes_is_a_store_error(tmp_path: Path) -> None:
    rows = OrderedRows(tmp_path / "o", ("k",), (), memory_limit_mb=256)
    shutil.rmtree(tmp_path / "o")
    with pytest.raises(StoreError, match="scratch folder"):
        rows.append(pl.DataFrame({"k": [1], "line": [1]}))


# -- the real archive --------------------------------------------------------------------------


@pytest.mark.shared_data
def test_the_real_archive_comes_out_whole(shared_data: Path, scratch: Path) -> None:
    read = Read(shared_data, scratch)
    ratings = read.tables["ratings"]
    assert ratings.height == 100_836
    assert ratings["user_id"].n_unique() == 610
    assert ratings["rating"].unique().sort().to_list() == [n / 2 for n in range(1, 11)]
    assert read.tables["movies"].height == 9_742
    assert read.tables["tags"].height == 3_683
    assert read.tables["links"]["tmdb_id"].null_count() == 8
    assert read.rejected == []
    # Two rows by hand: the archive's first rating, and a title with quotes and a comma.
    assert ratings.row(0) == (1, 1, 4.0, "0.5-5", 964982703)
    titles = dict(read.tables["movies"].select("movie_id", "title").iter_rows())
    assert titles[11] == "American President, The (1995)"
