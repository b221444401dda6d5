"""The scripted engine keeps the contract of engines."""

from __future__ import annotations

from pipelines.llm.engines import Engine
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.llm.engines.testing import EngineContract


class TestScripted(EngineContract):
    def make(self) -> Engine:
        return ScriptedEngine(window=8, context=512)
