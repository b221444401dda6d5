"""The sample world's files: format, exact counts, broken rows, determinism."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import SampleSettings
from pipelines.errors import ConfigError
from pipelines.sample_world import KEY_FILE, SampleWorld, write_sample_world
from pipelines.sample_world._world import ROWS_PER_FAULT

SMALL = SampleSettings(films=60, users=25, ratings=900, seed=5)
CSV_FILES = ("movies", "ratings", "links", "tags")
#: The name in the default world whose bytes are encoded twice in a record.
NAME = "Noémie Roseton"
#: TMDB's published genre numbers.
TMDB_NUMBERS = {
    "Action": 28, "Adventure": 12, "Animation": 16, "Comedy": 35, "Crime": 80,
    "Documentary": 99, "Drama": 18, "Family": 10751, "Fantasy": 14, "Horror": 27,
    "Music": 10402, "Mystery": 9648, "Romance": 10749, "Science Fiction": 878,
    "Thriller": 53, "War": 10752, "Western": 37,
}  # fmt: skip


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SampleWorld]:
    folder = tmp_path_factory.mktemp("sample") / "world"
    return folder, write_sample_world(folder, SampleSettings())


@pytest.fixture(scope="module")
def folder(default: tuple[Path, SampleWorld]) -> Path:
    return default[0]


@pytest.fixture(scope="module")
def world(default: tuple[Path, SampleWorld]) -> SampleWorld:
    return default[1]


def lines_of(folder: Path, name: str) -> list[str]:
    data = (folder / name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    return data.decode("utf-8", "replace").split("\n")[:-1]


def rows_of(folder: Path, table: str, world: SampleWorld) -> list[list[str]]:
    """The rows of a MovieLens file without those the key says are to be rejected."""
    name = f"movielens/sample/{table}.csv"
    out = {row.line for row in world.rejected if row.file == name}
    kept = [x.removesuffix("\r") for n, x in enumerate(lines_of(folder, name), 1) if n not in out]
    return list(csv.reader(kept))[1:]


def records_of(folder: Path, world: SampleWorld) -> Iterator[dict[str, Any]]:
    out = {row.line for row in world.rejected if row.file.startswith("tmdb/")}
    for n, line in enumerate(lines_of(folder, "tmdb/movies.jsonl.gz"), 1):
        if n not in out:
            yield json.loads(line)


def digests(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


# --- exact counts ---------------------------------------------------------------------------


def test_counts_are_exactly_what_the_settings_say(folder: Path, world: SampleWorld) -> None:
    ratings = rows_of(folder, "ratings", world)
    assert len(rows_of(folder, "movies", world)) == 300
    assert len(ratings) == 20_000
    assert {int(r[0]) for r in ratings} == set(range(1, 201))
    assert len({(r[0], r[1]) for r in ratings}) == 20_000
    assert len(rows_of(folder, "tags", world)) == 637


def test_every_user_has_twenty_ratings_or_more(folder: Path, world: SampleWorld) -> None:
    per_user = Counter(r[0] for r in rows_of(folder, "ratings", world))
    assert min(per_user.values()) >= 20


def test_the_default_world_has_every_kind_of_gap(folder: Path, world: SampleWorld) -> None:
    links = rows_of(folder, "links", world)
    assert sum(bool(r[2]) for r in links) == 294
    by_tmdb = {(int(r[2]), f"tt{r[1]}") for r in links if r[2]}
    records = list(records_of(folder, world))
    assert all((r["id"], r["imdb_id"]) in by_tmdb for r in records)
    held = Counter(
        {
            "records": len(records),
            "cast": sum(bool(r["credits"]["cast"]) for r in records),
            "director": sum(
                any(p["job"] == "Director" for p in r["credits"]["crew"]) for r in records
            ),
            "keywords": sum(bool(r["keywords"]["keywords"]) for r in records),
        }
    )
    for key in ("overview", "release_date", "runtime", "budget", "belongs_to_collection"):
        held[key] = sum(bool(r[key]) for r in records)
    assert held == {
        "records": 284, "overview": 264, "cast": 274, "director": 271, "release_date": 277,
        "runtime": 275, "keywords": 267, "budget": 183, "belongs_to_collection": 34,
    }  # fmt: skip
    movies = rows_of(folder, "movies", world)
    assert sum(r[2] == "(no genres listed)" for r in movies) == 2
    assert sum(not re.search(r" \(\d{4}\)$", r[1]) for r in movies) == 1
    # Remakes share their title with an older film.
    assert len(movies) - len({re.sub(r" \(\d{4}\)$", "", r[1]) for r in movies}) == 2


def test_sizes_are_those_of_the_files(folder: Path, world: SampleWorld) -> None:
    assert {n: (folder / n).stat().st_size for n in world.files} == world.files
    assert set(world.files) | {KEY_FILE} == set(digests(folder))


def test_the_written_key_reads_back_the_same(folder: Path, world: SampleWorld) -> None:
    assert SampleWorld.read(folder) == world


# --- format ---------------------------------------------------------------------------------

FIELD = r'("[^"]*(?:""[^"]*)*"|[^",]+)'
PATTERNS = {
    "movies": rf"\d+,{FIELD},(\(no genres listed\)|[A-Z][\w-]+(\|[A-Z][\w-]+)*)",
    "ratings": r"\d+,\d+,([0-4]\.5|[1-5]\.0),\d{9,10}",
    "links": r"\d+,\d{7},\d*",
    "tags": rf"\d+,\d+,{FIELD},\d{{9,10}}",
}
HEADERS = {
    "movies": "movieId,title,genres",
    "ratings": "userId,movieId,rating,timestamp",
    "links": "movieId,imdbId,tmdbId",
    "tags": "userId,movieId,tag,timestamp",
}


@pytest.mark.parametrize("table", CSV_FILES)
def test_every_line_has_the_movielens_form(folder: Path, world: SampleWorld, table: str) -> None:
    name = f"movielens/sample/{table}.csv"
    lines = lines_of(folder, name)
    assert lines[0] == HEADERS[table] + "\r"
    assert all(line.endswith("\r") for line in lines)
    broken = {row.line for row in world.rejected if row.file == name}
    pattern = re.compile(PATTERNS[table] + "\r")
    bad = [x for n, x in enumerate(lines[1:], 2) if n not in broken and not pattern.fullmatch(x)]
    assert not bad


def test_rows_are_in_movielens_order(folder: Path, world: SampleWorld) -> None:
    ratings = [(int(r[0]), int(r[1])) for r in rows_of(folder, "ratings", world)]
    assert ratings == sorted(ratings)
    for table in ("movies", "links"):
        ids = [int(r[0]) for r in rows_of(folder, table, world)]
        assert ids == sorted(set(ids))
    tags = [(int(r[0]), int(r[1])) for r in rows_of(folder, "tags", world)]
    assert tags == sorted(tags)


def test_references_hold_between_the_files(folder: Path, world: SampleWorld) -> None:
    films = {r[0] for r in rows_of(folder, "movies", world)}
    assert {r[0] for r in rows_of(folder, "links", world)} == films
    assert {r[1] for r in rows_of(folder, "ratings", world)} <= films
    rated = {(r[0], r[1]) for r in rows_of(folder, "ratings", world)}
    assert {(r[0], r[1]) for r in rows_of(folder, "tags", world)} <= rated


def test_articles_stand_last_and_original_titles_in_brackets(
    folder: Path, world: SampleWorld
) -> None:
    titles = [r[1] for r in rows_of(folder, "movies", world)]
    assert any(re.search(r"^[^(]+, The \(\d{4}\)$", t) for t in titles)
    assert any(re.search(r"^[^(]+, The \([^()]+\) \(\d{4}\)$", t) for t in titles)
    assert not any(re.match(r"(The|A|An) ", t) for t in titles)


def minimal(data: bytes) -> bytes:
    """Parsed and written again with quotes only where a field needs them."""
    out = io.StringIO(newline="")
    parsed = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
    csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL).writerows(parsed)
    return out.getvalue().encode("utf-8")


@pytest.mark.shared_data
@pytest.mark.parametrize("table", CSV_FILES)
def test_dialect_is_the_real_files_dialect(folder: Path, shared_data: Path, table: str) -> None:
    ours = (folder / f"movielens/sample/{table}.csv").read_bytes()
    with zipfile.ZipFile(shared_data / "movielens" / "ml-latest-small.zip") as archive:
        real = archive.read(f"ml-latest-small/{table}.csv")
    assert ours.split(b"\r\n")[0] == real.split(b"\r\n")[0]
    assert minimal(real) == real
    assert minimal(ours) == ours


def test_quotes_are_really_needed_somewhere(folder: Path) -> None:
    ours = (folder / "movielens/sample/movies.csv").read_bytes()
    assert ours.count(b'"') > 20
    assert minimal(ours) == ours


def test_records_have_the_shape_of_the_api(folder: Path, world: SampleWorld) -> None:
    for record in records_of(folder, world):
        assert isinstance(record["id"], int)
        assert re.fullmatch(r"tt\d{7}", record["imdb_id"])
        assert record["title"]
        assert record["original_title"]
        assert re.fullmatch(r"[a-z]{2}", record["original_language"])
        assert re.fullmatch(r"(\d{4}-\d\d-\d\d)?", record["release_date"])
        assert record["runtime"] is None or record["runtime"] >= 0
        assert 0 <= record["vote_average"] <= 10
        assert record["budget"] >= 0
        assert record["revenue"] >= 0
        for genre in record["genres"]:
            assert TMDB_NUMBERS[genre["name"]] == genre["id"]
        for order, person in enumerate(record["credits"]["cast"]):
            assert set(person) == {"id", "name", "character", "order"}
            assert person["order"] == order
        for person in record["credits"]["crew"]:
            assert set(person) == {"id", "name", "job", "department"}
        for keyword in record["keywords"]["keywords"]:
            assert set(keyword) == {"id", "name"}


@pytest.mark.shared_data
def test_records_have_every_field_of_the_real_dump(
    folder: Path, world: SampleWorld, shared_data: Path
) -> None:
    with gzip.open(shared_data / "tmdb" / "movies.jsonl.gz", "rt", encoding="utf-8") as lines:
        real = json.loads(next(lines))
    ours = next(r for r in records_of(folder, world) if r["credits"]["cast"] and r["runtime"])
    assert set(real) <= set(ours)
    assert all(type(ours[k]) is type(v) for k, v in real.items() if v and ours[k] is not None)


def test_one_id_is_one_person(folder: Path, world: SampleWorld) -> None:
    names: dict[int, set[str]] = {}
    for record in records_of(folder, world):
        for person in record["credits"]["cast"] + record["credits"]["crew"]:
            names.setdefault(person["id"], set()).add(person["name"])
    several = {number: n for number, n in names.items() if len(n) > 1}
    assert all(NAME in n for n in several.values())


# --- broken rows ----------------------------------------------------------------------------


def test_listed_rows_stand_where_the_key_says(folder: Path, world: SampleWorld) -> None:
    assert sum(row.file.startswith(("movielens/", "tmdb/")) for row in world.broken) == 12
    for row in world.broken:
        line = lines_of(folder, row.file)[row.line - 1].removesuffix("\r")
        assert line[:500] == row.text


def faults_found(folder: Path, world: SampleWorld) -> dict[int, str]:
    """An independent check of ratings.csv: line → fault, with no look at the key."""
    films = {r[0] for r in rows_of(folder, "movies", world)}
    found: dict[int, str] = {}
    seen: set[tuple[str, str]] = set()
    for n, line in enumerate(lines_of(folder, "movielens/sample/ratings.csv")[1:], 2):
        fields = line.strip().split(",")
        if len(fields) != 4:
            found[n] = "wrong_columns"
        elif not fields[3].isdigit():
            found[n] = "bad_timestamp"
        elif not (0.5 <= float(fields[2]) <= 5 and (2 * float(fields[2])).is_integer()):
            found[n] = "off_scale"
        elif fields[1] not in films:
            found[n] = "unknown_film"
        elif (fields[0], fields[1]) in seen:
            found[n] = "duplicate_key"
        else:
            seen.add((fields[0], fields[1]))
    return found


def test_the_key_lists_every_fault_in_the_ratings_and_no_other(
    folder: Path, world: SampleWorld
) -> None:
    listed = {r.line: r.reason for r in world.rejected if r.file.endswith("ratings.csv")}
    assert faults_found(folder, world) == listed
    assert sorted(listed.values()) == [
        "bad_timestamp", "duplicate_key", "off_scale", "unknown_film", "wrong_columns",
    ]  # fmt: skip


def test_a_doubled_rating_follows_the_newer_one_it_repeats(
    folder: Path, world: SampleWorld
) -> None:
    row = next(r for r in world.broken if r.reason == "duplicate_key")
    lines = lines_of(folder, row.file)
    before, doubled = lines[row.line - 2].split(","), lines[row.line - 1].split(",")
    assert before[:2] == doubled[:2]
    assert before[2] != doubled[2]
    assert int(before[3]) > int(doubled[3])


def test_links_have_a_link_to_no_film_and_two_to_one_record(
    folder: Path, world: SampleWorld
) -> None:
    films = {r[0] for r in rows_of(folder, "movies", world)}
    unknown = next(r for r in world.broken if r.reason == "unknown_film" and "links" in r.file)
    assert unknown.rejected
    assert unknown.text.split(",")[0] not in films
    shared = next(r for r in world.broken if r.reason == "shared_tmdb_id")
    assert not shared.rejected
    movie, imdb, tmdb = shared.text.split(",")
    same = [r for r in rows_of(folder, "links", world) if r[2] == tmdb]
    assert len(same) == 2
    record = next(r for r in records_of(folder, world) if r["id"] == int(tmdb))
    assert record["imdb_id"] != f"tt{imdb}"
    assert record["imdb_id"] in {f"tt{r[1]}" for r in same if r[0] != movie}


def test_broken_records_are_as_described(folder: Path, world: SampleWorld) -> None:
    by_reason = {r.reason: r for r in world.broken if r.file.startswith("tmdb/")}
    lines = lines_of(folder, "tmdb/movies.jsonl.gz")
    with pytest.raises(json.JSONDecodeError):
        json.loads(lines[by_reason["not_json"].line - 1])

    other = json.loads(lines[by_reason["record_of_another_film"].line - 1])
    link = next(r for r in rows_of(folder, "links", world) if r[2] == str(other["id"]))
    assert other["imdb_id"] != f"tt{link[1]}"

    entities = by_reason["html_entities"]
    text = json.loads(lines[entities.line - 1])["overview"]
    assert "&amp;" in text
    assert "&quot;" in text

    twice = by_reason["double_encoded"]
    record = json.loads(lines[twice.line - 1])
    names = [p["name"] for p in record["credits"]["cast"] + record["credits"]["crew"]]
    assert NAME not in names
    assert NAME in [n.encode("cp1252").decode("utf-8") for n in names if "Ã" in n]


@pytest.mark.parametrize("films", [20, 129, 130, 280, 700])
def test_no_file_has_more_rejected_rows_than_a_strict_loader_takes(
    tmp_path: Path, films: int
) -> None:
    world = write_sample_world(
        tmp_path / "w", SampleSettings(films=films, users=12, ratings=max(200, films))
    )
    for name in world.files:
        rejected = sum(row.file == name for row in world.rejected)
        assert rejected * ROWS_PER_FAULT <= len(lines_of(tmp_path / "w", name))
    assert sum(row.file.endswith("links.csv") for row in world.rejected) == (films >= 130)


def test_without_broken_rows_nothing_is_broken(tmp_path: Path) -> None:
    world = write_sample_world(tmp_path / "w", SampleSettings(), broken_rows=False)
    assert world.broken == ()
    assert faults_found(tmp_path / "w", world) == {}
    assert len(rows_of(tmp_path / "w", "ratings", world)) == 20_000
    assert all(r[1].endswith(")") for r in rows_of(tmp_path / "w", "movies", world))
    for line in lines_of(tmp_path / "w", "tmdb/movies.jsonl.gz"):
        assert "&amp;" not in json.loads(line)["overview"]


def test_breaking_rows_leaves_the_valid_ratings_alone(
    tmp_path: Path, folder: Path, world: SampleWorld
) -> None:
    clean = write_sample_world(tmp_path / "w", SampleSettings(), broken_rows=False)
    assert rows_of(tmp_path / "w", "ratings", clean) == rows_of(folder, "ratings", world)


# --- determinism and size -------------------------------------------------------------------


def test_same_settings_same_bytes(tmp_path: Path) -> None:
    write_sample_world(tmp_path / "a", SMALL)
    write_sample_world(tmp_path / "b", SMALL)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_another_seed_gives_another_world_of_the_same_size(tmp_path: Path) -> None:
    write_sample_world(tmp_path / "a", SMALL)
    world = write_sample_world(tmp_path / "b", SMALL.model_copy(update={"seed": 6}))
    assert len(rows_of(tmp_path / "b", "ratings", world)) == SMALL.ratings
    one, two = digests(tmp_path / "a"), digests(tmp_path / "b")
    for name in one:
        assert name.endswith(("README.txt", "categories.txt")) or one[name] != two[name]


@pytest.mark.parametrize(
    ("films", "users", "ratings"),
    [(20, 10, 200), (50, 300, 300), (25, 2_000, 30_000), (800, 1_500, 40_000)],
)
def test_any_size_is_met_exactly(tmp_path: Path, films: int, users: int, ratings: int) -> None:
    settings = SampleSettings(films=films, users=users, ratings=ratings)
    world = write_sample_world(tmp_path / "w", settings)
    rows = rows_of(tmp_path / "w", "ratings", world)
    assert len(rows) == len({(r[0], r[1]) for r in rows}) == ratings
    assert len({r[0] for r in rows}) == users
    assert len(rows_of(tmp_path / "w", "movies", world)) == films
    assert faults_found(tmp_path / "w", world) == {
        r.line: r.reason for r in world.rejected if r.file.endswith("ratings.csv")
    }


@pytest.mark.parametrize("ratings", [201, 5_000])
def test_more_ratings_than_pairs_is_a_configuration_error(tmp_path: Path, ratings: int) -> None:
    settings = SampleSettings(films=20, users=10, ratings=ratings)
    with pytest.raises(ConfigError, match="between 10 and 200"):
        write_sample_world(tmp_path / "w", settings)
    assert not any(tmp_path.iterdir())
