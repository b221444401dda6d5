"""The live API: every linked film asked for once, politely, resumable."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson

from pipelines.config import TmdbSettings
from pipelines.errors import ConfigError, SourceError, SourceUnavailableError, StoreError
from pipelines.progress import advance
from pipelines.retrying import TRANSIENT_STATUS, backoff, retry_after
from pipelines.sources import _values as values

__all__ = ["TOKEN_VARIABLE", "FetchReport", "TmdbCache", "TmdbClient"]

#: TMDB's terms forbid keeping its content for longer than six months.
RECORD_AGE = timedelta(days=180)
#: A film that TMDB doesn't know, or answers with another one, is asked for again after this.
MISSING_AGE = timedelta(days=30)
#: Kept of the hundreds of people that a record credits.
_MAX_CAST = 30
_DEPARTMENTS = frozenset({"Directing", "Writing"})
#: The environment variable to put the bearer token into.
TOKEN_VARIABLE = "UNDERSTUDY_TMDB__TOKEN"  # noqa: S105 - a name, not a secret
#: Largest answer that is read (bytes); the largest real ones have some 300 KB.
MAX_BODY = 8 << 20
#: Films in a row without an answer after which the service counts as down.
MAX_FAILURES_IN_A_ROW = 20
#: Share of asked films without an answer (and at least as many as above) that stops the run.
MAX_FAILED_SHARE = 0.05

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SETTLED = ("found", "not_found", "another_film")


class TmdbCache:
    """Answers by film, in one SQLite table.

    ``status`` is ``found``, ``not_found`` (404) or ``another_film`` (the answer has another id).
    Each answer is a transaction: whole or not there, whenever the process ends. Records, and notes
    that there is none, count for the two ages.

    Raises :class:`StoreError` if the file can't be read or written, or is damaged.
    """

    def __init__(
        self,
        file: Path,
        *,
        record_age: timedelta = RECORD_AGE,
        missing_age: timedelta = MISSING_AGE,
    ) -> None:
        self.file = file
        self._ages = (record_age.total_seconds(), missing_age.total_seconds())
        self._lock = threading.Lock()
        self._held: sqlite3.Connection | None = None

    def __bool__(self) -> bool:
        """Whether any answer is kept."""
        return self.file.exists()

    def fresh(self) -> set[int]:
        """Films with an answer that is not too old."""
        return {film for film, *_ in self._rows("SELECT tmdb_id FROM fresh")}

    def get(self, tmdb_id: int) -> tuple[str, dict[str, Any] | None] | None:
        """Status and record of a film's answer, if there is one that is not too old."""
        for status, record in self._rows(
            "SELECT status, record FROM fresh WHERE tmdb_id = ?", tmdb_id
        ):
            return status, None if record is None else orjson.loads(record)
        return None

    def put(self, tmdb_id: int, status: str, record: dict[str, Any] | None) -> None:
        """Keep an answer, its record as :func:`slim`."""
        content = None if record is None else orjson.dumps(slim(record))
        row = (tmdb_id, status, time.time(), content)
        self._rows("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", *row)

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        with self._lock:
            if self._held is not None:
                self._held.close()
                self._held = None

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            if self._held is None and query.startswith("SELECT") and not self.file.exists():
                return []
            if self._held is None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self._held = sqlite3.connect(
                    self.file, isolation_level=None, check_same_thread=False
                )
                self._held.executescript(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                    "CREATE TABLE IF NOT EXISTS answers (tmdb_id INTEGER PRIMARY KEY,"
                    " status TEXT NOT NULL, fetched_at REAL NOT NULL, record BLOB);"
                )
                record_age, missing_age = self._ages
                self._held.execute(
                    "CREATE TEMP VIEW fresh AS SELECT * FROM answers WHERE fetched_at >"  # noqa: S608
                    f" {time.time()} - iif(status = 'found', {record_age}, {missing_age})"
                )
            return self._held.execute(query, parameters).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"the TMDB cache can't be read or written ({error})",
                where=str(self.file),
                hint="free space, or remove a damaged file: its films are asked for again",
            ) from None


def slim(record: dict[str, Any]) -> dict[str, Any]:
    """Keep of the people in a record the top cast, and those who directed or wrote.

    A film credits up to a thousand people; kept whole, 62,000 films would take gigabytes. Any
    part that doesn't have TMDB's shape is left as it is, to be judged by who reads it.

    >>> slim({"id": 1, "credits": {"cast": [], "crew": [{"name": "A", "department": "Sound"}]}})
    {'id': 1, 'credits': {'cast': [], 'crew': []}}
    """
    credit = record.get("credits")
    if not isinstance(credit, dict):
        return record
    cast, crew = credit.get("cast"), credit.get("crew")
    slimmed = dict(credit)
    if isinstance(cast, list) and all(
        isinstance(p, dict) and isinstance(p.get("order"), int) for p in cast
    ):
        slimmed["cast"] = sorted(cast, key=lambda p: p["order"])[:_MAX_CAST]
    if isinstance(crew, list) and all(isinstance(p, dict) for p in crew):
        slimmed["crew"] = [
            p for p in crew if p.get("department") in _DEPARTMENTS or p.get("job") == "Director"
        ]
    return {**record, "credits": slimmed}


