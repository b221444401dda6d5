"""A server that speaks the Hugging Face hub's endpoints: model info, and files by redirect."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["COMMIT", "HubServer"]

#: The commit that every revision of every repository resolves to.
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    """Serves a folder as the repository ``maker/model``.

    Large files (safetensors) are answered with a redirect to another path, as the hub redirects
    to its file servers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.status = 0
        #: (path, Authorization header) of every request.
        self.requests: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.path, self.headers.get("Authorization", "")))
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        if self.status:
            to.send_error(self.status)
            return
        path = to.path.partition("?")[0]
        if path.startswith("/api/models/maker/model/revision/"):
            self._send(to, json.dumps(self._info()).encode())
            return
        if path.startswith("/files/"):
            self._send(to, (self.folder / path.removeprefix("/files/")).read_bytes())
            return
        file = self.folder / path.rpartition("/")[2]
        if not path.startswith(f"/maker/model/resolve/{COMMIT}/") or not file.is_file():
            to.send_error(404)
        elif file.suffix == ".safetensors":
            to.send_response(302)
            to.send_header("Location", f"/files/{file.name}")
            to.send_header("Content-Length", "0")
            to.end_headers()
        else:
            self._send(to, file.read_bytes())

    def _info(self) -> dict[str, Any]:
        siblings = []
        for file in sorted(self.folder.iterdir()):
            entry: dict[str, Any] = {"rfilename": file.name, "size": file.stat().st_size}
            if file.suffix in {".safetensors", ".bin"}:
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": entry["size"], "pointerSize": 134}
            siblings.append(entry)
        return {
            "id": "maker/model",
            "sha": COMMIT,
            "siblings": siblings,
            "cardData": {"license": "apache-2.0"},
        }

    def _send(self, to: BaseHTTPRequestHandler, body: bytes) -> None:
        to.send_response(200)
        to.send_header("Content-Type", "application/json")
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)
