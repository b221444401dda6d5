"""TMDB through ingest into a real store, from the live API."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tmdb_server import TOKEN, TmdbServer, make_record, status

from pipelines.config import Settings
from pipelines.errors import SourceUnavailableError
from pipelines.sources import ingest
from pipelines.store import Store
from pipelines.worlds import prepare_world

FILMS = range(1, 41)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty films whose MovieLens, TMDB and IMDb ids are the same numbers."""
    movielens = tmp_path / "data" / "movielens" / "ml-latest-small"
    movielens.mkdir(parents=True)
    files = {
        "movies": ["movieId,title,genres"]
        + [f"{i},Film {i} ({1950 + i % 70}),Drama" for i in FILMS],
        "links": ["movieId,imdbId,tmdbId"] + [f"{i},{i:07d},{i}" for i in FILMS],
        "ratings": ["userId,movieId,rating,timestamp"]
        + [f"1,{i},4.0,{1_000_000_000 + i}" for i in FILMS],
        "tags": ["userId,movieId,tag,timestamp", "1,1,harbour,1000000000"],
    }
    for name, lines in files.items():
        (movielens / f"{name}.csv").write_text("\r\n".join(lines) + "\r\n", newline="")
    return tmp_path / "data"


def settings_for(server: TmdbServer, home: Path, folder: Path) -> Settings:
    tmdb = {"base_url": server.url, "token": server.token, "retries": 0, "concurrency": 2}
    return Settings(runtime={"home": home}, tmdb=tmdb, world={"folder": folder})


def test_ingest_from_the_api_resumes_and_never_stores_the_token(
    tmp_path: Path, folder: Path
) -> None:
    home = tmp_path / "home"
    store = Store(home)
    with TmdbServer([make_record(i) for i in FILMS if i != 7], latency=0.002) as server:
        settings = settings_for(server, home, folder)
        world = prepare_world(settings)
        ingest("movielens", world, store, settings)

        server.faults = {i: [status(503)] for i in range(11, 41)}
        with pytest.raises(SourceUnavailableError, match="run again to continue"):
            ingest("tmdb", world, store, settings)
        assert "raw.tmdb_movies" not in store.datasets()
        settled = {i for i in FILMS if server.asked(i) and i <= 10}
        server.faults = {}
        server.log.clear()

        first = ingest("tmdb", world, store, settings)
        assert set(server.films()) == set(FILMS) - settled
        assert first["raw.tmdb_movies"].rows == 39
        assert first["raw.tmdb_missing"].read().rows() == [(7, "not_found")]
        assert first["raw.tmdb_movies"].manifest.stats["mode"] == "api"

        # No new request is sent, and equal answers are the same version.
        server.log.clear()
        again = ingest("tmdb", world, store, settings)
        assert server.log == []
        assert {d: s.version for d, s in again.items()} == {d: s.version for d, s in first.items()}
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
