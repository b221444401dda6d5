"""The vllm engine keeps the promises of every engine."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.llm.engines import Engine
from pipelines.llm.engines.testing import EngineContract


class TestVllmEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _engines(self, vllm_engine: Engine, open_vllm: Any) -> None:
        self._shared, self._open = vllm_engine, open_vllm

    def make(self) -> Engine:
        return self._shared

    def make_disposable(self) -> Engine:
        engine: Engine = self._open()
        return engine
