"""The engine that asks a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import Answer, EngineIdentity, Request
from pipelines.llm.engines.openai._address import open_address
from pipelines.llm.engines.openai._budget import Budget
from pipelines.llm.engines.openai._capabilities import Capabilities
from pipelines.llm.engines.openai._client import Client
from pipelines.llm.engines.openai._http import Connection
from pipelines.llm.engines.openai._loop import LoopThread
from pipelines.llm.engines.openai._probe import CapabilityProbe, find_server
from pipelines.llm.engines.openai._run import Run

__all__ = ["OpenAIEngine"]

_log = logging.getLogger("pipelines.llm.engines.openai")


class OpenAIEngine:
    """Asks any OpenAI-compatible server: vLLM's, llama.cpp's, Ollama, a hosted one.

    At start-up it probes what the server really honours and says so (:meth:`facts` and the
    log). Choices are read from the server's probabilities; where it shows none they are answered
    `invalid`, or estimated from `engine.draws` answers drawn.

    Parameters
    ----------
    engine, serving
        The settings. The key comes from `serving.api_key`, which only the environment sets.
    pause
        First pause between two tries of a request (seconds); doubled each time.

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
        self._engine = engine
        self._serving = serving
        self._address = open_address(serving)
        self._budget = Budget(serving)
        self._can = Capabilities()
        self._closed = False
        self._loop = LoopThread("understudy-openai")
        try:
            self._client, self._probe = self._loop.run(self._connect(pause))
        except BaseException:
            self._loop.stop()
            raise
        self._say()

    @classmethod
    def open(cls, engine: EngineSettings, serving: ServingSettings) -> OpenAIEngine:
        """An engine that is connected and has probed its server."""
        return cls(engine, serving)

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._can.model!r} at {self._address.api!r})"

    @property
    def identity(self) -> EngineIdentity:
        """Model, server and version, and how choices are read; not where the server is."""
        can = self._can
        reading = can.reading if can.reading != "ranks" else f"ranks {can.ranks}"
        reading = f"draws {can.draws}" if can.draws else reading
        version = " ".join(filter(None, (can.server, can.version)))
        return EngineIdentity(
            engine="openai",
            engine_version=f"{version}; choices by {reading}",
            model=_public(self._engine.model),
            revision=self._engine.revision,
            tokenizer=can.tokens.digest if can.tokens else "",
            dtype="" if self._engine.dtype == "auto" else self._engine.dtype,
            quantisation=self._engine.quantisation,
        )

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer per request, in completion order; see :meth:`Engine.submit`.

        Consecutive requests of one group, with the same options or the same way of drawing,
        share an HTTP request where the server takes many prompts.

        Raises
        ------
        EngineError
            If it is closed, the server is dead, the budget spent, or a wait too long.
        """
        if self._closed:
            raise EngineError("the engine is closed", where=f"openai:{self._engine.model}")
        run = Run(self._loop, self._client, self._probe, self._serving.window)
        return run.answers(iter(requests))

    def facts(self) -> dict[str, Any]:
        """Server, what it honours, what was spent; JSON-ready, without secrets."""
        connection = self._client.connection
        return {
            "device": "remote",
            "base_url": self._address.api,
            "window": self._serving.window,
            "concurrency": {
                "limit": connection.limiter.limit,
                "most": connection.limiter.max_requests,
                "cuts": connection.limiter.cuts,
            },
            "http_requests": connection.sent,
            "retries": connection.retried,
            "paused_seconds": round(connection.limiter.paused, 3),
            "spent": self._budget.facts(),
            **self._can.facts(),
        }

    def close(self) -> None:
        """Cancel what is in flight and close the connections."""
        if self._closed:
            return
        self._closed = True
        self._loop.run(self._disconnect())
        self._loop.stop()

    def __enter__(self) -> OpenAIEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _connect(self, pause: float) -> tuple[Client, CapabilityProbe]:
        connection = Connection(self._address, self._serving, self._budget, pause=pause)
        try:
            await find_server(connection, self._can, self._engine, self._serving)
            exact = self._engine.require_model == "exact"
            client = Client(connection, self._can, exact=exact)
            probe = CapabilityProbe(client, self._engine, self._serving)
            await probe.run()
        except BaseException:
            await connection.close()
            raise
        return client, probe

    async def _disconnect(self) -> None:
        flying = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
        await self._client.connection.close()

    def _say(self) -> None:
        can = self._can
        level = logging.INFO if can.reading in ("token_ids", "echo") else logging.WARNING
        _log.log(
            level,
            "%s at %s (%s %s): distributions of choices: %s",
            can.model,
            self._address.api,
            can.server,
            can.version or "of unknown version",
            can.distributions,
        )
        for name, outcome in sorted(can.probed.items()):
            _log.info("probe %s: %s", name, outcome)


def _public(model: str) -> str:
    """The model's name without the folders of a path."""
    return model.rstrip("/").rsplit("/", 1)[-1] if model.startswith(("/", ".", "~")) else model
