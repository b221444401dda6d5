"""An object store for tests: moto's S3 as a process of its own, and a proxy that injects faults."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = [
    "BUCKET",
    "SECRET",
    "TOKEN",
    "FaultProxy",
    "Request",
    "error_answer",
    "objects_below",
    "s3_server",
    "use",
]

BUCKET = "understudy-tests"
SECRET = "wJalrXUtnFEMI-not-a-secret"
TOKEN = "FwoGZXIvYXdzE-not-a-token"


def use(endpoint: str, setenv: Callable[[str, str], object]) -> None:
    """Set the ``AWS_*`` variables of an endpoint."""
    setenv("AWS_ENDPOINT_URL", endpoint)
    setenv("AWS_ACCESS_KEY_ID", "AKIDTESTS")
    setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    setenv("AWS_SESSION_TOKEN", TOKEN)
    setenv("AWS_REGION", "us-east-1")


@contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a server with an empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _wait_for(port, process)
        create = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(create).read()
        yield endpoint
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 500
    while time.monotonic() < deadline:
        assert process.poll() is None, "moto did not start"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("moto did not start")


@dataclass
class Request:
    """A request to the object store, which a fault may change."""

    method: str
    path: str
    headers: dict[str, str]
    #: Answer in place of the server's: status and body.
    answer: tuple[int, bytes] | None = None
    #: Whether the server gets the request, but the client no answer.
    lose_answer: bool = False
    #: Close the connection without passing the request on.
    refuse: bool = False


@dataclass
class FaultProxy:
    """Proxy between client and server; ``fault`` sees each request first."""

    server: str
    fault: Callable[[Request], None] = lambda request: None
    requests: list[Request] = field(default_factory=list)
    #: Bytes that the server's answers held.
    received: int = 0
    endpoint: str = ""

    @contextmanager
    def running(self) -> Iterator[FaultProxy]:
        """Serve on a free port."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self
        host = re.sub("^http://", "", self.server)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, dict(self.headers.items()))
                proxy.requests.append(request)
                proxy.fault(request)
                if request.answer is not None:
                    self._send(request.answer[0], {}, request.answer[1])
                    return
                if request.refuse:
                    self._hang_up()
                    return
                connection = http.client.HTTPConnection(host, timeout=60)
                connection.request(request.method, request.path, body, request.headers)
                answer = connection.getresponse()
                content = answer.read()
                proxy.received += len(content)
                connection.close()
                if request.lose_answer:
                    self._hang_up()
                    return
                self._send(answer.status, dict(answer.getheaders()), content)

            def _hang_up(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response(status)
                length = headers.pop("Content-Length", str(len(content)))
                for name, value in headers.items():
                    if name not in {"Connection", "Transfer-Encoding", "Server", "Date"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Keep the output of tests short."""

        return Handler


def error_answer(status: int, code: str) -> tuple[int, bytes]:
    """An error as S3 writes it; that of an expired token repeats the token."""
    text = f"<Error><Code>{code}</Code><Message>no</Message><Token-0>{TOKEN}</Token-0></Error>"
    return status, text.encode()


def objects_below(endpoint: str, prefix: str) -> list[str]:
    """Names of all objects below a prefix, as the server lists them."""
    with urllib.request.urlopen(f"{endpoint}/{BUCKET}?list-type=2&prefix={prefix}") as answer:
        found = re.findall(r"<Key>([^<]+)</Key>", answer.read().decode())
    return sorted(name.removeprefix(f"{prefix}/") for name in found)
