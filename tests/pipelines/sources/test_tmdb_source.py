"""TMDB as a source: dumps good and bad, the API, and a world without either."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from support.tmdb_server import TmdbServer, make_record, status

from pipelines.config import Settings
from pipelines.contracts import RAW
from pipelines.errors import SourceError
from pipelines.progress import listening
from pipelines.sources import RejectLog, Workspace
from pipelines.sources.tmdb import TmdbSource

_counter = itertools.count()


class Reading:
    """Tables and rejections of a folder, checked against the contracts."""

    def __init__(self, folder: Path, settings: Settings, wanted: pl.DataFrame | None) -> None:
        scratch = settings.runtime.home / f"scratch-{next(_counter)}"
        scratch.mkdir(parents=True)
        rejects = RejectLog(scratch / "rejects")
        self.progress: list[tuple[str, int, int | None]] = []
        with listening(lambda *call: self.progress.append(call)):
            self._read(folder, Workspace(scratch, settings, rejects, wanted))

    def _read(self, folder: Path, work: Workspace) -> None:
        rejects = work.rejects
        self.tables: dict[str, pl.DataFrame] = {}
        for table in TmdbSource(work.settings).read(folder, work):
            contract = RAW[table.dataset]
            empty = contract.polars_schema().to_frame()
            frame = contract.validate(pl.concat([empty, *table.batches]))
            assert frame["tmdb_id"].is_sorted()
            self.tables[table.dataset] = frame
            if table.file is not None:
                self.file = table.file
                self.rows_read = table.rows.total()
                self.filtered = table.filtered
                self.stats = table.stats
                # As ingest checks: every row is accounted for.
                assert self.rows_read == (
                    frame.height + rejects.count(table.file) + sum(self.filtered.values())
                )
            else:
                self.missing_stats = table.stats
        self.movies = self.tables["raw.tmdb_movies"]
        self.missing = dict(self.tables["raw.tmdb_missing"].rows())
        self.rejected = [row for frame in rejects.batches() for row in frame.rows()]
        if self.rejected:
            listed = pl.DataFrame(
                self.rejected, schema=RAW["raw.tmdb_rejected"].polars_schema(), orient="row"
            )
            RAW["raw.tmdb_rejected"].validate(listed)

    @property
    def faults(self) -> list[tuple[int, str]]:
        return [(line, reason) for _, line, reason, *_ in self.rejected]


def wanted_films(*ids: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "movie_id": list(ids),
            "tmdb_id": list(ids),
            "imdb_id": [f"{i:07d}" for i in ids],
            "title": [f"Film {i} ({1950 + i % 70})" for i in ids],
        },
        schema={
            "movie_id": pl.Int64,
            "tmdb_id": pl.Int64,
            "imdb_id": pl.String,
            "title": pl.String,
        },
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runtime={"home": tmp_path / "home", "memory_limit_mb": 256})


def dump(folder: Path, *lines: Any, name: str = "movies.jsonl", end: bytes = b"\n") -> Path:
    content = end.join(x if isinstance(x, bytes) else orjson.dumps(x) for x in lines) + end
    (folder / "tmdb").mkdir(parents=True, exist_ok=True)
    path = folder / "tmdb" / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


# --- a good dump -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["movies.jsonl", "movies.jsonl.gz"])
def test_records_come_out_by_id_and_the_rest_is_missing(
    tmp_path: Path, settings: Settings, name: str
) -> None:
    dump(tmp_path, make_record(30), make_record(10), make_record(20), name=name)
    got = Reading(tmp_path, settings, wanted_films(10, 20, 25, 30))
    assert got.movies["tmdb_id"].to_list() == [10, 20, 30]
    assert got.movies["title"].to_list() == ["Film 10", "Film 20", "Film 30"]
    assert got.missing == {25: "not_in_dump"}
    assert got.missing_stats == {"not_in_dump": 1}
    assert got.rejected == []
    assert got.file == f"tmdb/{name}"


def test_records_that_no_film_wants_are_counted_not_listed(
    tmp_path: Path, settings: Settings
) -> None:
    dump(tmp_path, make_record(1), {"id": 2, "title": 7}, make_record(3))
    got = Reading(tmp_path, settings, wanted_films(3))
    assert got.movies["tmdb_id"].to_list() == [3]
    assert got.filtered == {"not_wanted": 2}
    assert got.rejected == []


def test_without_wanted_films_every_record_is_taken(tmp_path: Path, settings: Settings) -> None:
    dump(tmp_path, make_record(2), make_record(1))
    got = Reading(tmp_path, settings, None)
    assert got.movies["tmdb_id"].to_list() == [1, 2]
    assert got.missing == {}


def test_counts_of_what_films_have_are_noted(tmp_path: Path, settings: Settings) -> None:
    dump(tmp_path, make_record(1), make_record(2, overview="", credits=None), {"id": 3})
    got = Reading(tmp_path, settings, wanted_films(1, 2, 3, 4))
    assert got.stats == {
        "mode": "dump",
        "wanted": 4,
        "with_overview": 1,
        "with_actors": 1,
        "with_directors": 1,
        "with_keywords": 2,
        "with_release_date": 2,
        "with_poster": 2,
    }


def test_a_dump_of_several_blocks_comes_out_by_id(tmp_path: Path, settings: Settings) -> None:
    ids = [(i * 7919) % 1009 + 1 for i in range(500)]
    records = [make_record(i, overview="x" * 5000) for i in ids]
    dump(tmp_path, *records, make_record(ids[0], title="Again"))
    got = Reading(tmp_path, settings, wanted_films(*ids))
    assert got.movies["tmdb_id"].to_list() == sorted(ids)
    assert got.faults == [(501, "duplicate_id")]


def test_a_crlf_file_with_mark_and_blank_lines_at_its_end(
    tmp_path: Path, settings: Settings
) -> None:
    path = dump(tmp_path, make_record(1), make_record(2), b"", b"   ", end=b"\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    got = Reading(tmp_path, settings, wanted_films(1, 2))
    assert got.movies.height == 2
    assert got.rows_read == 2
    assert got.rejected == []


# --- bad rows --------------------------------------------------------------------------------


def test_every_bad_row_is_listed_with_line_reason_and_text(
    tmp_path: Path, settings: Settings
) -> None:
    dump(
        tmp_path,
        make_record(1),
        b'{"id": 2, "title": "cut of',
        b"[1, 2]",
        {"title": "no id"},
        make_record(3, runtime="long"),
        make_record(1, title="Again"),
        b'{"id": 4, "title": "\xff\xfe"}',
        b"",
        make_record(5, imdb_id="tt9999999", title="Quite Another", original_title=None),
    )
    got = Reading(tmp_path, settings, wanted_films(1, 2, 3, 4, 5))
    assert got.movies["title"].to_list() == ["Film 1"]
    assert got.faults == [
        (2, "not_json"),
        (3, "not_object"),
        (4, "bad_id"),
        (5, "bad_runtime"),
        (6, "duplicate_id"),
        (7, "invalid_utf8"),
        (8, "blank_line"),
        (9, "record_of_another_film"),
    ]
    assert got.rejected[0][:4] == ("tmdb/movies.jsonl", 2, "not_json", '{"id": 2, "title": "cut of')
    assert got.missing == {
        2: "not_in_dump",
        3: "unusable_record",
        4: "not_in_dump",
        5: "record_of_another_film",
    }


def test_a_dump_of_nothing_usable_says_why(tmp_path: Path, settings: Settings) -> None:
    dump(tmp_path, make_record(1, runtime="long"), make_record(7))
    with pytest.raises(SourceError, match=r"bad_runtime 1, not_wanted 1.*runtime is 'long'"):
        Reading(tmp_path, settings, wanted_films(1))


def test_a_usable_record_after_an_unusable_one_is_taken(tmp_path: Path, settings: Settings) -> None:
    dump(
        tmp_path,
        make_record(1, budget="much"),
        make_record(2, imdb_id="tt9999999", title="Quite Another", original_title=None),
        make_record(1, title="First usable"),
        make_record(2),
    )
    got = Reading(tmp_path, settings, wanted_films(1, 2))
    assert got.movies["title"].to_list() == ["First usable", "Film 2"]
    assert got.missing == {}
    assert got.faults == [(1, "bad_budget"), (2, "record_of_another_film")]


def test_a_renumbered_imdb_id_is_counted_and_the_film_kept(
    tmp_path: Path, settings: Settings
) -> None:
    dump(tmp_path, make_record(1, imdb_id="tt7654321"))
    got = Reading(tmp_path, settings, wanted_films(1))
    assert got.movies["imdb_id"].to_list() == ["tt7654321"]
    assert got.stats["imdb_id_differs"] == 1


def test_nul_bytes_in_a_rejected_row_do_not_reach_the_list(
    tmp_path: Path, settings: Settings
) -> None:
    dump(tmp_path, make_record(1), b'{"id": \x00\x00 2}')
    got = Reading(tmp_path, settings, wanted_films(1))
    assert got.rejected[0][3] == '{"id":  2}'


# --- bad files -------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_dump_cut_off_names_the_file(tmp_path: Path, settings: Settings, keep: float) -> None:
    path = dump(tmp_path, *(make_record(i) for i in range(1, 200)), name="movies.jsonl.gz")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(SourceError, match="a whole gzip file was expected") as caught:
        Reading(tmp_path, settings, wanted_films(1))
    assert f"tmdb/{path.name}" in str(caught.value)


@pytest.mark.faults
def test_a_dump_with_flipped_bytes_is_an_error(tmp_path: Path, settings: Settings) -> None:
    path = dump(tmp_path, *(make_record(i) for i in range(1, 200)), name="movies.jsonl.gz")
    content = bytearray(path.read_bytes())
    content[-6] ^= 0xFF  # in the checksum
    path.write_bytes(content)
    with pytest.raises(SourceError, match="the archive is corrupt"):
        Reading(tmp_path, settings, wanted_films(1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file is empty"),
        (orjson.dumps([make_record(1), make_record(2)]), "one JSON array"),
        (b"movieId,title\n1,Heat\n", "none of the dump's 2 records is usable"),
        (orjson.dumps(make_record(77)), "none of the dump's 1 records is usable"),
    ],
    ids=["empty", "blank", "array", "csv", "other-films"],
)
def test_a_dump_of_something_else_is_an_error(
    tmp_path: Path, settings: Settings, content: bytes, message: str
) -> None:
    dump(tmp_path, content)
    with pytest.raises(SourceError, match=message) as caught:
        Reading(tmp_path, settings, wanted_films(1, 2))
    assert "movies.jsonl" in str(caught.value)


def test_two_dumps_are_an_error(tmp_path: Path, settings: Settings) -> None:
    dump(tmp_path, make_record(1))
    dump(tmp_path, make_record(1), name="movies.jsonl.gz")
    with pytest.raises(SourceError, match="two TMDB dumps"):
        TmdbSource(settings).files(tmp_path)


# --- lines -----------------------------------------------------------------------------------


def test_an_overlong_line_is_rejected_and_the_next_one_read(
    tmp_path: Path, settings: Settings
) -> None:
    dump(tmp_path, make_record(1, overview="x" * 2_100_000), make_record(2))
    got = Reading(tmp_path, settings, wanted_films(1, 2))
    assert got.faults == [(1, "too_long")]
    assert got.rejected[0][3].endswith(" characters)")
    assert got.movies["tmdb_id"].to_list() == [2]


# --- no dump ---------------------------------------------------------------------------------


def test_without_dump_and_token_every_film_is_missing(tmp_path: Path, settings: Settings) -> None:
    source = TmdbSource(settings)
    assert source.present(tmp_path)
    assert source.files(tmp_path) == []
    assert source.mode(tmp_path) == "none"
    assert source.reusable(tmp_path)
    got = Reading(tmp_path, settings, wanted_films(1, 2))
    assert got.movies.height == 0
    assert got.missing == {1: "not_fetched", 2: "not_fetched"}
    assert got.stats == {"mode": "none", "wanted": 2}


def api_settings(home: Path, server: TmdbServer, **changes: object) -> Settings:
    tmdb = {"base_url": server.url, "token": server.token, "retries": 1, "concurrency": 4}
    return Settings(runtime={"home": home}, tmdb={**tmdb, **changes})


def test_the_api_gives_the_same_rows_as_a_dump_of_its_answers(
    tmp_path: Path, settings: Settings
) -> None:
    records = [make_record(i) for i in range(1, 51)]
    dump(tmp_path, *reversed(records))
    ids = wanted_films(*range(1, 51))
    from_dump = Reading(tmp_path, settings, ids)
    with TmdbServer(records) as server:
        from_api = Reading(tmp_path / "nothing", api_settings(tmp_path / "api", server), ids)
    assert from_api.movies.equals(from_dump.movies)
    assert from_api.file == "api"
    assert from_api.stats["mode"] == "api"


def test_every_kind_of_missing_film_is_told_apart(tmp_path: Path) -> None:
    records = {
        1: make_record(1),
        2: make_record(99),
        3: make_record(3, runtime="long"),
        4: make_record(4, imdb_id="tt9999999", title="Quite Another", original_title=None),
        6: make_record(6),
    }
    with TmdbServer(records, faults={6: [status(500)] * 2}) as server:
        settings = api_settings(tmp_path, server)
        got = Reading(tmp_path, settings, wanted_films(1, 2, 3, 4, 5, 6))
        assert got.movies["tmdb_id"].to_list() == [1]
        assert got.missing == {
            2: "record_of_another_film",
            3: "unusable_record",
            4: "record_of_another_film",
            5: "not_found",
            6: "not_fetched",
        }
        assert got.faults == [
            (2, "record_of_another_film"),
            (3, "bad_runtime"),
            (4, "record_of_another_film"),
        ]
        assert got.rejected[0][0] == "api"
        assert '"id":99' in got.rejected[0][3]
        assert got.stats["api_failed"] == 1
        # The next run gets the film that failed, and asks for nothing else.
        server.log.clear()
        again = Reading(tmp_path, settings, wanted_films(1, 2, 3, 4, 5, 6))
        assert server.films() == [6]
        assert again.movies["tmdb_id"].to_list() == [1, 6]


def test_a_live_source_is_never_skipped_and_a_dump_wins_over_it(tmp_path: Path) -> None:
    with TmdbServer([make_record(1)]) as server:
        settings = api_settings(tmp_path / "home", server)
        source = TmdbSource(settings)
        assert not source.reusable(tmp_path)
        assert source.identity(tmp_path) == {"mode": "api"}
        dump(tmp_path, make_record(1, title="From the dump"))
        assert source.reusable(tmp_path)
        assert source.identity(tmp_path) == {"mode": "dump"}
        got = Reading(tmp_path, settings, wanted_films(1))
        assert got.movies["title"].to_list() == ["From the dump"]
        assert server.log == []


def test_what_was_fetched_serves_a_later_run_without_a_token(tmp_path: Path) -> None:
    with TmdbServer([make_record(1)]) as server:
        Reading(tmp_path, api_settings(tmp_path, server), wanted_films(1))
        later = Reading(tmp_path, api_settings(tmp_path, server, token=None), wanted_films(1, 2))
        assert later.movies["tmdb_id"].to_list() == [1]
        assert later.missing == {2: "not_fetched"}
        assert server.asked(2) == 0


def test_the_licence_carries_tmdbs_notice() -> None:
    line = TmdbSource.licence.line
    assert "This product uses the TMDB API but is not endorsed or certified by TMDB." in line
    assert "Non-commercial" in line
    assert TmdbSource.datasets[-1] == "raw.tmdb_rejected"
