"""Distributions are the model's own: compared with a plain forward pass of transformers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.llm.engines import Choice, Message, Request
from pipelines.llm.engines.chat import render
from pipelines.llm.engines.testing import question
from pipelines.llm.engines.tokens import encode_on

if TYPE_CHECKING:
    from pipelines.llm.engines.vllm import VllmEngine

STARS = Choice(("1", "2", "3", "4", "5"))
TEN = Choice(tuple(str(n) for n in range(1, 11)))
WORDS = Choice(("good", "very good", "very bad", "a film", "no"))


class Plain:
    """Sequence probabilities from one forward pass each, without any cache."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()

    def sequence(self, prompt: Sequence[int], option: Sequence[int]) -> float:
        """Log-probability of an option's tokens behind a prompt."""
        import torch

        with torch.inference_mode():
            logits = self.model(torch.tensor([[*prompt, *option]])).logits[0].double()
        rows = torch.log_softmax(logits, dim=-1)
        at = len(prompt) - 1
        return sum(float(rows[at + n, token]) for n, token in enumerate(option))


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> Plain:
    return Plain(tiny_model)


def _ask(engine: VllmEngine, *requests: Request) -> list[Any]:
    answers = {id(a.request): a for a in engine.submit(requests)}
    return [answers[id(r)] for r in requests]


def test_options_of_one_token_have_the_models_next_token_distribution(
    vllm_engine: VllmEngine, plain: Plain
) -> None:
    requests = [question(f"{'A long film. ' * n} Item {n}: stars?", STARS) for n in range(12)]
    for request, answer in zip(requests, _ask(vllm_engine, *requests), strict=True):
        prompt = render(plain.tokenizer, request.messages)
        chances = [
            math.exp(plain.sequence(prompt, encode_on(plain.tokenizer, o))) for o in STARS.options
        ]
        mass = sum(chances)
        assert answer.mass == pytest.approx(mass, abs=1e-4, rel=1e-3)
        assert answer.probabilities == pytest.approx([c / mass for c in chances], abs=1e-4)


def test_ten_is_read_as_a_sequence_and_one_without_it(
    vllm_engine: VllmEngine, plain: Plain
) -> None:
    request = question("Rate it from 1 to 10.", TEN)
    [answer] = _ask(vllm_engine, request)
    prompt = render(plain.tokenizer, request.messages)
    chance = {
        o: math.exp(plain.sequence(prompt, encode_on(plain.tokenizer, o))) for o in TEN.options
    }
    assert len(encode_on(plain.tokenizer, "10")) == 2
    chance["1"] -= chance["10"]
    total = sum(chance.values())
    assert answer.probabilities == pytest.approx([chance[o] / total for o in TEN.options], abs=1e-4)
    assert answer.mass == pytest.approx(total, rel=1e-3)


def test_options_of_several_tokens_are_scored_as_sequences(
    vllm_engine: VllmEngine, plain: Plain
) -> None:
    request = question("How was it?", WORDS)
    [answer] = _ask(vllm_engine, request)
    prompt = render(plain.tokenizer, request.messages)
    spelled = [encode_on(plain.tokenizer, o) for o in WORDS.options]
    assert max(map(len, spelled)) > 1
    logs = [plain.sequence(prompt, s) for s in spelled]
    chances = [math.exp(v - max(logs)) for v in logs]
    wanted = [c / sum(chances) for c in chances]
    assert answer.probabilities == pytest.approx(wanted, abs=1e-4)


def test_more_options_than_vllm_reads_at_a_time(vllm_engine: VllmEngine, plain: Plain) -> None:
    tokens = [i for i in range(300, 700) if plain.tokenizer.decode([i]).strip().isalpha()]
    names = [plain.tokenizer.decode([i]) for i in tokens]
    options = tuple(
        n for n, i in zip(names, tokens, strict=True) if encode_on(plain.tokenizer, n) == [i]
    )
    assert len(options) > 150
    request = question("Which word?", Choice(options))
    [answer] = _ask(vllm_engine, request)
    prompt = render(plain.tokenizer, request.messages)
    spot = [0, 77, 127, 128, 129, len(options) - 1]
    logs = [plain.sequence(prompt, encode_on(plain.tokenizer, options[n])) for n in spot]
    read = [math.log(answer.probabilities[n] * answer.mass) for n in spot]
    assert read == pytest.approx(logs, abs=1e-3)


def test_the_transformers_engine_gives_the_same_distributions(
    vllm_engine: VllmEngine, tiny_model: Path
) -> None:
    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import load_engine

    story = "You loved every quiet drama and no comedy. " * 6
    requests = [question(f"{story} Item {n}?", c) for n in range(6) for c in (STARS, TEN, WORDS)]
    other = load_engine(
        EngineSettings(kind="transformers", model=str(tiny_model)),
        ServingSettings(device="cpu", window=18),
    )
    theirs = {id(a.request): a for a in other.submit(requests)}
    other.close()
    for ours in vllm_engine.submit(requests):
        answer = theirs[id(ours.request)]
        assert (ours.status, ours.text) == (answer.status, answer.text)
        assert ours.probabilities == pytest.approx(answer.probabilities, abs=1e-4)
        assert ours.mass == pytest.approx(answer.mass, abs=1e-4)
        assert ours.prompt_tokens == answer.prompt_tokens


def test_token_ids_are_taken_as_they_are(vllm_engine: VllmEngine, plain: Plain) -> None:
    asked = (Message("user", "How many stars?"),)
    ids = tuple(render(plain.tokenizer, asked))
    by_text, by_ids = _ask(
        vllm_engine, Request(asked, constraint=STARS), Request(tokens=ids, constraint=STARS)
    )
    assert by_text.probabilities == pytest.approx(by_ids.probabilities, abs=1e-6)
    beyond = Request(tokens=(*ids, 5_000_000), constraint=STARS)
    [answer] = _ask(vllm_engine, beyond)
    assert answer.status == "invalid"
    assert "vocab" in answer.detail
