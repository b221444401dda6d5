"""An engine on the workers of an executor: they answer, and the caller stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from pipelines.config import EngineSettings, ServingSettings
from pipelines.execution import Executor
from pipelines.llm.engines import Answer, Engine, EngineIdentity, Request, load_engine

__all__ = ["ClusterEngine"]


class ClusterEngine:
    """Sends requests to engines that the workers of an executor open, some hundred at a time.

    A worker that dies costs the answers that it had not returned; they are asked of another one.
    Secrets don't travel: a worker has the API key of its own environment.
    """

    def __init__(
        self, settings: EngineSettings, serving: ServingSettings, executor: Executor
    ) -> None:
        self._executor = executor
        self._size = serving.commit_every
        self._work = _Answer(
            settings.model_dump_json(),
            json.dumps(serving.model_dump(mode="json", exclude={"api_key"})),
        )
        [answers] = executor.map(self._work, [()])
        self.identity: EngineIdentity = answers.identity
        self._facts = answers.facts

    def metadata(self) -> Mapping[str, Any]:
        """Facts of a worker's engine."""
        return self._facts

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Answers of requests, in their order."""
        remaining = iter(requests)
        parts = iter(lambda: tuple(islice(remaining, self._size)), ())
        for answered in self._executor.map(self._work, parts):
            yield from answered.answers

    def close(self) -> None:
        """Do nothing: the executor is the caller's, and the workers end with it."""


class _Answered:
    def __init__(self, engine: Engine, answers: list[Answer]) -> None:
        self.identity, self.facts, self.answers = engine.identity, dict(engine.metadata()), answers


class _Answer:
    """Answers requests with an engine that a worker opens once."""

    def __init__(self, settings: str, serving: str) -> None:
        self._settings, self._serving = settings, serving

    def __call__(self, requests: tuple[Request, ...]) -> _Answered:
        engine = _engine(self._settings, self._serving)
        return _Answered(engine, list(engine.submit(iter(requests))) if requests else [])

    def versions(self) -> Mapping[str, Any]:
        return {}


@lru_cache(maxsize=4)
def _engine(settings: str, serving: str) -> Engine:
    from pipelines.config import load_settings

    here = load_settings().serving.api_key
    fields = {**json.loads(serving), "api_key": here}
    return load_engine(EngineSettings.model_validate_json(settings), ServingSettings(**fields))
