"""The guidance engine keeps the contract of engines and writes what the others write."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines import Engine, JsonSchema, Sampling, load_engine
from pipelines.llm.engines.testing import CONSTRAINTS, EngineContract, question


@pytest.fixture(scope="module", autouse=True)
def _engine(tiny_model: Path) -> None:
    import torch

    torch.set_num_threads(1)
    settings = EngineSettings(kind="guidance", model=str(tiny_model)), ServingSettings(device="cpu")
    TestGuidance.settings, TestGuidance.engine = settings, load_engine(*settings)


class TestGuidance(EngineContract):
    engine: ClassVar[Engine]
    settings: ClassVar[tuple[EngineSettings, ServingSettings]]

    def make(self) -> Engine:
        return self.engine

    def make_disposable(self) -> Engine:
        return load_engine(*self.settings)


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_constrained_answers_equal_those_of_transformers(
    tiny_model: Path, penalty: float
) -> None:
    settings = EngineSettings(kind="transformers", model=str(tiny_model))
    greedy = Sampling(temperature=0.0, repetition_penalty=penalty, max_tokens=64)
    asked = [question(f"Say {k}.", c, sampling=greedy) for k, c in CONSTRAINTS.items()]
    other = load_engine(settings, ServingSettings(device="cpu", window=4))
    wanted = {a.request: a.text for a in other.submit(asked)}
    found = {a.request: a.text for a in TestGuidance.engine.submit(asked)}
    other.close()
    assert found == wanted


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_forced_text_beyond_the_limit_is_truncated(limit: int) -> None:
    forced = JsonSchema(
        '{"type": "object", "properties": {"a": {"const": "long and forced"}}, "required": ["a"]}'
    )
    asked = question("Say.", forced, sampling=Sampling(max_tokens=limit))
    [answer] = TestGuidance.engine.submit([asked])
    assert answer.status == "truncated"
    assert 0 < answer.completion_tokens <= limit


def test_identity_names_guidance_and_its_version() -> None:
    identity = TestGuidance.engine.identity
    assert identity.engine == "guidance"
    assert identity.engine_version.startswith("0.")
