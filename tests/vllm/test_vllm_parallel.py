"""Several workers: replicas of the model, and one model over two ranks. On a CPU here."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from pipelines.errors import EngineError
from pipelines.llm.engines import Choice, Regex, Request
from pipelines.llm.engines.testing import question

if TYPE_CHECKING:
    from pipelines.llm.engines.vllm import VllmEngine

pytestmark = pytest.mark.pipeline

STARS = Choice(("1", "2", "3", "4", "5", "10"))


def _users(name: str) -> list[Request]:
    return [
        Request(
            tokens=tuple([300, 400 + user] + [500 + user] * 98 + [600 + item] * 5),
            constraint=STARS,
            group=f"{name} {user}",
        )
        for item in range(4)
        for user in range(6)
    ]


def _same(engine: VllmEngine, other: VllmEngine, requests: list[Request]) -> None:
    wanted = {id(a.request): a for a in other.submit(requests)}
    answers = list(engine.submit(requests))
    assert len(answers) == len(requests)
    for answer in answers:
        known = wanted[id(answer.request)]
        assert (answer.status, answer.text) == (known.status, known.text)
        assert answer.probabilities == pytest.approx(known.probabilities, abs=1e-4)


@pytest.mark.faults
def test_replicas_answer_alike_keep_groups_together_and_a_dead_one_ends_the_run(
    open_vllm: Any, vllm_engine: VllmEngine
) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    engine = open_vllm(data_parallel=2, window=24)
    assert engine.metadata()["data_parallel"] == 2
    requests = _users("replicas")
    _same(engine, vllm_engine, requests)

    cached = defaultdict(list)
    for answer in engine.submit(_users("again")):
        cached[answer.request.group].append(answer.cached_tokens)
    assert all(min(counts) == 96 for counts in cached.values()), cached

    [bad] = engine.submit([Request(tokens=(5_000_000,), constraint=STARS)])
    assert bad.status == "invalid"

    left = engine.submit(question(f"Item {n}", Regex("[a-z]{40}")) for n in range(40))
    next(left)
    left.close()
    assert len(list(engine.submit(_users("after leaving")))) == 24

    children = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    cores = [p for p in children if "EngineCore" in p.name() + " ".join(p.cmdline())]
    assert len(cores) >= 2, children
    answers = engine.submit(question(f"Item {n}", Regex("[a-z]{60}")) for n in range(2_000))
    next(answers)
    os.kill(cores[0].pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="died"):
        list(answers)
    engine.close()


def test_one_model_over_two_ranks_gives_the_same_distributions(
    open_vllm: Any, vllm_engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    engine = open_vllm(tensor_parallel=2)
    assert engine.metadata()["tensor_parallel"] == 2
    _same(engine, vllm_engine, _users("ranks"))
    engine.close()
