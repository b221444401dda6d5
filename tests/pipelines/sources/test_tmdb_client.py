"""The API client against a real local server: what it asks, keeps, and never shows."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support.tmdb_server import TOKEN, TmdbServer, make_record, status

from pipelines.config import Settings, TmdbSettings
from pipelines.errors import ConfigError, SourceError
from pipelines.progress import listening
from pipelines.sources.tmdb_api import TmdbCache, TmdbClient

FILMS = range(101, 141)


def cache_in(folder: Path) -> TmdbCache:
    return TmdbCache(folder / "tmdb.sqlite")


def settings_for(server: TmdbServer, **changes: object) -> TmdbSettings:
    values: dict[str, object] = {
        "base_url": server.url,
        "token": server.token,
        "concurrency": 8,
        "timeout": 5.0,
        "retries": 3,
        "max_wait": 5.0,
    }
    return TmdbSettings(**{**values, **changes})


def records(films=FILMS):
    return [make_record(film) for film in films]


def test_fetches_every_film_once_with_credits_and_keywords(tmp_path: Path) -> None:
    with TmdbServer(records()) as server:
        client = TmdbClient(settings_for(server), cache_in(tmp_path))
        report = client.fetch(FILMS)
    assert (report.wanted, report.answers, len(server.log)) == (40, {"found": 40}, 40)
    assert sorted(server.films()) == list(FILMS)
    assert {r.query for r in server.log} == {"append_to_response=credits%2Ckeywords&language=en-US"}
    record = (cache_in(tmp_path).get(105) or ("", None))[1]
    assert record is not None
    assert record["title"] == "Film 105"


def test_asks_only_for_what_is_not_cached(tmp_path: Path) -> None:
    with TmdbServer(records()) as server:
        client = TmdbClient(settings_for(server), cache_in(tmp_path))
        client.fetch(list(FILMS)[:25])
        server.log.clear()
        report = client.fetch(FILMS)
        assert sorted(server.films()) == list(FILMS)[25:]
        assert (report.cached, report.answers) == (25, {"found": 15})
        server.log.clear()
        assert client.fetch(FILMS).cached == 40
        assert server.log == []


def test_everything_cached_needs_neither_token_nor_network(tmp_path: Path) -> None:
    with TmdbServer(records()) as server:
        TmdbClient(settings_for(server), cache_in(tmp_path)).fetch(FILMS)
        address = server.url
    offline = TmdbClient(TmdbSettings(base_url=address), cache_in(tmp_path))
    assert offline.fetch(FILMS).cached == 40


def test_a_film_wanted_twice_is_asked_once(tmp_path: Path) -> None:
    with TmdbServer(records()) as server:
        report = TmdbClient(settings_for(server), cache_in(tmp_path)).fetch([103, 103, 104, 103])
        assert sorted(server.films()) == [103, 104]
        assert report.wanted == 2


def test_never_more_requests_in_flight_than_set_and_connections_are_kept(tmp_path: Path) -> None:
    with TmdbServer(records(), latency=0.02) as server:
        TmdbClient(settings_for(server, concurrency=3), cache_in(tmp_path)).fetch(FILMS)
        assert server.max_in_flight == 3
        assert server.connections == 3


def test_an_unknown_film_is_noted_and_not_asked_again(tmp_path: Path) -> None:
    with TmdbServer(records()) as server:
        client = TmdbClient(settings_for(server), cache_in(tmp_path))
        report = client.fetch([101, 999])
        assert report.answers == {"found": 1, "not_found": 1}
        assert client.fetch([101, 999]).cached == 2
        assert server.asked(999) == 1
    assert cache_in(tmp_path).get(999) == ("not_found", None)


def test_the_record_of_another_film_is_noted_as_such(tmp_path: Path) -> None:
    with TmdbServer({101: make_record(102)}) as server:
        client = TmdbClient(settings_for(server), cache_in(tmp_path))
        report = client.fetch([101])
        assert report.answers == {"another_film": 1}
        client.fetch([101])
        assert server.asked(101) == 1
    assert (cache_in(tmp_path).get(101) or ("", None))[0] == "another_film"


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    with TmdbServer(records()) as server, listening(lambda *call: calls.append(call)):
        TmdbClient(settings_for(server), cache_in(tmp_path)).fetch(FILMS)
    assert calls[-1] == ("tmdb", 40, 40)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def test_the_cache_keeps_leading_people_only(tmp_path: Path) -> None:
    crowd = make_record(101)
    crowd["credits"]["cast"] = [{"name": f"P{i}", "order": i} for i in reversed(range(200))]
    with TmdbServer([crowd]) as server:
        TmdbClient(settings_for(server), cache_in(tmp_path)).fetch([101])
    record = (cache_in(tmp_path).get(101) or ("", None))[1]
    assert record is not None
    assert [p["name"] for p in record["credits"]["cast"]] == [f"P{i}" for i in range(30)]
    assert [p["job"] for p in record["credits"]["crew"]] == ["Director", "Screenplay"]


# --- the token -------------------------------------------------------------------------------


def test_without_a_token_nothing_is_sent(tmp_path: Path) -> None:
    with TmdbServer(records()) as server:
        client = TmdbClient(settings_for(server, token=None), cache_in(tmp_path))
        with pytest.raises(SourceError, match="UNDERSTUDY_TMDB__TOKEN") as caught:
            client.fetch(FILMS)
        assert caught.value.permanent
        assert server.log == []


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_token_stops_at_once_and_names_the_variable(tmp_path: Path, code: int) -> None:
    with TmdbServer(records(range(1, 1001)), always=status(code)) as server:
        client = TmdbClient(settings_for(server, concurrency=4), cache_in(tmp_path))
        with pytest.raises(SourceError, match="UNDERSTUDY_TMDB__TOKEN") as caught:
            client.fetch(range(1, 1001))
        assert caught.value.permanent
        assert len(server.log) <= 4


def test_a_wrong_token_is_refused_by_the_server(tmp_path: Path) -> None:
    with TmdbServer(records()) as server:
        client = TmdbClient(settings_for(server, token="another"), cache_in(tmp_path))
        with pytest.raises(SourceError, match="HTTP 401"):
            client.fetch(FILMS)
        assert set(server.statuses()) == {401}


def test_the_token_is_in_no_file_message_log_or_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    with TmdbServer(records(), faults={101: [status(503)], 102: [status(404)]}) as server:
        settings = settings_for(server)
        client = TmdbClient(settings, cache_in(tmp_path / "cache"), backoff=0.01)
        report = client.fetch(FILMS)
        shown += [repr(report), repr(settings), str(settings), repr(client), repr(vars(client))]
        server.always = status(401, body=TOKEN.encode())
        with pytest.raises(SourceError) as caught:
            TmdbClient(settings, cache_in(tmp_path / "other")).fetch(FILMS)
        shown += [str(caught.value), repr(caught.value), repr(caught.value.details)]
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert files
    assert not any(TOKEN.encode() in content for content in files)
    assert caplog.records, "httpx logs its requests: the check below must have something to see"
    assert TOKEN not in caplog.text
    assert not any(TOKEN in text for text in shown)


def test_an_answer_that_repeats_the_token_is_not_kept(tmp_path: Path) -> None:
    with TmdbServer([make_record(101, overview=f"sent: {TOKEN}")]) as server:
        with pytest.raises(SourceError, match="contains the bearer token") as caught:
            TmdbClient(settings_for(server), cache_in(tmp_path)).fetch([101])
        assert TOKEN not in str(caught.value)
    assert cache_in(tmp_path).get(101) is None


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ünïcode"])
def test_a_token_that_no_header_carries_is_a_configuration_error(
    tmp_path: Path, token: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        TmdbClient(TmdbSettings(token=token), cache_in(tmp_path))
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://api.themoviedb.org/3",
        "ftp://127.0.0.1/3",
        "nonsense",
        "https://user:secret@host/3",
        "https://host/3?api_key=secret",
    ],
)
def test_an_address_that_would_leak_the_token_is_a_configuration_error(
    tmp_path: Path, address: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        TmdbClient(TmdbSettings(base_url=address, token="t"), cache_in(tmp_path))
    assert "secret" not in str(caught.value)


# --- stopping and going on -------------------------------------------------------------------

_FETCH = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from pipelines.config import load_settings
    from pipelines.sources.tmdb_api import TmdbCache, TmdbClient
    settings = load_settings(overrides={"tmdb": {"base_url": sys.argv[1], "concurrency": 4}})
    TmdbClient(settings.tmdb, TmdbCache(Path(sys.argv[2]) / "tmdb.sqlite")).fetch(range(1, 301))
    """
)


