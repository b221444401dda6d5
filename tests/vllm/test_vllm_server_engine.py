"""The engine that starts vLLM's own server, on the real program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines import Choice, Sampling, load_engine
from pipelines.llm.engines.testing import CONSTRAINTS, question

if TYPE_CHECKING:
    from pipelines.llm.engines.vllm import VllmEngine

pytestmark = pytest.mark.pipeline


def test_the_server_answers_as_the_engine_in_process(
    tiny_model: Path, vllm_engine: VllmEngine
) -> None:
    greedy = Sampling(temperature=0.0, max_tokens=24)
    asked = [question(f"Film {n}?", Choice(("1", "2", "10")), group="her") for n in range(3)]
    asked += [question(f"Say {k}.", c, sampling=greedy) for k, c in CONSTRAINTS.items()]
    engine = load_engine(
        EngineSettings(kind="vllm_server", model=str(tiny_model)),
        ServingSettings(vllm_python=Path(sys.executable), window=16, kv_cache_gib=0.125),
    )
    try:
        inside = {a.request: a for a in vllm_engine.submit(asked)}
        for answer in engine.submit(asked):
            known = inside[answer.request]
            assert (answer.status, answer.text) == (known.status, known.text)
            if known.probabilities:
                assert answer.probabilities == pytest.approx(known.probabilities, abs=1e-4)
        assert "vllm" in engine.identity.engine_version
        assert engine.identity.weights == vllm_engine.identity.weights
    finally:
        engine.close()
