"""The real dump, whole, and some of its records through the real client."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from support.tmdb_server import TmdbServer

from pipelines.config import Settings, TmdbSettings
from pipelines.contracts import RAW
from pipelines.sources import RejectLog, Workspace
from pipelines.sources.tmdb import FIELDS, TmdbSource, WantedFilms, published, title_forms
from pipelines.sources.tmdb_api import TmdbCache, TmdbClient

pytestmark = pytest.mark.shared_data


def flat(*records: Any) -> list[tuple[Any, ...]]:
    """Rows of ``raw.tmdb_movies``."""
    frame = published(pl.DataFrame([f.of_records(records, {}, strict=False) for f in FIELDS]))
    return frame.select(RAW["raw.tmdb_movies"].polars_schema().names()).rows()


@pytest.fixture(scope="module")
def wanted(shared_data: Path) -> pl.DataFrame:
    with zipfile.ZipFile(shared_data / "movielens" / "ml-latest-small.zip") as archive:
        links, movies = (
            pl.read_csv(io.BytesIO(archive.read(f"ml-latest-small/{name}.csv")), infer_schema=False)
            for name in ("links", "movies")
        )
    return links.join(movies, on="movieId").select(
        movie_id=pl.col("movieId").cast(pl.Int64),
        tmdb_id=pl.col("tmdbId").cast(pl.Int64),
        imdb_id="imdbId",
        title="title",
    )


def test_the_dump_gives_a_record_for_every_linked_film(
    shared_data: Path, wanted: pl.DataFrame, tmp_path: Path
) -> None:
    settings = Settings(runtime={"home": tmp_path / "home"})
    work = Workspace(tmp_path, settings, RejectLog(tmp_path / "rejects"), wanted_tmdb=wanted)
    tables = TmdbSource(settings).read(shared_data, work)
    table = next(tables)
    movies = RAW["raw.tmdb_movies"].validate(pl.concat(list(table.batches)))
    assert table.rows.total() == 9_734
    assert movies.height == 9_733
    assert movies["tmdb_id"].is_sorted()
    assert set(movies["tmdb_id"]) == set(wanted["tmdb_id"].drop_nulls())
    stats = dict(table.stats)
    assert "imdb_id_differs" not in stats
    assert (stats["with_overview"], stats["with_actors"], stats["with_directors"]) == (
        7_226,
        7_029,
        7_038,
    )
    assert list(next(tables).batches) == []
    # Two MovieLens films link to TMDB's 4912; the dump has its record twice.
    (rejected,) = (row for frame in work.rejects.batches() for row in frame.rows())
    assert rejected[:3] == ("tmdb/movies.jsonl.gz", 9099, "duplicate_id")
    toy_story = movies.row(by_predicate=pl.col("tmdb_id") == 862, named=True)
    assert toy_story["actors"][:2] == ["Tom Hanks", "Tim Allen"]
    assert toy_story["directors"] == ["John Lasseter"]
    assert toy_story["original_title"] is None


def test_records_under_each_others_ids_are_all_noticed(
    shared_data: Path, wanted: pl.DataFrame
) -> None:
    """Every film's record is filed under the next film's id."""
    films = WantedFilms(wanted)
    with gzip.open(shared_data / "tmdb" / "movies.jsonl.gz") as lines:
        rows = {row[0]: row for row in flat(*map(orjson.loads, lines))}
    ids = sorted(rows)
    passed = [
        (title_forms(rows[film][2]), title_forms(rows[other][2]), rows[other][11])
        for film, other in zip(ids, ids[1:] + ids[:1], strict=True)
        if not films.is_another(film, rows[other][1], [rows[other][2]], rows[other][11])
    ]
    # Only a namesake without a date can pass: nothing in the record tells the two apart.
    assert passed == [(("love affair",), ("love affair",), None)]
    # A renumbered IMDb id alone never costs a right film its record.
    lost = [
        film
        for film in ids
        if films.is_another(film, "tt99999999", [rows[film][2]], rows[film][11])
    ]
    assert lost == []


@pytest.mark.pipeline
def test_real_records_come_through_the_client_unchanged(shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "tmdb" / "movies.jsonl.gz") as lines:
        records = {r["id"]: r for r in (orjson.loads(next(lines)) for _ in range(300))}
    with TmdbServer(records) as server:
        cache = TmdbCache(tmp_path / "tmdb.sqlite")
        client = TmdbClient(TmdbSettings(base_url=server.url, token=server.token), cache)
        assert client.fetch(records).answers == {"found": len(records)}
    answers = [(cache.get(film) or ("", None))[1] for film in records]
    assert flat(*answers) == flat(*records.values())
