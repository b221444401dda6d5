"""The transformers engine keeps the contract of engines, packed and plain."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines import Engine, load_engine
from pipelines.llm.engines.testing import EngineContract


@pytest.fixture(scope="module", autouse=True)
def _engines(tiny_model: Path) -> None:
    import torch

    torch.set_num_threads(1)
    engine = EngineSettings(kind="transformers", model=str(tiny_model))
    for kind, contract in {"packed": TestPacked, "plain": TestPlain}.items():
        serving = ServingSettings(window=8, prefix_reuse=kind == "packed", device="cpu")
        contract.settings = engine, serving
        contract.engine = load_engine(engine, serving)


class TestPacked(EngineContract):
    engine: ClassVar[Engine]
    settings: ClassVar[tuple[EngineSettings, ServingSettings]]

    def make(self) -> Engine:
        return self.engine

    def make_disposable(self) -> Engine:
        return load_engine(*self.settings)


class TestPlain(TestPacked):
    pass
