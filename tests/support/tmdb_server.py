"""A real HTTP server that answers like TMDB's `/movie/{id}` and misbehaves on request.

Import it as ``from support.tmdb_server import TmdbServer`` (pytest's ``pythonpath`` holds the
tests folder). It listens on 127.0.0.1 at a free port, in a thread with a loop of its own, and
speaks HTTP/1.1 with keep-alive by hand, because the faults that matter (a reset in the middle
of a body, a body that drips) lie below what a web framework lets one do.

    with TmdbServer(records, faults={862: [status(429, retry_after=1), reset()]}) as server:
        client = TmdbClient(TmdbSettings(base_url=server.url, token=server.token), folder)
        client.fetch(records)
        assert server.asked(862) == 3
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

TOKEN = "test-token-4f9c1d"

_ROUTE = re.compile(r"^/3/movie/(-?\d+)(?:\?(.*))?$")
_REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(frozen=True)
class Fault:
    """Fault to show one request instead of its answer; see the functions below."""

    kind: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    seconds: float = 0.0


def status(code: int, retry_after: float | str | None = None, body: bytes = b"{}") -> Fault:
    """Answer with a status; ``retry_after`` in seconds or as an HTTP date."""
    headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
    return Fault("answer", status=code, headers=headers, body=body)


def redirect(address: str) -> Fault:
    """Point to another address."""
    return Fault("answer", status=302, headers=(("Location", address),), body=b"")


def body(content: bytes | dict[str, Any]) -> Fault:
    """Answer 200 with these bytes, or this record."""
    return Fault("answer", body=content if isinstance(content, bytes) else _json(content))


def truncated() -> Fault:
    """Answer 200 with the first half of the right body, declared as if it were whole."""
    return Fault("truncated")


def reset() -> Fault:
    """Send half of the body, then reset the connection (RST, not FIN)."""
    return Fault("reset")


def hang_up() -> Fault:
    """Close the connection without an answer."""
    return Fault("hang_up")


def slow(seconds: float) -> Fault:
    """Answer rightly, but only after a while."""
    return Fault("slow", seconds=seconds)


def drip(seconds: float) -> Fault:
    """Send the right body byte by byte, with a pause before each."""
    return Fault("drip", seconds=seconds)


@dataclass(frozen=True)
class Request:
    """A line of the server's log."""

    film: int | None
    status: int
    at: float
    query: str


