"""The engine that asks a server: requests drawn, gathered into batches, sent, answered."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from anyio.from_thread import start_blocking_portal

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import Answer, Choice, EngineIdentity, Request
from pipelines.llm.engines.constraints import request_fault
from pipelines.llm.engines.openai._answers import answer
from pipelines.llm.engines.openai._client import NOT_ASKED, Client
from pipelines.llm.engines.openai._server import Server, drawn_seed

_log = logging.getLogger("pipelines.llm.engines.openai")

#: Most requests of one group in one batch.
BATCH = 64

#: Answers of one batch, and the error that ends the run.
_Done = tuple[list[Answer], Exception | None]


class OpenAIEngine:
    """Engine of any OpenAI-compatible server, in two ways.

    A server that takes prompts as token ids and gives the probabilities of chosen tokens (vLLM) is
    asked at the completions endpoint, with grammars. Every other one is asked at the chat endpoint:
    choices are looked for in its list of probable tokens, or estimated from `engine.draws` answers
    drawn, or `invalid`. Grammars are asked for as forms (JSON under a schema, JSON, lines with
    labels) and checked; regular expressions are checked only.
    At start-up it probes what the server honours and reports it (:meth:`metadata` and the log).
    The key comes from `serving.api_key`, which only the environment sets. ``pause`` is the first
    pause between two tries of a request (seconds), doubled each time.

    Raises
    ------
    ConfigError
        If a setting can't be used: no model, an address that is none, a key over plain HTTP, a
        tokenizer that is not the model's, a model that the server has not.
    EngineError
        If the server can't be reached, refuses the key, or answers no request.
    """

    def __init__(
        self, engine: EngineSettings, serving: ServingSettings, *, pause: float = 0.5
    ) -> None:
        if not engine.model:
            raise ConfigError(
                "the openai engine needs a model", hint="set engine.model to its name there"
            )
        self._engine, self._serving = engine, serving
        self._closed = False
        with ExitStack() as opened:
            # An event loop in a daemon thread: the methods of an engine are plain calls.
            self._portal = opened.enter_context(start_blocking_portal(name="understudy-openai"))
            self._server = self._portal.call(self._connect, pause)
            self._opened = opened.pop_all()
        server = self._server
        _log.log(
            logging.INFO if server.reading == "token_ids" else logging.WARNING,
            "%s at %s (%s %s): distributions of choices: %s; constraints: %s",
            server.client.model,
            server.client.address,
            server.kind,
            server.version or "of unknown version",
            server.distributions,
            server.constraints,
        )
        for name, outcome in sorted(server.probed.items()):
            _log.info("probe %s: %s", name, outcome)

    async def _connect(self, pause: float) -> Server:
        exact = self._engine.require_model == "exact"
        client = Client(self._serving, pause=pause, exact=exact)
        server = Server(client, self._engine, self._serving)
        try:
            await server.probe()
        except BaseException:
            await client.close()
            raise
        return server

    @classmethod
    def open(cls, engine: EngineSettings, serving: ServingSettings) -> OpenAIEngine:
        """An engine that is connected and has probed its server."""
        return cls(engine, serving)

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._server.client.model!r} at {self._server.client.address!r})"

    @property
    def identity(self) -> EngineIdentity:
        """Model, server and version, and how choices are read; not where the server is."""
        server, model = self._server, self._engine.model
        estimate = f"draws {server.draws}"
        reading = {
            "ranks": f"ranks {server.ranks}" + (f", else {estimate}" if server.draws else ""),
            "draws": estimate,
        }.get(server.reading, server.reading)
        version = " ".join(filter(None, (server.kind, server.version)))
        if model.startswith(("/", ".", "~")):
            model = model.rstrip("/").rsplit("/", 1)[-1]
        return EngineIdentity(
            engine="openai",
            engine_version=f"{version}; choices by {reading}",
            model=model,
            revision=self._engine.revision,
            tokenizer=server.tokens.digest if server.tokens else "",
            dtype="" if self._engine.dtype == "auto" else self._engine.dtype,
            quantisation=self._engine.quantisation,
        )

    def metadata(self) -> dict[str, Any]:
        """Server, what it honours, what was spent; JSON-ready, without secrets."""
        client = self._server.client
        return {
            "device": "remote",
            "base_url": client.address,
            "window": self._serving.window,
            "concurrency": {"limit": client.limiter.limit, "cuts": client.limiter.cuts},
            "http_requests": client.sent,
            "retries": client.retried,
            "paused_seconds": round(client.limiter.paused, 3),
            "spent": client.budget.metadata(),
            **self._server.metadata(),
        }

    def close(self) -> None:
        """Cancel what is in flight and close the connections."""
        if not self._closed:
            self._closed = True
            self._portal.call(self._server.client.close)
            self._portal.call(self._portal.stop, True)
            self._opened.close()

    def __enter__(self) -> OpenAIEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer per request, in completion order; see :meth:`Engine.submit`.

        Consecutive requests of one group, with the same options or the same way of drawing,
        share an HTTP request of vLLM.

        Raises EngineError if it is closed, the server is dead, the budget spent, or a wait too
        long.
        """
        if self._closed:
            raise EngineError("the engine is closed", where=f"openai:{self._engine.model}")
        return self._answers(iter(requests))

    def _answers(self, requests: Iterator[Request]) -> Iterator[Answer]:
        """Draw requests in the caller's thread and have them answered in the engine's."""
        done: queue.SimpleQueue[Future[_Done]] = queue.SimpleQueue()
        flying: set[Future[_Done]] = set()
        batch: list[Request] = []  # consecutive requests that can share an HTTP request
        key: Any = None
        held, more = 0, True  # requests that are drawn and not answered; whether there are more

        def send() -> None:
            if batch:
                if self._closed:
                    raise _closed()
                future = self._portal.start_task_soon(self._serve, [*batch])
                flying.add(future)
                future.add_done_callback(done.put)
                batch.clear()

        def receive() -> _Done:
            future = done.get()
            flying.discard(future)
            answers, error = ([], None) if future.cancelled() else future.result()
            return answers, _closed() if self._closed else error

        try:
            while more or held:
                if more and held < self._serving.window:
                    request = next(requests, None)
                    if request is None:
                        more = False
                        continue
                    if fault := request_fault(request, images=True):
                        yield Answer(request, "invalid", detail=fault)
                        continue
                    held += 1
                    before, key = key, self._batch_key(request)
                    if key is None or key != before or len(batch) >= BATCH:
                        send()
                    batch.append(request)
                    if done.empty():
                        continue
                elif not more or not flying:
                    send()
                answers, error = receive()
                held -= len(answers)
                yield from answers
                if error is not None:
                    # If only the budget is spent, requests in flight are still answered.
                    over_budget = error is self._server.client.over_budget
                    while flying and (over_budget or not done.empty()):
                        yield from receive()[0]
                    raise error
        finally:
            for future in tuple(flying):
                future.cancel()

    def _batch_key(self, request: Request) -> Any:
        """Properties that requests of one HTTP request have in common; None: nothing can."""
        sampling, constraint = request.sampling, request.constraint
        if not self._server.takes_ids(request):
            return None
        if isinstance(constraint, Choice):
            return ("choice", request.group, constraint)
        if request.group is None:
            return None
        seed = drawn_seed(request.seed, request.replicate) if sampling.temperature > 0 else 0
        return ("text", request.group, constraint, sampling, seed)

    async def _serve(self, requests: list[Request]) -> _Done:
        """Answer a batch, in the thread of the event loop."""
        try:
            answers = await answer(self._server, requests)
        except Exception as error:  # noqa: BLE001 (the caller's thread raises it)
            return [], error
        answered = [a for a in answers if a.detail != NOT_ASKED.detail]
        over = self._server.client.over_budget if len(answered) < len(answers) else None
        return answered, over


def _closed() -> EngineError:
    return EngineError("the engine was closed while in use", hint="open it again")
