"""A real HTTP server with OpenAI's interface over a tiny real model, which misbehaves on request.

Import it as ``from support.llm_server import LlmServer``. It listens on 127.0.0.1 at a free
port, in a thread with a loop of its own, and speaks HTTP/1.1 with keep-alive by hand, because
the faults that matter (a reset inside a body, a body that drips) lie below what a web framework
lets one do.

    with LlmServer(folder, "vllm") as server:
        engine = OpenAIEngine(EngineSettings(kind="openai", model=server.name), serving)
        server.break_next(status(429, retry_after=0.1), reset())
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.llm_api import KINDS, NAME, Api, Kind, RefusedError
from support.llm_faults import Fault, status
from support.llm_model import plain_model

__all__ = ["Entry", "LlmServer", "self_signed"]

Body = dict[str, Any]
_TLS_HANDSHAKE = b"\x16"
_MODEL_PATHS = ("/v1/completions", "/v1/chat/completions")


@dataclass(frozen=True)
class Entry:
    """A line of the server's log; status 0: nothing was answered."""

    path: str
    body: Body
    status: int
    at: float
    headers: dict[str, str]


class LlmServer:
    """The server; a context manager.

    Parameters
    ----------
    folder
        The checkpoint that answers.
    kind
        Which server to be, by name or with fields switched off.
    key
        The key that requests must bring; None asks for none.
    latency
        Time before every answer of the model (seconds).
    most
        Requests to the model at a time; more are answered 429.
    certificate
        Files of a certificate and its key (PEM), to speak TLS.
    name
        Of the model.
    port
        Where it listens; 0: at a free port.
    """

    def __init__(
        self,
        folder: Path,
        kind: str | Kind = "vllm",
        *,
        key: str | None = None,
        latency: float = 0.0,
        most: int | None = None,
        certificate: tuple[Path, Path] | None = None,
        name: str = NAME,
        port: int = 0,
    ) -> None:
        self.api = Api(KINDS[kind] if isinstance(kind, str) else kind, plain_model(folder), name)
        self.model = self.api.model
        self.key = key
        self.latency = latency
        self.most = most
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*certificate)
        self.name = name
        self.log: list[Entry] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self._next: list[Fault | None] = []
        self._where: list[tuple[Callable[[Body], bool], list[Fault]]] = []
        self.always: Fault | None = None
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._port = port
        self._thread = threading.Thread(target=self._run, name="llm-server", daemon=True)

    @property
    def url(self) -> str:
        """Value for ``serving.base_url``."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}/v1"

    def break_next(self, *faults: Fault | None) -> None:
        """Do this with the next requests to the model, one each (None: answer it rightly)."""
        self._next = list(faults)

    def break_where(self, test: Callable[[Body], bool] | str, *faults: Fault) -> None:
        """Do this with requests whose body passes a test, or has a text in it."""
        chosen = (lambda body: test in json.dumps(body)) if isinstance(test, str) else test
        self._where.append((chosen, list(faults)))

    def asked(self, path: str = "") -> list[Entry]:
        """Requests to the model, or to a path, in order."""
        return [e for e in self.log if (e.path == path if path else e.path in _MODEL_PATHS)]

    def stop(self) -> None:
        """Go away in the middle of everything."""
        if self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

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
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(
            self._connection, "127.0.0.1", self._port, backlog=256, ssl=self._tls
        )
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if (begin := await reader.readexactly(1)) == _TLS_HANDSHAKE:
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return
            while head := begin + await reader.readuntil(b"\r\n\r\n"):
                begin = b""
                first, *lines = head.decode("latin-1").strip().split("\r\n")
                method, path, _ = first.split(" ")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                body = json.loads(content) if content else {}
                if not await self._request(method, path, headers, body, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client hung up, as clients may
        except asyncio.CancelledError:
            pass  # the server is stopping
        finally:
            writer.close()

    async def _request(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: Body,
        writer: asyncio.StreamWriter,
    ) -> bool:
        to_model = path in _MODEL_PATHS
        self.in_flight += to_model
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            fault = self._refusal(headers, to_model) or (self._fault(body) if to_model else None)
            if fault is not None and fault.kind == "answer":
                return await self._answer(path, headers, body, fault, writer)
            if to_model and self.latency:
                await asyncio.sleep(self.latency)
            right, code = self._right(method, path, body)
            if fault is None:
                made = Fault("answer", status=code, body=json.dumps(right).encode())
                return await self._answer(path, headers, body, made, writer)
            if fault.kind == "edit" and fault.change is not None:
                made = Fault("answer", body=json.dumps(fault.change(right)).encode())
                return await self._answer(path, headers, body, made, writer)
            self._note(path, headers, body, 0)
            return await _misbehave(fault, json.dumps(right).encode(), writer)
        finally:
            self.in_flight -= to_model

    def _refusal(self, headers: dict[str, str], to_model: bool) -> Fault | None:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            given = headers.get("authorization", "")
            return status(401, message=f"Incorrect API key provided: {given}")
        if to_model and self.most is not None and self.in_flight > self.most:
            return status(429, retry_after=0.02)
        return None

    def _fault(self, body: Body) -> Fault | None:
        for test, faults in self._where:
            if faults and test(body):
                return faults.pop(0)
        return self._next.pop(0) if self._next else self.always

    def _right(self, method: str, path: str, body: Body) -> tuple[Body, int]:
        try:
            return (self.api.get(path) if method == "GET" else self.api.post(path, body)), 200
        except RefusedError as refusal:
            return {"error": {"message": str(refusal), "type": "invalid"}}, refusal.code

    async def _answer(
        self,
        path: str,
        headers: dict[str, str],
        body: Body,
        fault: Fault,
        writer: asyncio.StreamWriter,
    ) -> bool:
        self._note(path, headers, body, fault.status)
        writer.write(_head(fault, len(fault.body)) + fault.body)
        await writer.drain()
        return True

    def _note(self, path: str, headers: dict[str, str], body: Body, code: int) -> None:
        self.log.append(Entry(path, body, code, time.monotonic(), headers))


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1; files of the certificate and its key (PEM)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "server.pem", folder / "server.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private


async def _misbehave(fault: Fault, right: bytes, writer: asyncio.StreamWriter) -> bool:
    whole = Fault("answer")
    if fault.kind == "hang_up":
        return False
    if fault.kind == "slow":
        await asyncio.sleep(fault.seconds)
        writer.write(_head(whole, len(right)) + right)
        await writer.drain()
        return True
    if fault.kind == "drip":
        writer.write(_head(whole, len(right)))
        for byte in right:
            await asyncio.sleep(fault.seconds)
            writer.write(bytes([byte]))
            await writer.drain()
        return True
    writer.write(_head(whole, len(right)) + right[: len(right) // 2])
    await writer.drain()
    if fault.kind == "reset":
        linger = struct.pack("ii", 1, 0)  # on, 0 s: close() sends RST
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        return False
    assert fault.kind == "truncated", fault.kind
    return False


def _head(fault: Fault, length: int) -> bytes:
    lines = [
        f"HTTP/1.1 {fault.status} Status",
        f"Content-Type: {fault.content_type}",
        f"Content-Length: {length}",
        *(f"{name}: {value}" for name, value in fault.headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
