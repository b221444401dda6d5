"""The rater over a real model: its rows are the model's own distribution."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines.chat import render
from pipelines.llm.engines.tokens import encode_on, load_tokenizer
from pipelines.llm.engines.transformers import TransformersEngine
from pipelines.llm.grammars import prose
from pipelines.raters import SCALES, LLMRater
from pipelines.raters.testing import check_rater, contract_items, contract_personas

SERVING = ServingSettings(device="cpu", window=64)


@pytest.fixture(scope="module")
def engine(tiny_model):
    torch.set_num_threads(1)
    engine = TransformersEngine.open(
        EngineSettings(kind="transformers", model=str(tiny_model)), SERVING
    )
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return load_tokenizer(tiny_model)


def test_tiny_model_conforms(engine, tokenizer):
    check_rater(LLMRater(engine, SCALES["1-10"], serving=SERVING, tokenizer=tokenizer))


def plain_logprob(model, prompt, answer):
    """Log-probability of tokens behind a prompt, by one ordinary forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *answer]])).logits[0].double()
    rows = torch.log_softmax(logits, dim=-1)
    places = range(len(prompt) - 1, len(prompt) + len(answer) - 1)
    return sum(float(rows[p, t]) for p, t in zip(places, answer, strict=True))


@pytest.mark.parametrize("scale", ["0-9", "1-10", "one-ten"])
def test_rows_equal_a_plain_forward_pass(tiny_model, engine, tokenizer, scale):
    rater = LLMRater(engine, SCALES[scale], serving=SERVING, tokenizer=tokenizer)
    personas, items = contract_personas()[:2], contract_items()[:2]
    batch = rater.rate(personas, items)
    model = AutoModelForCausalLM.from_pretrained(str(tiny_model)).eval()
    own = AutoTokenizer.from_pretrained(str(tiny_model))
    for row, request in enumerate(rater.requests(personas, items)):
        prompt = render(own, request.messages)
        spelled = {o: tuple(encode_on(own, o)) for o in request.constraint.options}
        chance = {o: np.exp(plain_logprob(model, prompt, ids)) for o, ids in spelled.items()}
        for shorter, longer in ((a, b) for a in spelled for b in spelled if a != b):
            if spelled[longer][: len(spelled[shorter])] == spelled[shorter]:
                chance[shorter] -= chance[longer]
        expected = np.array(list(chance.values()))
        np.testing.assert_allclose(
            batch.probabilities[row], expected / expected.sum(), atol=1e-5, rtol=1e-3
        )


def test_prompts_of_one_persona_share_their_tokens_up_to_the_item(engine, tokenizer):
    rater = LLMRater(engine, SCALES["1-5"], serving=SERVING, shots=1, tokenizer=tokenizer)
    requests = list(rater.requests(contract_personas()[:1], contract_items()))
    prompts = [render(tokenizer, r.messages) for r in requests]
    for first, second in pairwise(prompts):
        shared = next(n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        assert "<film>" in tokenizer.decode(first[:shared])
    before = rater.tally.cached_tokens
    rater.rate(contract_personas()[:1], contract_items())
    assert rater.tally.cached_tokens - before > len(prompts[0])


def test_a_film_with_an_endless_plot_is_rated_on_what_fits(engine, tokenizer):
    items = contract_items()[:2].with_columns(overview=pl.Series(["word " * 3000, "A short plot."]))
    for known in (tokenizer, None):
        rater = LLMRater(engine, SCALES["1-10"], serving=SERVING, tokenizer=known)
        batch = rater.rate(contract_personas()[:1], items)
        assert batch.status == ["ok", "ok"]
        assert batch.notes[0].startswith("plot cut from 3000 to ")
        assert batch.notes[1] is None
        assert rater.tally.failed == (0 if known else rater.tally.failed)


def test_a_model_writes_a_reason_that_obeys_the_grammar(engine, tokenizer):
    rater = LLMRater(engine, SCALES["1-5"], serving=SERVING, tokenizer=tokenizer)
    personas, items = contract_personas()[:1], contract_items()[:1]
    first, again = (
        rater.explain(personas, items, np.array([[0, 0]]), [4.0]).row(0, named=True)
        for _ in range(2)
    )
    assert first["status"] == "ok"
    assert prose().parse(first["explanation"]) == {"text": first["explanation"]}
    assert first == again
