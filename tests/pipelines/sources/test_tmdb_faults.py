"""The API client against a server that throttles, fails, lies and hangs up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tmdb_server import (
    TmdbServer,
    body,
    drip,
    hang_up,
    make_record,
    redirect,
    reset,
    slow,
    status,
    truncated,
)

from pipelines.config import TmdbSettings
from pipelines.errors import SourceError, SourceUnavailableError, StoreError
from pipelines.retrying import backoff, retry_after
from pipelines.sources.tmdb_api import TmdbCache, TmdbClient

pytestmark = pytest.mark.faults


def client_for(server: TmdbServer, folder: Path, **changes: object) -> TmdbClient:
    values: dict[str, object] = {
        "base_url": server.url,
        "token": server.token,
        "concurrency": 4,
        "timeout": 5.0,
        "retries": 3,
        "max_wait": 5.0,
    }
    return TmdbClient(TmdbSettings(**{**values, **changes}), cache_in(folder), backoff=0.01)


def cache_in(folder: Path) -> TmdbCache:
    return TmdbCache(folder / "tmdb.sqlite")


def records(count: int) -> list[dict[str, object]]:
    return [make_record(film) for film in range(1, count + 1)]


def cached(folder: Path) -> set[int]:
    return cache_in(folder).fresh()


# --- single faults that pass -----------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([status(500)], id="500"),
        pytest.param([status(502), status(503), status(504)], id="5xx-until-the-last-try"),
        pytest.param([reset()], id="reset-in-the-body"),
        pytest.param([hang_up()], id="hang-up"),
        pytest.param([truncated()], id="truncated-json"),
        pytest.param([body(b"<html>bad gateway</html>")], id="a-proxy's-page"),
        pytest.param([body(b"[]")], id="not-an-object"),
        pytest.param([body(b'{"success": true}')], id="no-id"),
        pytest.param([reset(), truncated(), hang_up()], id="one-of-each"),
    ],
)
def test_a_passing_fault_is_retried_and_the_film_comes(tmp_path: Path, faults) -> None:
    with TmdbServer(records(12), faults={7: faults}) as server:
        report = client_for(server, tmp_path).fetch(range(1, 13))
        assert report.answers["found"] == 12
        assert report.failed == {}
        assert server.asked(7) == len(faults) + 1
        assert len(server.log) == 12 + len(faults)
    assert cached(tmp_path) == set(range(1, 13))


@pytest.mark.parametrize("fault", [slow(30), drip(0.2)], ids=["silent", "dripping"])
def test_a_request_over_the_time_limit_is_given_up_and_retried(tmp_path: Path, fault) -> None:
    # A dripping server sends a byte every 0.2 s: no single read takes as long as the limit.
    with TmdbServer(records(1), faults={1: [fault]}) as server:
        report = client_for(server, tmp_path, timeout=0.5).fetch([1])
        assert (report.answers, server.asked(1)) == ({"found": 1}, 2)


def test_one_hopeless_film_is_reported_and_the_others_come(tmp_path: Path) -> None:
    with TmdbServer(records(30), faults={7: [status(500)] * 4}) as server:
        client = client_for(server, tmp_path)
        report = client.fetch(range(1, 31))
        assert report.failed == {7: "http_500"}
        assert report.answers["found"] == 29
        assert server.asked(7) == 4
        assert 7 not in cached(tmp_path)
        again = client.fetch(range(1, 31))
        assert (again.cached, again.answers, again.failed) == (29, {"found": 1}, {})


@pytest.mark.parametrize("code", [400, 418, 422])
def test_other_refusals_stop_at_once(tmp_path: Path, code: int) -> None:
    with TmdbServer(records(100), always=status(code)) as server:
        with pytest.raises(SourceError, match=f"HTTP {code}") as caught:
            client_for(server, tmp_path).fetch(range(1, 101))
        assert caught.value.permanent
        assert len(server.log) <= 4


def test_a_redirect_is_not_followed_with_the_token(tmp_path: Path) -> None:
    with (
        TmdbServer(records(1)) as elsewhere,
        TmdbServer(records(1), always=redirect(f"{elsewhere.url}/movie/1")) as server,
    ):
        with pytest.raises(SourceError, match="HTTP 302"):
            client_for(server, tmp_path).fetch([1])
        assert elsewhere.log == []


# --- rate limits -----------------------------------------------------------------------------


def test_retry_after_pauses_all_workers(tmp_path: Path) -> None:
    with TmdbServer(records(40), faults={5: [status(429, retry_after=1)]}) as server:
        report = client_for(server, tmp_path).fetch(range(1, 41))
        limited = next(r.at for r in server.log if r.status == 429)
        later = [r.at - limited for r in server.log if r.at > limited]
    assert report.answers["found"] == 40
    # The three other workers may have had requests under way when the limit was hit; nothing
    # new starts before the second is over.
    assert len(later) > 20
    assert sum(wait < 0.95 for wait in later) <= 8


def test_retry_after_may_be_a_date(tmp_path: Path) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    with TmdbServer(records(8), faults={2: [status(429, retry_after=when)]}) as server:
        report = client_for(server, tmp_path).fetch(range(1, 9))
        assert server.asked(2) == 2
    assert report.answers["found"] == 8


def test_a_limited_server_is_fetched_from_completely(tmp_path: Path) -> None:
    # 20 answers a second: pauses use up no film's tries.
    with TmdbServer(records(60), limit=(20, 1.0)) as server:
        report = client_for(server, tmp_path, concurrency=8, retries=1).fetch(range(1, 61))
        assert report.answers["found"] == 60
        assert report.failed == {}
        assert server.statuses()[429] > 0


def test_any_number_of_pauses_is_fine_while_answers_come_between(tmp_path: Path) -> None:
    plan = {film: [status(429, retry_after=0.01)] for film in range(1, 21)}
    with TmdbServer(records(20), faults=plan) as server:
        report = client_for(server, tmp_path, concurrency=1, retries=1).fetch(range(1, 21))
        assert (report.answers, len(server.log)) == ({"found": 20}, 40)


def test_a_pause_longer_than_allowed_stops_and_says_how_far_it_is(tmp_path: Path) -> None:
    with TmdbServer(records(40), faults={20: [status(429, retry_after=3600)]}) as server:
        client = client_for(server, tmp_path, concurrency=1)
        with pytest.raises(SourceUnavailableError, match="3600 s") as caught:
            client.fetch(range(1, 41))
        assert not caught.value.permanent
        assert "19 of 40 films are cached" in str(caught.value)
        assert client.fetch(range(1, 41)).answers["found"] == 21


@pytest.mark.parametrize("retry", [0, None])
def test_a_server_that_only_limits_is_given_up(tmp_path: Path, retry: float | None) -> None:
    limit = status(429, retry_after=retry)
    with TmdbServer(records(9), always=limit) as server:
        client = client_for(server, tmp_path, retries=1, max_wait=0.05)
        with pytest.raises(SourceUnavailableError, match="even after 2 pauses"):
            client.fetch(range(1, 10))
        assert len(server.log) < 40


def test_503_with_retry_after_is_a_pause_not_a_failure(tmp_path: Path) -> None:
    plan = {1: [status(503, retry_after=0.1)] * 4}
    with TmdbServer(records(1), faults=plan) as server:
        report = client_for(server, tmp_path, retries=3).fetch([1])
    assert report.answers["found"] == 1


# --- a service that is down ------------------------------------------------------------------


def test_a_service_that_goes_down_stops_the_run_and_a_rerun_continues(tmp_path: Path) -> None:
    with TmdbServer(records(400)) as server:
        client = client_for(server, tmp_path, retries=1, concurrency=1)
        client.fetch(range(1, 101))
        server.always = status(503)
        server.log.clear()
        with pytest.raises(SourceUnavailableError) as caught:
            client.fetch(range(1, 401))
        assert "100 of 400 films are cached; run again to continue" in str(caught.value)
        assert len(server.log) == 20 * 2  # twenty films in a row, two tries each
        server.always = None
        assert client.fetch(range(1, 401)).answers["found"] == 300


def test_a_service_that_fails_every_second_film_stops_the_run(tmp_path: Path) -> None:
    plan = {film: [status(500)] * 2 for film in range(1, 401, 2)}
    with (
        TmdbServer(records(400), faults=plan) as server,
        pytest.raises(SourceUnavailableError, match="did not answer for 21 films"),
    ):
        client_for(server, tmp_path, retries=1, concurrency=1).fetch(range(1, 401))
    assert len(cached(tmp_path)) == 20


def test_nobody_listening_is_unavailable_even_for_one_film(tmp_path: Path) -> None:
    with TmdbServer(records(1)) as server:
        client = client_for(server, tmp_path, retries=1)
    with pytest.raises(SourceUnavailableError, match="last error: connection"):
        client.fetch([1])


# --- the cache -------------------------------------------------------------------------------


def test_a_damaged_cache_is_an_error_that_names_its_file(tmp_path: Path) -> None:
    with TmdbServer(records(5)) as server:
        (tmp_path / "tmdb.sqlite").write_bytes(b"no database " * 500)
        with pytest.raises(StoreError, match=r"not a database.*tmdb\.sqlite.*remove"):
            client_for(server, tmp_path).fetch(range(1, 6))
        assert server.log == []


def test_old_answers_are_asked_for_again(tmp_path: Path) -> None:
    with TmdbServer(records(2)) as server:
        client_for(server, tmp_path).fetch([1, 2, 99])
        strict = TmdbCache(tmp_path / "tmdb.sqlite", missing_age=timedelta(0))
        settings = TmdbSettings(base_url=server.url, token=server.token)
        report = TmdbClient(settings, strict).fetch([1, 2, 99])
        assert (report.cached, report.answers) == (2, {"not_found": 1})
        expired = TmdbCache(tmp_path / "tmdb.sqlite", record_age=timedelta(0))
        report = TmdbClient(settings, expired).fetch([1, 2, 99])
        assert (report.cached, report.answers) == (1, {"found": 2})


def test_an_unwritable_cache_stops_the_run_with_its_place(tmp_path: Path) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("a file where the folder should be")
    with (
        TmdbServer(records(40)) as server,
        pytest.raises(StoreError, match=r"can't be (read|written)") as caught,
    ):
        client_for(server, blocked).fetch(range(1, 41))
    assert "cache" in str(caught.value)


# --- pacing ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 10**7))
def test_retry_after_seconds_and_dates_agree(seconds: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    assert retry_after(str(seconds), now) == retry_after(date, now) == float(seconds)


@pytest.mark.parametrize("value", [None, "", "soon", "nan", "inf", "12 minutes"])
def test_an_unreadable_retry_after_counts_as_absent(value: str | None) -> None:
    assert retry_after(value) is None


def test_a_date_in_the_past_is_no_wait() -> None:
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after("-5") == 0.0


@settings(deadline=None)
@given(st.integers(1, 60), st.floats(0.01, 10))
def test_backoff_grows_is_capped_and_never_zero(attempt: int, base: float) -> None:
    delay = backoff(attempt, base)
    assert 0 < delay <= 30
    assert delay >= min(30.0, base * 2 ** (attempt - 1)) / 2
