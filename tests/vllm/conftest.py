"""vLLM has an environment of its own: these tests run there (`make test-vllm`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines.vllm import vllm_version

if TYPE_CHECKING:
    from pipelines.llm.engines.vllm import VllmEngine

HERE = Path(__file__).parent
PRESENT = vllm_version() is not None

if PRESENT:
    # Before vLLM is imported. Its sampler would compile one function with a C++ compiler, 20
    # seconds for a test run; and two workers need to be told which of the cores is whose.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    os.environ["OMP_NUM_THREADS"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave them out of the quick tier; skip, with the reason, where there is no vLLM."""
    skip = pytest.mark.skip(reason="vLLM is not installed here: `make test-vllm`")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.pipeline)
            if not PRESENT:
                item.add_marker(skip)


Opened = Callable[..., "VllmEngine"]


@pytest.fixture(scope="session")
def open_vllm(tiny_model: Path) -> Iterator[Opened]:
    """Opens engines on the tiny checkpoint; they are closed at the end of the session."""
    from pipelines.llm.engines.vllm import VllmEngine

    opened: list[VllmEngine] = []

    def open_(*, model: Path | None = None, **serving: Any) -> Any:
        settings = ServingSettings(**{"window": 16, "kv_cache_gib": 0.125, **serving})
        engine = VllmEngine.open(
            EngineSettings(kind="vllm", model=str(model or tiny_model)),
            settings,
        )
        opened.append(engine)
        return engine

    yield open_
    for engine in opened:
        engine.close()


@pytest.fixture(scope="session")
def vllm_engine(open_vllm: Opened) -> VllmEngine:
    """An engine that tests share and leave open."""
    return open_vllm()
