"""Written answers: drawn by their own numbers, whatever else is in the batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines import GrammarConstraint, Message, Regex, Request, Sampling
from pipelines.llm.engines.constraints import obeys
from pipelines.llm.engines.testing import CONSTRAINTS, question
from pipelines.llm.engines.transformers import TransformersEngine, _writing
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._requests import PreparedRequest, _whole
from pipelines.llm.engines.transformers._writing import draw_tokens

GREEDY = Sampling(temperature=0.0, max_tokens=12)


def _open(folder: Path, **serving: Any) -> TransformersEngine:
    return TransformersEngine.open(
        EngineSettings(kind="transformers", model=str(folder)),
        ServingSettings(device="cpu", **serving),
    )


def _logits(*rows: list[float]) -> Any:
    import torch

    return torch.log(torch.tensor(rows, dtype=torch.float32))


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_answers_are_those_of_transformers_own_generate(
    tiny_engine: TransformersEngine, tiny_model: Path, penalty: float
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    dice = np.random.default_rng(2)
    start = dice.integers(5, 2000, size=40)
    prompts = [
        tuple(np.concatenate([start, dice.integers(5, 2000, size=n)]).tolist())
        for n in (1, 2, 9, 30)
    ]
    drawn = replace(GREEDY, repetition_penalty=penalty)
    asked = [Request(tokens=p, sampling=drawn) for p in prompts]
    answers = {a.request.tokens: a for a in tiny_engine.submit(asked)}
    for prompt in prompts:
        row = torch.tensor([prompt])
        expected = model.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=12,
            do_sample=False,
            repetition_penalty=penalty,
        )[0, len(prompt) :].tolist()
        spelled = tiny_engine._vocabulary.text(expected)
        assert answers[prompt].text == spelled
        assert answers[prompt].completion_tokens == len(expected)


def test_numbers_fall_on_tokens_as_often_as_they_are_probable() -> None:
    logits = _logits([0.5, 0.25, 0.25]).repeat(8, 1)
    warm = [Sampling(temperature=1.0)] * 8
    numbers = [0.0, 0.2, 0.49, 0.51, 0.74, 0.76, 0.99, 1.0 - 2.0**-53]
    assert draw_tokens(logits, None, warm, numbers) == [0, 0, 0, 1, 1, 2, 2, 2]


def test_a_temperature_below_one_sharpens() -> None:
    # Squared and normalised: 0.64, 0.16 -> 0.8, 0.2.
    logits = _logits([2 / 3, 1 / 3], [2 / 3, 1 / 3])
    assert draw_tokens(logits, None, [Sampling(temperature=0.5)] * 2, [0.79, 0.81]) == [0, 1]


def test_the_nucleus_holds_the_fewest_most_probable_tokens() -> None:
    # 0.5 + 0.3 reach 0.7; of those, 0.3 / 0.8 = 0.375 stands first in the vocabulary.
    logits = _logits(*[[0.3, 0.15, 0.5, 0.05]] * 4)
    nucleus = [Sampling(temperature=1.0, top_p=0.7)] * 4
    assert draw_tokens(logits, None, nucleus, [0.0, 0.37, 0.38, 0.999]) == [0, 0, 2, 2]


def test_tokens_far_less_probable_than_the_first_are_not_drawn() -> None:
    # At least 0.5 x 0.4: the third token falls out. 0.5 / 0.8 = 0.625 stands first.
    logits = _logits(*[[0.5, 0.3, 0.15, 0.05]] * 3)
    close = [Sampling(temperature=1.0, min_p=0.4)] * 3
    assert draw_tokens(logits, None, close, [0.62, 0.63, 0.999]) == [0, 1, 1]
    # The temperature comes first: squared, 0.25 against 0.09 is less than 0.4.
    cold = [Sampling(temperature=0.5, min_p=0.4)] * 3
    assert draw_tokens(logits, None, cold, [0.0, 0.63, 0.999]) == [0, 0, 0]


def test_a_token_that_is_not_allowed_is_never_drawn() -> None:
    logits = _logits([0.9, 0.05, 0.05], [0.9, 0.05, 0.05], [0.9, 0.05, 0.05])
    allowed = np.array([[False, True, True], [False, True, True], [False] * 3])
    sampling = [Sampling(temperature=0.0), Sampling(), Sampling()]
    assert draw_tokens(logits, allowed, sampling, [0.0, 0.99, 0.5]) == [1, 2, -1]


@given(
    st.lists(st.lists(st.floats(-30, 30), min_size=5, max_size=5), min_size=1, max_size=6),
    st.data(),
)
@settings(max_examples=50)
def test_a_draw_does_not_depend_on_the_others(rows: list[list[float]], data: st.DataObject) -> None:
    import torch

    logits = torch.tensor(rows)
    numbers = [data.draw(st.floats(0, 0.999)) for _ in rows]
    ways = [
        Sampling(temperature=data.draw(st.sampled_from([0.0, 0.7, 1.0])), top_p=p)
        for p in data.draw(st.lists(st.floats(0.1, 1.0), min_size=len(rows), max_size=len(rows)))
    ]
    together = draw_tokens(logits, None, ways, numbers)
    alone = [
        draw_tokens(logits[n : n + 1], None, [ways[n]], [numbers[n]])[0] for n in range(len(rows))
    ]
    assert together == alone


@pytest.mark.pipeline
def test_answers_are_the_same_in_any_company(
    tiny_engine: TransformersEngine, tiny_model: Path
) -> None:
    asked = [
        Request(
            (Message("system", "Write. " * (n % 3)), Message("user", f"Person {n}")),
            constraint=[None, *CONSTRAINTS.values()][n % 4],
            sampling=Sampling(
                temperature=0.5 + n % 2,
                top_p=1.0 - 0.1 * (n % 3),
                repetition_penalty=1.0 + 0.2 * (n % 2),
                max_tokens=20,
            ),
            seed=n // 8,
        )
        for n in range(16)
    ]
    found = []
    # All together; a few at a time; and each by itself, nothing packed.
    for engine in (
        tiny_engine,
        _open(tiny_model, window=5, batch_tokens=200),
        _open(tiny_model, prefix_reuse=False),
    ):
        answers = {a.request: a for a in engine.submit(asked)}
        found.append([(answers[r].status, answers[r].text) for r in asked])
    assert found[0] == found[1] == found[2]


def test_prompt_seed_and_replicate_decide_the_numbers_and_nothing_else_does() -> None:
    def numbers(*prompt: int, **fields: Any) -> list[float]:
        prepared = PreparedRequest(
            Request(**fields), np.array(prompt, dtype=np.int32), limit=len(fields)
        )
        return prepared.dice().random(4).tolist()

    first = numbers(5, 6)
    assert numbers(5, 6, group="ann", tag=1, sampling=GREEDY) == first
    others = [numbers(5, 7), numbers(5, 6, seed=1), numbers(5, 6, replicate=1), numbers(5)]
    others.append(numbers(5, 6, seed=-1))
    assert len({n for row in (first, *others) for n in row}) == 24


def test_answers_that_are_written_stay_within_the_token_budget(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    engine = _open(tiny_model, window=40, batch_tokens=300)
    sizes: list[int] = []
    generate = Model.generate

    def watched(self: Model, prompts: Any, cache: Any, *rest: Any) -> None:
        generate(self, prompts, cache, *rest)
        keys = cache.layers[0].keys
        sizes.append(keys.shape[0] * keys.shape[2])

    monkeypatch.setattr(Model, "generate", watched)
    asked = [question(f"Tell {n}", sampling=Sampling(max_tokens=4 + n % 20)) for n in range(40)]
    answers = list(engine.submit(asked))
    assert len(answers) == 40
    assert max(sizes) <= 300
    assert max(sizes) > 150, "the budget was not used"


@pytest.mark.pipeline
def test_answers_that_outgrow_the_budget_wait_and_stay_the_same(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    # Twelve begin together, by what answers are expected to take, and can't end together: 60 tokens
    # each behind some ten of a prompt would be 840.
    monkeypatch.setattr(_writing, "_EXPECTED", 8)
    sizes: list[tuple[int, int]] = []
    generate = Model.generate

    def watched(self: Model, prompts: Any, cache: Any, *rest: Any) -> None:
        generate(self, prompts, cache, *rest)
        if cache is not None:
            sizes.append((len(prompts), cache.layers[0].keys.shape[2]))

    monkeypatch.setattr(Model, "generate", watched)
    asked = [
        question(f"Tell {n}", sampling=Sampling(temperature=1.0, max_tokens=60), seed=n)
        for n in range(12)
    ]
    together = {a.request: a.text for a in _open(tiny_model, batch_tokens=300).submit(asked)}
    alone = {a.request: a.text for a in _open(tiny_model, prefix_reuse=False).submit(asked)}
    assert together == alone
    assert sizes[0][0] == 12
    assert max(rows * tokens for rows, tokens in sizes) <= 300


def test_an_answer_that_the_context_cuts_is_truncated(tiny_model: Path, one_thread: None) -> None:
    engine = _open(tiny_model, max_context=20)
    asked = Request(tokens=tuple(range(5, 22)), constraint=Regex("[a-z]{500}"))
    [answer] = engine.submit([asked])
    assert (answer.status, answer.finish_reason, answer.completion_tokens) == (
        "truncated",
        "length",
        3,
    )


def test_a_grammar_that_ends_at_the_last_token_is_whole(tiny_engine: TransformersEngine) -> None:
    # Digits are tokens of their own in the tiny tokenizer.
    rule = GrammarConstraint("%llguidance {}\n\nstart: /[0-9]{4}/")
    exact, short = (
        next(iter(tiny_engine.submit([question("?", rule, sampling=Sampling(max_tokens=n))])))
        for n in (4, 3)
    )
    assert (exact.status, exact.completion_tokens) == ("ok", 4)
    assert exact.text is not None
    assert obeys(rule, exact.text)
    assert short.status == "truncated"


def test_a_character_cut_at_the_end_is_left_out() -> None:
    assert _whole("né".encode()) == "né".encode()
    assert _whole("né".encode()[:-1]) == b"n"
    assert _whole("☃".encode()[:2]) == b""
    assert _whole("a😀".encode()[:-1]) == b"a"
    assert _whole(b"") == b""
    assert _whole(b"\x80\x80") == b"\x80\x80"


@pytest.mark.shared_data
def test_a_trained_model_writes_its_stories_and_obeys(shared_data: Path, one_thread: None) -> None:
    engine = _open(shared_data / "models" / "stories260K")
    start = (Message("assistant", "Once upon a time"),)
    asked = [
        Request(start, sampling=Sampling(temperature=0.0, max_tokens=40)),
        *(
            Request(start, constraint=c, sampling=Sampling(max_tokens=60))
            for c in CONSTRAINTS.values()
        ),
    ]
    answers = {a.request: a for a in engine.submit(asked)}
    story = answers[asked[0]].text or ""
    assert story.startswith(", there was a little girl named Lily. She loved to play")
    for request in asked[1:]:
        assert answers[request].status == "ok"
        assert obeys(request.constraint, answers[request].text or "")