def _start(server: TmdbServer, folder: Path) -> subprocess.Popen[bytes]:
    import os

    return subprocess.Popen(
        [sys.executable, "-c", _FETCH, server.url, str(folder)],
        env={**os.environ, "UNDERSTUDY_TMDB__TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def _wait_until(condition, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.stdout and process.stdout.read().decode()
        assert time.monotonic() < deadline, "the fetch did not get that far"
        time.sleep(0.005)


def _wait_for_quiet(server: TmdbServer) -> None:
    """Wait until requests that were in flight when their sender died are noted."""
    before, since = len(server.log), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.02)
        if len(server.log) != before:
            before, since = len(server.log), time.monotonic()


@pytest.mark.pipeline
@pytest.mark.faults
@pytest.mark.parametrize(
    ("how", "after"), [(signal.SIGKILL, 1), (signal.SIGKILL, 60), (signal.SIGINT, 60)]
)
def test_a_stopped_fetch_goes_on_where_it_was(tmp_path: Path, how: int, after: int) -> None:
    with TmdbServer(records(range(1, 301)), latency=0.01) as server:
        process = _start(server, tmp_path)
        _wait_until(lambda: len(server.log) >= after, process)
        process.send_signal(how)
        process.communicate(timeout=30)
        assert process.returncode != 0
        kept = cache_in(tmp_path).fresh()
        asked = set(server.films())
        # At most what was in flight (4 workers) is lost, and nothing is invented.
        assert kept <= asked
        assert len(asked - kept) <= 4
        _wait_for_quiet(server)
        server.log.clear()
        process = _start(server, tmp_path)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output.decode()
        assert set(server.films()) == set(range(1, 301)) - kept
        assert len(server.log) == 300 - len(kept)


def test_settings_from_the_environment_reach_the_client(tmp_path: Path) -> None:
    from pipelines.config import load_settings

    with TmdbServer(records()) as server:
        settings: Settings = load_settings(
            environ={"TMDB_TOKEN": TOKEN, "UNDERSTUDY_TMDB__BASE_URL": server.url}
        )
        assert TmdbClient(settings.tmdb, cache_in(tmp_path)).fetch([101]).answers == {"found": 1}
