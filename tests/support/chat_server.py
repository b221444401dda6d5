"""A chat endpoint without a model, in this process: a function says what it replies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines.openai import OpenAIEngine

__all__ = ["ChatServer", "RefusalError", "reply"]

Body = dict[str, Any]


class RefusalError(Exception):
    """A request that the server refuses with 400 and these words."""


def reply(content: Any, finish: str = "stop", **message: Any) -> Body:
    """A choice with a message; ``logprobs`` belongs to the choice."""
    logprobs = message.pop("logprobs", None)
    message |= {"role": "assistant", "content": content}
    return {"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}


class ChatServer:
    """Serves ``answer(body)``, a choice; ``bodies`` are the requests so far."""

    def __init__(self, answer: Callable[[Body], Body]) -> None:
        self.bodies: list[Body] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

            def do_GET(self) -> None:
                known = self.path == "/v1/models"
                self._send(200 if known else 404, {"data": [{"id": "qwen3:8b"}]} if known else {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/v1/chat/completions":
                    return self._send(404, {})
                outer.bodies.append(body)
                try:
                    choice = answer(body)
                except RefusalError as refusal:
                    return self._send(400, {"error": {"message": str(refusal)}})
                usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
                return self._send(200, {"choices": [choice], "usage": usage})

            def _send(self, code: int, body: Body) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def connect(self, *, draws: int = 0, **serving: Any) -> OpenAIEngine:
        """An engine on the server."""
        return OpenAIEngine(
            EngineSettings(kind="openai", model="qwen3:8b", draws=draws),
            ServingSettings(base_url=self.url, **({"retries": 1} | serving)),
            pause=0.01,
        )
