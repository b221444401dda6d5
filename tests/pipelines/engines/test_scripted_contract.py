"""The scripted engine keeps the contract of engines."""

from __future__ import annotations

from pipelines.engines import Engine
from pipelines.engines.scripted import ScriptedEngine
from pipelines.engines.testing import EngineContract


class TestScripted(EngineContract):
    def make(self) -> Engine:
        return ScriptedEngine(window=8, context=512)