@dataclass(slots=True)
class FetchReport:
    """Result of a fetch; counts are films unless stated."""

    #: Films asked about, each once.
    wanted: int = 0
    #: Films of these that were up to date on disk (count).
    cached: int = 0
    #: New answers by status.
    answers: Counter[str] = field(default_factory=Counter)
    #: Films without an answer after all tries, with the last fault (``timeout``, ``connection``,
    #: ``http_503``, ``bad_json``, ``too_large``); asked again in the next run.
    failed: dict[int, str] = field(default_factory=dict)
    #: Requests sent.
    requests: int = 0
    #: Time that all workers waited because the server asked to (seconds).
    paused: float = 0.0

    @property
    def settled(self) -> int:
        """Films with an answer on disk."""
        return self.cached + self.answers.total()


class TmdbClient:
    """Fetches film records into a cache.

    ``backoff`` is the first pause between two tries of one film (seconds), doubled each time.

    Raises ConfigError if the address is not a URL, or would send the token unencrypted over a
    network; or if the token has characters that no header can carry.
    """

    def __init__(self, settings: TmdbSettings, cache: TmdbCache, *, backoff: float = 0.5) -> None:
        self._settings = settings
        self._cache = cache
        self._backoff = backoff
        self._base = _checked_address(settings.base_url)
        token = settings.token.get_secret_value().strip() if settings.token else ""
        if token and not re.fullmatch(r"[\x21-\x7e]+", token):
            # Checked here because the HTTP library's own message would show the value.
            raise ConfigError("the TMDB token contains invalid characters", where=TOKEN_VARIABLE)

    def fetch(self, tmdb_ids: Iterable[int]) -> FetchReport:
        """Bring the answers for all films into the cache; only missing ones are asked for.

        Stopping it at any point (Ctrl-C, a kill) keeps every answer that had come.

        Raises
        ------
        SourceError
            If there is no token or it is refused, or the service answers in a way that asking
            again can't change.
        SourceUnavailableError
            If the service is down or over its rate limit; running again continues.
        StoreError
            If the cache can't be read or written.
        """
        films, fresh = list(dict.fromkeys(tmdb_ids)), self._cache.fresh()
        pending = [film for film in films if film not in fresh]
        report = FetchReport(len(films), len(films) - len(pending))
        if pending:
            with closing(self._connect()) as connection:
                _Fetch(self, report, connection, len(pending)).run(pending)
        advance("tmdb", report.settled + len(report.failed), report.wanted)
        return report

    def _connect(self) -> httpx.Client:
        token = self._settings.token
        if not token or not token.get_secret_value().strip():
            raise SourceError(
                "the TMDB API needs a bearer token",
                where=self._base,
                hint=f"set {TOKEN_VARIABLE} in the environment, or put a dump into tmdb/",
            )
        size = self._settings.concurrency
        return httpx.Client(
            headers={
                "Authorization": f"Bearer {token.get_secret_value().strip()}",
                "Accept": "application/json",
                "User-Agent": "understudy",
            },
            timeout=self._settings.timeout,
            limits=httpx.Limits(max_connections=size, max_keepalive_connections=size),
            follow_redirects=False,  # the token goes to no other host
        )


