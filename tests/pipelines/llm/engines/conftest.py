"""Loaded engines that several test modules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.llm_api import Kind
from support.llm_server import LlmServer

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines.transformers import TransformersEngine


@pytest.fixture(scope="session")
def one_thread() -> None:
    """Tests don't fight over cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_engine(tiny_model: Path, one_thread: None) -> Iterator[TransformersEngine]:
    """The transformers engine with the tiny checkpoint; tests leave it as it is."""
    engine = TransformersEngine.open(
        EngineSettings(kind="transformers", model=str(tiny_model)),
        ServingSettings(device="cpu", window=32),
    )
    yield engine
    engine.close()


@pytest.fixture
def serve(tiny_model: Path) -> Iterator[Callable[..., LlmServer]]:
    """Start servers over the tiny checkpoint that stop with the test."""
    with ExitStack() as started:

        def start(kind: str | Kind = "vllm", **more: Any) -> LlmServer:
            return started.enter_context(LlmServer(tiny_model, kind, **more))

        yield start
