"""Written answers: constraints obeyed, cut where they should be, as transformers writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.llm.engines import JsonSchema, Regex, Request, Sampling
from pipelines.llm.engines.constraints import obeys
from pipelines.llm.engines.testing import CONSTRAINTS, question

if TYPE_CHECKING:
    from pipelines.llm.engines.vllm import VllmEngine

GREEDY = Sampling(temperature=0.0, max_tokens=40)


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_answers_are_those_of_the_transformers_engine(
    vllm_engine: VllmEngine, tiny_model: Path, penalty: float
) -> None:
    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import load_engine

    rules = [*CONSTRAINTS.values(), Regex("[a-z ]{5,20}!")]
    greedy = replace(GREEDY, repetition_penalty=penalty)
    requests = [question(f"Say {n}.", rule, sampling=greedy) for n in range(3) for rule in rules]
    other = load_engine(
        EngineSettings(kind="transformers", model=str(tiny_model)), ServingSettings(device="cpu")
    )
    theirs = {id(a.request): a for a in other.submit(requests)}
    other.close()
    for ours in vllm_engine.submit(requests):
        answer = theirs[id(ours.request)]
        assert (ours.status, ours.text) == (answer.status, answer.text)
        assert ours.completion_tokens == answer.completion_tokens


def test_a_least_share_of_one_leaves_the_most_probable_token(vllm_engine: VllmEngine) -> None:
    ways = (GREEDY, Sampling(temperature=1.0, min_p=1.0, max_tokens=40))
    asked = [question("Go.", sampling=way, seed=3) for way in ways]
    greedy, drawn = sorted(vllm_engine.submit(asked), key=lambda a: a.request.sampling.min_p)
    assert greedy.text == drawn.text


def test_a_persona_record_is_written_by_its_grammar(vllm_engine: VllmEngine) -> None:
    from pipelines.llm.grammars import persona_record

    grammar = persona_record("movies", ["Drama", "Comedy", "Horror"])
    grammar.check(vllm_engine._tokenizer)
    room = grammar.longest(vllm_engine._tokenizer)
    requests = [
        question("Who are you?", grammar.constraint, seed=n, sampling=Sampling(max_tokens=room))
        for n in range(3)
    ]
    texts = set()
    for answer in vllm_engine.submit(requests):
        assert answer.status == "ok", answer
        assert answer.text is not None
        assert grammar.parse(answer.text)
        texts.add(answer.text)
    assert len(texts) == 3


def test_json_has_one_space_after_commas_and_colons(vllm_engine: VllmEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    rule = JsonSchema(json.dumps(schema))
    for answer in vllm_engine.submit([question("Go.", rule, seed=n) for n in range(6)]):
        assert answer.text is not None
        assert answer.text == json.dumps(json.loads(answer.text)), answer


@pytest.mark.parametrize(("room", "status"), [(6, "truncated"), (7, "ok"), (8, "ok")])
def test_an_answer_that_just_fits_is_whole(vllm_engine: VllmEngine, room: int, status: str) -> None:
    rule = Regex("[0-9]{7}")  # digits are tokens of their own
    [answer] = vllm_engine.submit([question("Go.", rule, sampling=Sampling(max_tokens=room))])
    assert answer.status == status
    assert answer.completion_tokens == min(room, 7)
    assert obeys(rule, answer.text or "") == (status == "ok")


def test_a_temperature_that_vllm_does_not_know_is_one_invalid_answer(
    vllm_engine: VllmEngine,
) -> None:
    hot, good = (question("Go.", sampling=Sampling(temperature=t, max_tokens=3)) for t in (9.0, 1))
    answers = {id(a.request): a for a in vllm_engine.submit([hot, good])}
    assert answers[id(hot)].status == "invalid"
    assert "temperature" in answers[id(hot)].detail
    assert answers[id(good)].status in ("ok", "truncated")


def test_two_iterations_may_be_open_at_once(vllm_engine: VllmEngine) -> None:
    def many(name: str) -> list[Request]:
        return [question(f"{name} {n}", Regex("[a-z]{4}"), seed=n) for n in range(20)]

    one, two = vllm_engine.submit(many("one")), vllm_engine.submit(many("two"))
    mixed: list[Any] = []
    for a, b in zip(one, two, strict=True):
        mixed += [a, b]
    assert {a.status for a in mixed} == {"ok"}
    prompts = [a.request.messages[0].content for a in mixed]
    assert sorted(prompts) == sorted(f"{k} {n}" for k in ("one", "two") for n in range(20))
    assert all(s.startswith("one") for s in prompts[::2])


def test_an_iteration_that_is_left_leaves_no_work_behind(vllm_engine: VllmEngine) -> None:
    answers = vllm_engine.submit(question(f"Item {n}", Regex("[a-z]{60}")) for n in range(16))
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    driver: Any = vllm_engine._driver
    assert vllm_engine._jobs == {}
    assert not driver._engine.has_unfinished_requests()


def test_starting_an_engine_moves_no_random_generator(open_vllm: Any) -> None:
    import random

    import numpy as np
    import torch

    def states() -> tuple[Any, ...]:
        legacy = np.random.get_state()[1].tolist()  # noqa: NPY002 (the one that vLLM seeds)
        return random.getstate(), legacy, torch.get_rng_state().tolist()

    before = states()
    open_vllm().close()
    after = states()
    assert before == after
