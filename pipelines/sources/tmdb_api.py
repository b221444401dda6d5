"""The live API: every linked film asked for once, politely, resumable."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
#: Films in a row without an answer after which the service counts as down.
MAX_FAILURES_IN_A_ROW = 20
#: Share of asked films without an answer (and at least as many as above) that stops the run.
MAX_FAILED_SHARE = 0.05

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SETTLED = ("found", "not_found", "another_film")
_TABLE = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS answers (tmdb_id INTEGER PRIMARY KEY,
 status TEXT NOT NULL, fetched_at REAL NOT NULL, record BLOB);
"""
_FRESH = "FROM answers WHERE fetched_at > iif(status = 'found', ?, ?)"


class TmdbCache:
    """Answers by film, in one SQLite table.

    ``status`` is ``found``, ``not_found`` (404) or ``another_film`` (the answer has another id).
    Each answer is a transaction: complete or absent, whenever the process ends. Records, and notes
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
        self._held: sqlite3.Connection | None = None

    def __bool__(self) -> bool:
        """Whether any answer is kept."""
        return self.file.exists()

    def fresh(self) -> set[int]:
        """Films with an answer that is not too old."""
        return {film for (film,) in self._fresh("SELECT tmdb_id")}

    def get(self, tmdb_id: int) -> tuple[str, dict[str, Any] | None] | None:
        """Status and record of a film's answer, if there is one that is not too old."""
        for status, record in self._fresh("SELECT status, record", tmdb_id):
            return status, None if record is None else orjson.loads(record)
        return None

    def put(self, tmdb_id: int, status: str, record: dict[str, Any] | None) -> None:
        """Keep an answer, its record as :func:`slim`."""
        content = None if record is None else orjson.dumps(slim(record))
        with self._connection() as connection:
            row = (tmdb_id, status, time.time(), content)
            connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _fresh(self, columns: str, *film: int) -> list[tuple[Any, ...]]:
        if self._held is None and not self:
            return []
        oldest = (time.time() - age for age in self._ages)
        query = f"{columns} {_FRESH}{' AND tmdb_id = ?' if film else ''}"
        with self._connection() as connection:
            return connection.execute(query, (*oldest, *film)).fetchall()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._held is None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                # Tables are read in other threads than the one that fetched, one after the other.
                self._held = sqlite3.connect(
                    self.file, isolation_level=None, check_same_thread=False
                )
                self._held.executescript(_TABLE)
            yield self._held
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
    """Result of a fetch; counts are films."""

    #: Films asked about, each once.
    wanted: int = 0
    #: Films of these that were up to date on disk (count).
    cached: int = 0
    #: New answers by status.
    answers: Counter[str] = field(default_factory=Counter)
    #: Films without an answer after all tries, with the last fault (``timeout``, ``connection``,
    #: ``http_503``, ``bad_json``); asked again in the next run.
    failed: dict[int, str] = field(default_factory=dict)

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
        if (token := self._token()) and not re.fullmatch(r"[\x21-\x7e]+", token):
            # Checked here because the HTTP library's own message would show the value.
            raise ConfigError("the TMDB token contains invalid characters", where=TOKEN_VARIABLE)

    def fetch(self, tmdb_ids: Iterable[int]) -> FetchReport:
        """Bring the answers for all films into the cache; only missing ones are asked for.

        Stopping it at any point (Ctrl-C, a kill) keeps every answer that had come. It runs an event
        loop: call it where none is running.

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
        if pending and not self._token():
            raise SourceError(
                "the TMDB API needs a bearer token",
                where=self._base,
                hint=f"set {TOKEN_VARIABLE} in the environment, or put a dump into tmdb/",
            )
        if pending:
            try:
                asyncio.run(self._run(pending, report))
            except BaseExceptionGroup as faults:
                # The first worker that fails cancels the others.
                raise faults.exceptions[0] from None
        advance("tmdb", report.settled + len(report.failed), report.wanted)
        return report

    def _token(self) -> str:
        token = self._settings.token
        return token.get_secret_value().strip() if token else ""

    async def _run(self, pending: list[int], report: FetchReport) -> None:
        size = min(self._settings.concurrency, len(pending))
        headers = {
            "Authorization": f"Bearer {self._token()}",
            "Accept": "application/json",
            "User-Agent": "understudy",
        }
        limits = httpx.Limits(max_connections=size, max_keepalive_connections=size)
        # Redirects are not followed: the token goes to no other host.
        async with httpx.AsyncClient(headers=headers, timeout=None, limits=limits) as connection:  # noqa: S113
            fetch = _Fetch(self, report, connection, len(pending))
            films = iter(pending)
            async with asyncio.TaskGroup() as workers:
                for _ in range(size):
                    workers.create_task(fetch.work(films))
        if report.failed and not report.answers:
            raise fetch.down()


class _Fetch:
    """A run over the pending films; its workers share the cool-down and the counts."""

    def __init__(
        self,
        client: TmdbClient,
        report: FetchReport,
        connection: httpx.AsyncClient,
        pending: int,
    ) -> None:
        self._settings, self._base, self._token = client._settings, client._base, client._token()
        self._cache, self._backoff = client._cache, client._backoff
        self._report = report
        self._connection = connection
        self._until = 0.0
        self._pauses = self._failures = 0
        self._allowed = max(MAX_FAILURES_IN_A_ROW, MAX_FAILED_SHARE * pending)

    async def work(self, films: Iterator[int]) -> None:
        """Ask for films until there are no more."""
        report = self._report
        for film in films:
            status, record = await self._answer(film)
            if status in _SETTLED:
                self._cache.put(film, status, record)
                report.answers[status] += 1
                self._failures = 0
            else:
                report.failed[film] = status
                self._failures += 1
                failed = len(report.failed)
                if self._failures >= MAX_FAILURES_IN_A_ROW or failed > self._allowed:
                    raise self.down()
            advance("tmdb", report.settled + len(report.failed), report.wanted)

    async def _answer(self, tmdb_id: int) -> tuple[str, dict[str, Any] | None]:
        """Ask until there is an answer or the tries are used up; pauses use up none."""
        tries = 0
        while True:
            while (left := self._until - time.monotonic()) > 0:
                await asyncio.sleep(left)
            try:
                # httpx limits each read; a server that drips bytes would never reach it.
                async with asyncio.timeout(self._settings.timeout):
                    response = await self._connection.get(
                        f"{self._base}/movie/{tmdb_id}",
                        params={"append_to_response": "credits,keywords", "language": "en-US"},
                    )
            except TimeoutError:
                status, record = "timeout", None
            except httpx.RequestError:
                status, record = "connection", None
            else:
                wait = response.headers.get("Retry-After")
                if response.status_code == 429 or (response.status_code == 503 and wait):
                    self._pause(retry_after(wait))
                    continue
                status, record = self._classified(tmdb_id, response)
            if status in _SETTLED:
                self._pauses = 0
            elif tries < self._settings.retries:
                tries += 1
                await asyncio.sleep(backoff(tries, self._backoff))
                continue
            return status, record

    def _pause(self, seconds: float | None) -> None:
        """Hold all workers for ``seconds`` from now; overlapping pauses count once."""
        longest, limit = self._settings.max_wait, self._settings.retries + 1
        if seconds is None:
            seconds = min(backoff(self._pauses + 1, 2.0), longest)
        now = time.monotonic()
        self._pauses += self._until <= now
        if seconds > longest or self._pauses > limit:
            raise SourceUnavailableError(
                f"TMDB asks to wait {seconds:.0f} s, longer than tmdb.max_wait ({longest:.0f} s)"
                if seconds > longest
                else f"TMDB limits the rate of requests even after {limit} pauses",
                where=self._base,
                hint=self._progress(),
            )
        self._until = max(self._until, now + seconds)

    def _classified(
        self, tmdb_id: int, response: httpx.Response
    ) -> tuple[str, dict[str, Any] | None]:
        """The status or the fault of a response, and its record.

        Raises :class:`SourceError` for answers that no further try can change (401, 403,
        redirects, other 4xx).
        """
        code, body = response.status_code, response.content
        if code == 404:
            return "not_found", None
        if code in TRANSIENT_STATUS:
            return f"http_{code}", None
        if code != 200:
            refused = code in (401, 403)
            raise SourceError(
                f"TMDB refuses the bearer token (HTTP {code})"
                if refused
                else f"TMDB answers HTTP {code}, which a retry can't change",
                where=self._base,
                hint=f"set {TOKEN_VARIABLE} to the account's API read access token"
                if refused
                else "check tmdb.base_url",
            )
        if self._token.encode() in body:
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

    def down(self) -> SourceUnavailableError:
        """The error of a service that did not answer."""
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
