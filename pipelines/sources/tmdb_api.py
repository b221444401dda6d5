"""The live API: every wanted film asked for once, politely, resumable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx
import orjson
from pydantic import SecretStr

from pipelines.config import TmdbSettings
from pipelines.errors import (
    ConfigError,
    SourceError,
    SourceUnavailableError,
    StoreError,
    UnderstudyError,
)
from pipelines.progress import advance
from pipelines.retrying import TRANSIENT_STATUS, backoff, retry_after
from pipelines.sources.formats import values
from pipelines.sources.formats.files import open_file
from pipelines.store.files import whole_file

__all__ = ["TOKEN_VARIABLE", "FetchReport", "TmdbClient"]


#: TMDB's terms forbid keeping its content for longer than six months.
RECORD_AGE = timedelta(days=180)
#: A film that TMDB doesn't know, or answers with another one, is asked for again after this.
MISSING_AGE = timedelta(days=30)

_FORMAT = 1
_MAX_FILE = 64 << 20  # bytes
_STALE_TEMPORARY = 3600.0  # seconds
#: Kept of the hundreds of people that a record credits.
_MAX_CAST = 30
_DEPARTMENTS = frozenset({"Directing", "Writing"})

Status = Literal["found", "not_found", "another_film"]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """TMDB's answer for a film."""

    #: The id that was asked for.
    tmdb_id: int
    #: ``found``; ``not_found`` (404); ``another_film`` (the answer has another id).
    status: Status
    #: Time of the request (UTC).
    fetched_at: datetime
    #: The answer, :func:`slim`; ``None`` if not found.
    record: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """An entry, if there is a usable one; ``corrupt`` if a file is there but damaged."""

    entry: CacheEntry | None
    corrupt: bool = False


