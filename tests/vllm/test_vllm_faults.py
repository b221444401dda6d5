"""Faults of the vllm engine: models that can't be loaded, and engines that die under way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines import Answer, Regex, Request
from pipelines.llm.engines.testing import question

pytestmark = pytest.mark.faults


def _items(count: int) -> Iterator[Request]:
    for n in range(count):
        yield question(f"Item {n}", Regex(f"[a-z]{{{4 + 8 * (n % 4)}}}"), seed=n)


def test_an_engine_that_dies_has_given_what_was_done_and_says_how_to_go_on(
    open_vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_vllm()
    executor = engine._driver._engine.model_executor
    run, steps = executor.execute_model, iter(range(1_000))

    def fail_later(*args: Any, **kwargs: Any) -> Any:
        if next(steps) == 12:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
        return run(*args, **kwargs)

    monkeypatch.setattr(executor, "execute_model", fail_later)
    done: list[Answer] = []
    with pytest.raises(EngineError) as died:
        done.extend(engine.submit(_items(64)))
    assert "illegal memory access" in str(died.value)
    assert "\n" not in str(died.value)
    assert "run again" in (died.value.hint or "")
    assert died.value.permanent
    with pytest.raises(EngineError, match="closed"):
        engine.submit(_items(1))

    again = open_vllm()
    texts = {a.request.seed: a.text for a in again.submit(_items(64))}
    again.close()
    assert len(texts) == 64


def test_answers_before_the_death_are_yielded(
    open_vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_vllm(window=4)
    driver, died = engine._driver, EngineError("x")
    step, finished = driver.step, []

    def fail_later() -> Any:
        # Counted by answers: passes return nothing while grammars are compiled beside them.
        if len(finished) >= 12:
            raise MemoryError("no more")
        finished.extend(found := step())
        return found

    monkeypatch.setattr(driver, "step", fail_later)
    done = []
    try:
        for answer in engine.submit(_items(64)):
            done.append(answer)
    except EngineError as error:
        died = error
    assert "no more" in str(died)
    assert 4 < len(done) < 64
    assert {a.status for a in done} == {"ok"}


def test_damaged_weights_stop_the_start(tiny_model: Path, tmp_path: Path, open_vllm: Any) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny_model, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20_000])
    with pytest.raises(EngineError, match="can't load the model") as failed:
        open_vllm(model=damaged)
    assert "\n" not in str(failed.value)


@pytest.mark.shared_data
def test_a_model_that_vllm_loads_but_cannot_run_stops_the_start(
    open_vllm: Any, shared_data: Path
) -> None:
    # vLLM's CPU kernels have no attention heads of 8 numbers, which shows in the first pass.
    with pytest.raises(EngineError, match="head_dim=8") as failed:
        open_vllm(model=shared_data / "models" / "stories260K")
    assert "\n" not in str(failed.value)
    with pytest.raises(EngineError, match="head_dim=8"):
        open_vllm(model=shared_data / "models" / "stories260K")


def test_a_context_beyond_the_models_own_stops_the_start(open_vllm: Any) -> None:
    with pytest.raises(EngineError, match="max_context"):
        open_vllm(max_context=1 << 20)


def test_a_device_that_this_build_has_not_is_a_wrong_setting(open_vllm: Any) -> None:
    with pytest.raises(ConfigError, match="runs on cpu"):
        open_vllm(device="cuda")


def test_a_folder_that_is_no_checkpoint_is_a_wrong_setting(tmp_path: Path, open_vllm: Any) -> None:
    with pytest.raises(ConfigError, match="no checkpoint"):
        open_vllm(model=tmp_path)


def test_the_context_may_be_cut_and_holds(open_vllm: Any) -> None:
    engine = open_vllm(max_context=64)
    assert engine.metadata()["context"] == 64
    long, short = question("film " * 80), question("Go.", Regex("([a-z] ){200}"))
    answers = {id(a.request): a for a in engine.submit([long, short])}
    engine.close()
    assert answers[id(long)].status == "invalid"
    assert answers[id(short)].status == "truncated"
    cut = answers[id(short)]
    assert cut.prompt_tokens + cut.completion_tokens <= 64
