"""The engine's promises, against a real server of vLLM's kind over a real tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from support.llm_api import KINDS, Kind
from support.llm_server import LlmServer

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines import Engine
from pipelines.llm.engines.openai import OpenAIEngine
from pipelines.llm.engines.testing import EngineContract

KEY = "sk-contract-7c1f"


class _OnServer(EngineContract):
    kind: ClassVar[Kind]
    secrets = (KEY,)
    server: ClassVar[LlmServer]
    engine: ClassVar[OpenAIEngine]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _serve(cls, tiny_model: Path) -> Iterator[None]:
        with LlmServer(tiny_model, cls.kind, key=KEY) as cls.server:
            cls.engine = cls._open()
            yield
            cls.engine.close()

    @classmethod
    def _open(cls) -> OpenAIEngine:
        serving = ServingSettings(base_url=cls.server.url, api_key=KEY, window=24, concurrency=4)
        return OpenAIEngine(EngineSettings(kind="openai", model=cls.server.name), serving)

    def make(self) -> Engine:
        return self.engine

    def make_disposable(self) -> Engine:
        return self._open()


class TestVllmServer(_OnServer):
    kind = KINDS["vllm"]