class TmdbCache:
    """A folder of ``<tmdb id>.json`` files.

    Each holds the answer and its checksum, so that a damaged file (power loss, a full disk, an
    editor) is noticed and asked for again rather than trusted. A record, and the note that there is
    none, are fresh for the two ages.
    """

    def __init__(
        self,
        folder: Path,
        *,
        record_age: timedelta = RECORD_AGE,
        missing_age: timedelta = MISSING_AGE,
    ) -> None:
        self.folder = folder
        self._record_age = record_age
        self._missing_age = missing_age

    def path(self, tmdb_id: int) -> Path:
        """Path of the film's answer."""
        return self.folder / f"{tmdb_id}.json"

    def __bool__(self) -> bool:
        """Whether any answer is kept."""
        try:
            names = [p.name for p in self.folder.iterdir()] if self.folder.exists() else []
        except OSError as error:
            raise StoreError(
                f"the TMDB cache can't be read ({error.strerror})", where=str(self.folder)
            ) from None
        return any(name[0].isdigit() and name.endswith(".json") for name in names)

    def lookup(self, tmdb_id: int) -> Lookup:
        """Return the fresh, intact answer for a film, if there is one.

        Raises :class:`StoreError` if the file is there but can't be read.
        """
        path = self.path(tmdb_id)
        try:
            if not path.exists():
                return Lookup(None)
            with open_file(path, str(path)) as file:
                content = file.read(_MAX_FILE)
        except (OSError, SourceError) as error:
            why = error.what if isinstance(error, SourceError) else error.strerror
            raise StoreError(f"the TMDB cache can't be read ({why})", where=str(path)) from None
        entry = _parse(content, tmdb_id)
        if entry is None:
            return Lookup(None, corrupt=True)
        allowed = self._record_age if entry.status == "found" else self._missing_age
        return Lookup(None if datetime.now(UTC) - entry.fetched_at > allowed else entry)

    def put(self, tmdb_id: int, status: Status, record: dict[str, Any] | None) -> CacheEntry:
        """Keep an answer: whole or not at all.

        Raises :class:`StoreError` if it can't be written (disk full, permissions); the previous
        answer is kept.
        """
        kept = slim(record) if record is not None else None
        body = orjson.dumps(kept)
        now = datetime.now(UTC)
        head = orjson.dumps(
            {
                "format": _FORMAT,
                "tmdb_id": tmdb_id,
                "status": status,
                "fetched_at": now.isoformat(timespec="seconds"),
                "sha256": hashlib.sha256(body).hexdigest(),
            }
        )
        self._write(self.path(tmdb_id), b'{"meta":' + head + b',"record":' + body + b"}\n")
        return CacheEntry(tmdb_id, status, now, kept)

    def sweep(self) -> int:
        """Remove temporary files that killed processes left more than an hour ago; how many."""
        removed = 0
        limit = time.time() - _STALE_TEMPORARY
        for path in self.folder.glob(".*.tmp") if self.folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    path.unlink()
                    removed += 1
        return removed

    def _write(self, path: Path, content: bytes) -> None:
        try:
            with whole_file(path) as file:
                file.write(content)
        except OSError as error:
            raise StoreError(
                f"the TMDB cache can't be written ({error.strerror})",
                where=str(path),
                hint="what was cached before is kept; free space and run again to continue",
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
    kept = dict(credit)
    if isinstance(cast, list) and all(
        isinstance(p, dict) and isinstance(p.get("order"), int) for p in cast
    ):
        kept["cast"] = sorted(cast, key=lambda p: p["order"])[:_MAX_CAST]
    if isinstance(crew, list) and all(isinstance(p, dict) for p in crew):
        kept["crew"] = [
            p for p in crew if p.get("department") in _DEPARTMENTS or p.get("job") == "Director"
        ]
    return {**record, "credits": kept}


def _parse(content: bytes, tmdb_id: int) -> CacheEntry | None:
    """Return the entry in a file; ``None`` if it isn't what :meth:`TmdbCache.put` wrote."""
    try:
        parsed = orjson.loads(content)
        meta, record = parsed["meta"], parsed["record"]
        intact = (
            meta["format"] == _FORMAT
            and meta["tmdb_id"] == tmdb_id
            and meta["status"] in ("found", "not_found", "another_film")
            and (record is None) == (meta["status"] == "not_found")
            and meta["sha256"] == hashlib.sha256(orjson.dumps(record)).hexdigest()
        )
        fetched_at = datetime.fromisoformat(meta["fetched_at"])
    except (ValueError, TypeError, KeyError, IndexError):
        return None
    if not intact or fetched_at.tzinfo is None:
        return None
    return CacheEntry(tmdb_id, meta["status"], fetched_at, record)


class CoolDown:
    """Cool-down: holds all workers back while the server asks for fewer requests.

    A pause longer than ``max_wait`` (seconds), or one more than ``max_pauses`` in a row without an
    answer between them, ends the fetch; ``describe`` returns the progress, for the error's hint.
    """

    def __init__(self, max_wait: float, max_pauses: int, describe: Callable[[], str]) -> None:
        self._max_wait = max_wait
        self._max_pauses = max_pauses
        self._describe = describe
        self._until = 0.0
        self._in_a_row = 0
        self.paused = 0.0

    async def wait(self) -> None:
        """Return once no pause is in force."""
        loop = asyncio.get_running_loop()
        while (left := self._until - loop.time()) > 0:
            await asyncio.sleep(left)

    def answered(self) -> None:
        """Note that the server took a request."""
        self._in_a_row = 0

    def pause(self, seconds: float, where: str) -> None:
        """Hold all workers for ``seconds`` from now; overlapping pauses count once.

        Raises :class:`SourceUnavailableError` if the pause is too long, or one too many in a row.
        """
        if seconds > self._max_wait:
            raise SourceUnavailableError(
                f"TMDB asks to wait {seconds:.0f} s, longer than tmdb.max_wait "
                f"({self._max_wait:.0f} s)",
                where=where,
                hint=self._describe(),
            )
        now = asyncio.get_running_loop().time()
        if self._until <= now:
            self._in_a_row += 1
            if self._in_a_row > self._max_pauses:
                raise SourceUnavailableError(
                    f"TMDB limits the rate of requests even after {self._max_pauses} pauses",
                    where=where,
                    hint=self._describe(),
                )
        until = max(self._until, now + seconds)
        self.paused += until - max(self._until, now)
        self._until = until


#: The environment variable to put the bearer token into.
TOKEN_VARIABLE = "UNDERSTUDY_TMDB__TOKEN"  # noqa: S105 - a name, not a secret
#: Largest answer that is read (bytes); the largest real ones have some 300 KB.
MAX_BODY = 8 << 20
#: Films in a row without an answer after which the service counts as down.
MAX_FAILURES_IN_A_ROW = 20
#: Share of asked films without an answer (and at least as many as above) that stops the run.
MAX_FAILED_SHARE = 0.05

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(slots=True)
class FetchReport:
    """Result of a fetch; counts are films unless stated."""

    #: Films asked about, each once.
    wanted: int = 0
    #: Films of these that were up to date on disk (count).
    cached: int = 0
    #: New answers by status.
    found: int = 0
    not_found: int = 0
    another_film: int = 0
    #: Films without an answer after all tries, with the last fault (``timeout``, ``connection``,
    #: ``http_503``, ``bad_json``, ``too_large``); asked again in the next run.
    failed: dict[int, str] = field(default_factory=dict)
    #: Films whose file on disk was damaged; asked for again.
    corrupt: list[int] = field(default_factory=list)
    #: Requests sent, and how many of them were further tries.
    requests: int = 0
    retries: int = 0
    #: Time that all workers waited because the server asked to (seconds).
    paused: float = 0.0

    @property
    def settled(self) -> int:
        """Films with an answer on disk."""
        return self.cached + self.found + self.not_found + self.another_film


@dataclass(frozen=True, slots=True)
class _Answer:
    """Result of an attempt: a settled film, or the reason that there is none yet."""

    kind: Literal["found", "not_found", "another_film", "throttled", "transient", "unusable"]
    record: dict[str, Any] | None = None
    fault: str = ""
    wait: float | None = None


class TmdbClient:
    """Fetches film records into a cache.

    ``transport`` replaces the network; ``backoff`` is the first pause between two tries of one film
    (seconds), doubled each time.

    Raises ConfigError if the address is not a URL, or would send the token unencrypted over a
    network; or if the token has characters that no header can carry.
    """

    def __init__(
        self,
        settings: TmdbSettings,
        cache: TmdbCache | Path,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        backoff: float = 0.5,
    ) -> None:
        self._settings = settings
        self.cache = cache if isinstance(cache, TmdbCache) else TmdbCache(cache)
        self._transport = transport
        self._backoff = backoff
        self._base = _checked_address(settings.base_url)
        self._token = _checked_token(settings)

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
        return asyncio.run(self.fetch_async(tmdb_ids))

    async def fetch_async(self, tmdb_ids: Iterable[int]) -> FetchReport:
        """:meth:`fetch`, inside a running event loop."""
        report = FetchReport()
        pending = self._pending(tmdb_ids, report)
        if pending:
            await _Fetch(self, pending, report).run()
        advance("tmdb", report.settled + len(report.failed), report.wanted)
        return report

    def entries(self, tmdb_ids: Iterable[int]) -> Iterator[tuple[int, CacheEntry | None]]:
        """Yield each film's cached answer in the order asked; ``None`` where there is none."""
        for tmdb_id in tmdb_ids:
            yield tmdb_id, self.cache.lookup(tmdb_id).entry

    def _pending(self, tmdb_ids: Iterable[int], report: FetchReport) -> list[int]:
        self.cache.sweep()
        pending = []
        for tmdb_id in dict.fromkeys(tmdb_ids):
            report.wanted += 1
            found = self.cache.lookup(tmdb_id)
            if found.corrupt:
                report.corrupt.append(tmdb_id)
            if found.entry is None:
                pending.append(tmdb_id)
            else:
                report.cached += 1
        return pending

    def _connect(self) -> httpx.AsyncClient:
        if self._token is None:
            raise SourceError(
                "the TMDB API needs a bearer token",
                where=self._base,
                hint=f"set {TOKEN_VARIABLE} in the environment, or put a dump into tmdb/",
            )
        size = self._settings.concurrency
        return httpx.AsyncClient(
            headers={
                "Authorization": f"Bearer {self._token.get_secret_value()}",
                "Accept": "application/json",
                "User-Agent": "understudy",
            },
            timeout=self._settings.timeout,
            limits=httpx.Limits(max_connections=size, max_keepalive_connections=size),
            transport=self._transport,
            follow_redirects=False,  # the token goes to no other host
        )

    async def _ask(self, connection: httpx.AsyncClient, tmdb_id: int) -> _Answer:
        """Ask once.

        Raises :class:`SourceError`: for answers that no further try can change (401, 403,
        redirects, other 4xx).
        """
        try:
            # httpx limits each read; a server that drips bytes would never reach it.
            async with (
                asyncio.timeout(self._settings.timeout),
                connection.stream(
                    "GET",
                    f"{self._base}/movie/{tmdb_id}",
                    params={"append_to_response": "credits,keywords", "language": "en-US"},
                ) as response,
            ):
                status, wait = response.status_code, response.headers.get("Retry-After")
                body = await _read(response)
        except (TimeoutError, httpx.TimeoutException):
            return _Answer("transient", fault="timeout")
        except httpx.RequestError:
            return _Answer("transient", fault="connection")
        if status == 200:
            return self._judge(tmdb_id, body)
        if status == 404:
            return _Answer("not_found")
        if status == 429 or (status == 503 and wait is not None):
            return _Answer("throttled", wait=retry_after(wait), fault=f"http_{status}")
        if status in TRANSIENT_STATUS:
            return _Answer("transient", fault=f"http_{status}")
        raise self._refusal(status)

    def _judge(self, tmdb_id: int, body: bytes | None) -> _Answer:
        if body is None:
            return _Answer("unusable", fault="too_large")
        assert self._token is not None
        if self._token.get_secret_value().encode() in body:
            # A debugging proxy, or worse: nothing of it may reach a file.
            raise SourceError(
                "the response contains the bearer token; it was discarded", where=self._base
            )
        try:
            record = orjson.loads(body)
        except orjson.JSONDecodeError:
            return _Answer("transient", fault="bad_json")  # cut off, or a proxy's error page
        try:
            record_id = values.whole_number(record["id"])
        except (KeyError, TypeError, values.UnreadableError):
            return _Answer("transient", fault="bad_json")
        return _Answer("found" if record_id == tmdb_id else "another_film", record=record)

    def _refusal(self, status: int) -> SourceError:
        if status in (401, 403):
            return SourceError(
                f"TMDB refuses the bearer token (HTTP {status})",
                where=self._base,
                hint=f"set {TOKEN_VARIABLE} to the account's API read access token",
            )
        return SourceError(
            f"TMDB answers HTTP {status}, which a retry can't change",
            where=self._base,
            hint="check tmdb.base_url",
        )


class _Fetch:
    """A run over the pending films: a fixed number of workers share one iterator."""

    def __init__(self, client: TmdbClient, pending: list[int], report: FetchReport) -> None:
        self._client = client
        self._settings = client._settings
        self._pending = pending
        self._report = report
        self._cool_down = CoolDown(
            self._settings.max_wait, self._settings.retries + 1, self._resume_hint
        )
        self._failed_in_a_row = 0
        self._allowed = max(MAX_FAILURES_IN_A_ROW, MAX_FAILED_SHARE * len(pending))

    async def run(self) -> None:
        films = iter(self._pending)
        async with self._client._connect() as connection:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._settings.concurrency, len(self._pending))):
                        group.create_task(self._work(connection, films))
            except BaseExceptionGroup as faults:
                raise _first(faults) from None
            finally:
                self._report.paused = round(self._cool_down.paused, 3)
        answered = self._report.settled - self._report.cached
        if self._report.failed and not answered:
            raise self._down()

    async def _work(self, connection: httpx.AsyncClient, films: Iterator[int]) -> None:
        for tmdb_id in films:
            answer = await self._settle(connection, tmdb_id)
            if answer.kind in ("transient", "unusable"):
                self._fail(tmdb_id, answer.fault)
            else:
                # In a thread: an fsync must not hold the other requests. A cancelled worker
                # leaves the thread to finish, so a file is whole or not there.
                status: Status = answer.kind  # type: ignore[assignment]
                await asyncio.to_thread(self._client.cache.put, tmdb_id, status, answer.record)
                setattr(self._report, status, getattr(self._report, status) + 1)
                self._failed_in_a_row = 0
            done = self._report.settled + len(self._report.failed)
            advance("tmdb", done, self._report.wanted)

    async def _settle(self, connection: httpx.AsyncClient, tmdb_id: int) -> _Answer:
        """Ask until there is an answer or the tries are used up; pauses use up none."""
        tries = 0
        while True:
            await self._cool_down.wait()
            self._report.requests += 1
            answer = await self._client._ask(connection, tmdb_id)
            if answer.kind == "throttled":
                pause = answer.wait
                if pause is None:
                    pause = min(backoff(tries + 1, 2.0), self._settings.max_wait)
                self._cool_down.pause(pause, self._client._base)
            elif answer.kind == "transient":
                tries += 1
                if tries > self._settings.retries:
                    return answer
                await asyncio.sleep(backoff(tries, self._client._backoff))
            else:
                self._cool_down.answered()
                return answer
            self._report.retries += 1

    def _fail(self, tmdb_id: int, fault: str) -> None:
        self._report.failed[tmdb_id] = fault
        self._failed_in_a_row += 1
        if (
            self._failed_in_a_row >= MAX_FAILURES_IN_A_ROW
            or len(self._report.failed) > self._allowed
        ):
            raise self._down()

    def _down(self) -> SourceUnavailableError:
        last = next(reversed(self._report.failed.values()))
        return SourceUnavailableError(
            f"TMDB did not answer for {len(self._report.failed)} films (last error: {last})",
            where=self._client._base,
            hint=self._resume_hint(),
            details={"failed": len(self._report.failed), "cached": self._report.settled},
        )

    def _resume_hint(self) -> str:
        return (
            f"{self._report.settled} of {self._report.wanted} films are cached; "
            "run again to continue"
        )


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    """A fault to report of several workers': a permanent one, if there is any."""
    ours = [f for f in faults.exceptions if isinstance(f, UnderstudyError)]
    return next((f for f in ours if f.permanent), faults.exceptions[0])


async def _read(response: httpx.Response) -> bytes | None:
    """Return the body, or ``None`` if it is larger than is read."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_BODY:
            return None
        parts.append(part)
    return b"".join(parts)


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


def _checked_token(settings: TmdbSettings) -> SecretStr | None:
    token = settings.token.get_secret_value().strip() if settings.token else ""
    if token and not re.fullmatch(r"[\x21-\x7e]+", token):
        # Checked here because the HTTP library's own message would show the value.
        raise ConfigError("the TMDB token contains invalid characters", where=TOKEN_VARIABLE)
    return SecretStr(token) if token else None