class TmdbServer:
    """The server; a context manager.

    Parameters
    ----------
    records
        Answers by TMDB id; any other id is 404.
    faults
        Per film, faults for its first requests, one each; then it is answered rightly.
    always
        Fault for every request that has none of its own.
    token
        The bearer token; requests without it get 401.
    latency
        Time before every answer (seconds).
    limit
        ``(count, seconds)``: from the ``count``-th request within any such span on, answer
        429 with a ``Retry-After`` of the span.
    """

    def __init__(
        self,
        records: Mapping[int, Mapping[str, Any]] | Iterable[Mapping[str, Any]],
        *,
        faults: Mapping[int, list[Fault]] | None = None,
        always: Fault | None = None,
        token: str = TOKEN,
        latency: float = 0.0,
        limit: tuple[int, float] | None = None,
    ) -> None:
        given = records.items() if isinstance(records, Mapping) else ((r["id"], r) for r in records)
        self.records = {film: _json(record) for film, record in given}
        self.faults = {film: list(plan) for film, plan in (faults or {}).items()}
        self.always = always
        self.token = token
        self.latency = latency
        self.limit = limit
        self.log: list[Request] = []
        self.max_in_flight = 0
        self.connections = 0
        self._in_flight = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._port = 0
        self._thread = threading.Thread(target=self._run, name="tmdb-server", daemon=True)

    @property
    def url(self) -> str:
        """Value for ``tmdb.base_url``."""
        return f"http://127.0.0.1:{self._port}/3"

    def asked(self, film: int) -> int:
        """Number of requests for a film."""
        return sum(request.film == film for request in self.log)

    def films(self) -> list[int | None]:
        """Films in the order asked."""
        return [request.film for request in self.log]

    def statuses(self) -> Counter[int]:
        """Answers by status (0: none was sent)."""
        return Counter(request.status for request in self.log)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10), "the test server did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=256)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self._in_flight += 1
                self.max_in_flight = max(self.max_in_flight, self._in_flight)
                try:
                    goes_on = await self._request(head.decode("latin-1"), writer)
                finally:
                    self._in_flight -= 1
                if not goes_on:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client hung up, as clients may
        except asyncio.CancelledError:
            pass  # the server is stopping
        finally:
            writer.close()

    async def _request(self, head: str, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        first, *lines = head.split("\r\n")
        path = first.split(" ")[1]
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        route = _ROUTE.match(path)
        film = int(route[1]) if route else None
        query = (route[2] or "") if route else ""
        if self.latency:
            await asyncio.sleep(self.latency)
        if headers.get("authorization") != f"Bearer {self.token}":
            return await self._answer(writer, film, query, status(401))
        plan = self.faults.get(film) if film is not None else None
        fault = plan.pop(0) if plan else self.always
        if fault is None and self.limit and self._over(*self.limit):
            fault = status(429, retry_after=self.limit[1])
        right = self.records.get(film) if film is not None else None
        if fault is not None and fault.kind != "answer":
            return await self._misbehave(writer, film, query, fault, right or b"{}" * 50)
        if fault is None:
            missing = status(404, body=b'{"success":false,"status_code":34}')
            fault = missing if right is None else Fault("answer", body=right)
        return await self._answer(writer, film, query, fault)

    async def _answer(
        self, writer: asyncio.StreamWriter, film: int | None, query: str, fault: Fault
    ) -> bool:
        content = fault.body or b""
        self._note(film, fault.status, query)
        writer.write(_head(fault.status, len(content), fault.headers) + content)
        await writer.drain()
        return True

    async def _misbehave(
        self,
        writer: asyncio.StreamWriter,
        film: int | None,
        query: str,
        fault: Fault,
        right: bytes,
    ) -> bool:
        if fault.kind == "slow":
            self._note(film, 200, query)
            await asyncio.sleep(fault.seconds)
            return await self._send(writer, right)
        if fault.kind == "truncated":
            self._note(film, 200, query)
            return await self._send(writer, right[: len(right) // 2])
        if fault.kind == "hang_up":
            self._note(film, 0, query)
            return False
        if fault.kind == "reset":
            self._note(film, 0, query)
            writer.write(_head(200, len(right), ()) + right[: len(right) // 2])
            await writer.drain()
            linger = struct.pack("ii", 1, 0)  # on, 0 s: close() sends RST
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return False
        assert fault.kind == "drip", fault.kind
        self._note(film, 200, query)
        writer.write(_head(200, len(right), ()))
        for byte in right:
            await asyncio.sleep(fault.seconds)
            writer.write(bytes([byte]))
            await writer.drain()
        return True

    async def _send(self, writer: asyncio.StreamWriter, content: bytes) -> bool:
        writer.write(_head(200, len(content), ()) + content)
        await writer.drain()
        return True

    def _over(self, count: int, seconds: float) -> bool:
        since = time.monotonic() - seconds
        return sum(r.status == 200 and r.at >= since for r in self.log[-10 * count :]) >= count

    def _note(self, film: int | None, code: int, query: str) -> None:
        self.log.append(Request(film, code, time.monotonic(), query))


def make_record(film: int, **changes: Any) -> dict[str, Any]:
    """A complete record in TMDB's shape, different for every film."""
    record: dict[str, Any] = {
        "id": film,
        "imdb_id": f"tt{film:07d}",
        "title": f"Film {film}",
        "original_title": f"Filme {film}",
        "original_language": "pt",
        "overview": f"What happens in film {film}.",
        "genres": [{"id": 18, "name": "Drama"}, {"id": 35, "name": "Comedy"}],
        "release_date": f"{1950 + film % 70}-05-17",
        "runtime": 80 + film % 60,
        "popularity": 1.5 + film % 10,
        "vote_average": 5.5,
        "vote_count": film % 1000,
        "budget": 0,
        "revenue": 1_000_000,
        "poster_path": f"/poster{film}.jpg",
        "belongs_to_collection": None,
        "keywords": {"keywords": [{"id": 1, "name": "harbour"}, {"id": 2, "name": "letters"}]},
        "credits": {
            "cast": [
                {"name": "Second Billed", "order": 1, "character": "B"},
                {"name": "First Billed", "order": 0, "character": "A"},
            ],
            "crew": [
                {"name": "Some Director", "job": "Director", "department": "Directing"},
                {"name": "Some Writer", "job": "Screenplay", "department": "Writing"},
                {"name": "Some Carpenter", "job": "Carpenter", "department": "Crew"},
            ],
        },
    }
    return record | changes


def _json(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()


def _head(code: int, length: int, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [
        f"HTTP/1.1 {code} {_REASONS.get(code, 'Status')}",
        "Content-Type: application/json;charset=utf-8",
        f"Content-Length: {length}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