class _Fetch:
    """A run over the pending films; its threads share the cool-down and the counts."""

    def __init__(
        self, client: TmdbClient, report: FetchReport, connection: httpx.Client, pending: int
    ) -> None:
        self._settings, self._base = client._settings, client._base
        self._cache, self._backoff = client._cache, client._backoff
        self._report = report
        self._connection = connection
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._until = 0.0
        self._pauses = self._failures = 0
        self._allowed = max(MAX_FAILURES_IN_A_ROW, MAX_FAILED_SHARE * pending)

    def run(self, pending: list[int]) -> None:
        with ThreadPoolExecutor(min(self._settings.concurrency, len(pending))) as pool:
            try:
                for done in as_completed([pool.submit(self._film, film) for film in pending]):
                    done.result()
                    report = self._report
                    advance("tmdb", report.settled + len(report.failed), report.wanted)
            finally:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
        if self._report.failed and not self._report.answers:
            raise self._down()

    def _film(self, tmdb_id: int) -> None:
        try:
            kind, record = self._settled(tmdb_id)
            if kind in _SETTLED:
                self._cache.put(tmdb_id, kind, record)
            with self._lock:
                if kind in _SETTLED:
                    self._report.answers[kind] += 1
                    self._failures = 0
                elif kind:
                    self._report.failed[tmdb_id] = kind
                    self._failures += 1
                    failed = len(self._report.failed)
                    if self._failures >= MAX_FAILURES_IN_A_ROW or failed > self._allowed:
                        raise self._down()
        except BaseException:
            self._stop.set()
            raise

    def _settled(self, tmdb_id: int) -> tuple[str, dict[str, Any] | None]:
        """Ask until there is an answer or the tries are used up; pauses use up none."""
        tries = 0
        while not self._stop.is_set():
            left = self._until - time.monotonic()
            if left > 0:
                self._stop.wait(left)
                continue
            with self._lock:
                self._report.requests += 1
            kind, record, wait = self._ask(tmdb_id)
            if kind == "throttled":
                pause = min(backoff(tries + 1, 2.0), self._settings.max_wait)
                self._pause(pause if wait is None else wait)
            elif kind in _SETTLED or kind == "too_large":
                self._pauses = 0
                return kind, record
            elif tries == self._settings.retries:
                return kind, None
            else:
                tries += 1
                self._stop.wait(backoff(tries, self._backoff))
        return "", None

    def _pause(self, seconds: float) -> None:
        """Hold all threads for ``seconds`` from now; overlapping pauses count once."""
        most, limit = self._settings.max_wait, self._settings.retries + 1
        now = time.monotonic()
        with self._lock:
            self._pauses += self._until <= now
            if seconds > most or self._pauses > limit:
                raise SourceUnavailableError(
                    f"TMDB asks to wait {seconds:.0f} s, longer than tmdb.max_wait ({most:.0f} s)"
                    if seconds > most
                    else f"TMDB limits the rate of requests even after {limit} pauses",
                    where=self._base,
                    hint=self._progress(),
                )
            until = max(self._until, now + seconds)
            self._report.paused += until - max(self._until, now)
            self._until = until

    def _ask(self, tmdb_id: int) -> tuple[str, dict[str, Any] | None, float | None]:
        """Ask once: the status or the fault, the record, and the wait that the server asks for.

        Raises :class:`SourceError` for answers that no further try can change (401, 403,
        redirects, other 4xx).
        """
        # httpx limits each read; a server that drips bytes would never reach it.
        end = time.monotonic() + self._settings.timeout
        body = b""
        try:
            with self._connection.stream(
                "GET",
                f"{self._base}/movie/{tmdb_id}",
                params={"append_to_response": "credits,keywords", "language": "en-US"},
            ) as response:
                for part in response.iter_bytes():
                    body += part
                    if len(body) > MAX_BODY:
                        return "too_large", None, None
                    if time.monotonic() > end:
                        return "timeout", None, None
        except httpx.TimeoutException:
            return "timeout", None, None
        except httpx.RequestError:
            return "connection", None, None
        status, wait = response.status_code, response.headers.get("Retry-After")
        if status == 200:
            return *self._record(tmdb_id, body), None
        if status == 404:
            return "not_found", None, None
        if status == 429 or (status == 503 and wait is not None):
            return "throttled", None, retry_after(wait)
        if status in TRANSIENT_STATUS:
            return f"http_{status}", None, None
        refused = status in (401, 403)
        raise SourceError(
            f"TMDB refuses the bearer token (HTTP {status})"
            if refused
            else f"TMDB answers HTTP {status}, which a retry can't change",
            where=self._base,
            hint=f"set {TOKEN_VARIABLE} to the account's API read access token"
            if refused
            else "check tmdb.base_url",
        )

    def _record(self, tmdb_id: int, body: bytes) -> tuple[str, dict[str, Any] | None]:
        if self._connection.headers["Authorization"].removeprefix("Bearer ").encode() in body:
            # A debugging proxy, or worse: nothing of it may reach a file.
            raise SourceError(
                "the response contains the bearer token; it was discarded", where=self._base
            )
        try:
            record = orjson.loads(body)
            same = values.whole_number(record["id"]) == tmdb_id
        except (orjson.JSONDecodeError, KeyError, TypeError, values.UnreadableError):
            return "bad_json", None  # cut off, or a proxy's error page
        return "found" if same else "another_film", record

    def _down(self) -> SourceUnavailableError:
        last = next(reversed(self._report.failed.values()))
        return SourceUnavailableError(
            f"TMDB did not answer for {len(self._report.failed)} films (last error: {last})",
            where=self._base,
            hint=self._progress(),
            details={"failed": len(self._report.failed), "cached": self._report.settled},
        )

    def _progress(self) -> str:
        report = self._report
        return f"{report.settled} of {report.wanted} films are cached; run again to continue"


def _checked_address(value: str) -> str:
    try:
        url = httpx.URL(value.rstrip("/"))
    except httpx.InvalidURL:
        raise ConfigError("tmdb.base_url is not an address") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("tmdb.base_url is not an http(s) address", where=value)
    if url.userinfo or url.query:
        raise ConfigError("tmdb.base_url must hold no credentials or query")
    if url.scheme == "http" and url.host not in _LOOPBACK:
        raise ConfigError(
            "tmdb.base_url must be https: the token would be sent unencrypted", where=value
        )
    return str(url)
