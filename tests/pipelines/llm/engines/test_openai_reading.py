"""Distributions are read exactly, are the model's own, and the engine reports the way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from support.llm_api import KINDS
from support.llm_client import STARS, connect, plain_shares, prompt_of
from support.llm_faults import edit
from support.llm_server import LlmServer

from pipelines.llm.engines import Answer, Choice, Message, Request, Sampling
from pipelines.llm.engines.testing import question
from pipelines.llm.engines.transformers import TransformersEngine

VLLM = KINDS["vllm"]
PHRASES = ("a good film", "a bad film", "not seen")
Serve = Callable[..., LlmServer]


def _likely(server: LlmServer, prompt: list[int], among: int, count: int) -> list[str]:
    """Texts of tokens that are among the most probable, are one token, and begin no other."""
    row = server.model.logprobs(prompt)[-1]
    tokenizer, found = server.model.tokenizer, []
    for token in np.argsort(-row)[:among]:
        text = tokenizer.decode([int(token)])
        alone = server.model.encode(text) == [int(token)]
        apart = not any(text.startswith(f) or f.startswith(text) for f in found)
        if alone and apart and text.isprintable() and text:
            found.append(text)
    return found[:count]


def _one(answers: Iterator[Answer]) -> Answer:
    [answer] = answers
    return answer


@pytest.mark.parametrize("options", [STARS, PHRASES], ids=["digits", "phrases"])
def test_distributions_are_those_of_a_plain_forward_pass(
    serve: Serve, options: tuple[str, ...]
) -> None:
    server = serve("vllm")
    with connect(server) as engine:
        answers = engine.submit(
            [question(f"Film {n}?", Choice(options), group="her") for n in range(4)]
        )
        for answer in answers:
            prompt = prompt_of(server.model, answer.request.messages[0].content)
            shares, mass = plain_shares(server.model, prompt, options)
            assert answer.probabilities == pytest.approx(shares, abs=1e-5)
            assert answer.mass == pytest.approx(mass, rel=1e-4)


def test_an_option_that_begins_another_has_what_does_not_go_on(serve: Serve) -> None:
    server = serve("vllm")
    one, ten = (server.model.encode(o) for o in ("1", "10"))
    assert ten[: len(one)] == one, "the tokenizer cuts 10 into 1 and 0"
    with connect(server) as engine:
        answer = _one(engine.submit([question("Stars?", Choice(("1", "10")))]))
    prompt = prompt_of(server.model, "Stars?")
    p_one, p_ten = (np.exp(server.model.sequence(prompt, t)) for t in (one, ten))
    assert answer.mass == pytest.approx(p_one, rel=1e-4)
    assert answer.probabilities == pytest.approx([(p_one - p_ten) / p_one, p_ten / p_one], abs=1e-6)


def test_a_hosted_chat_gives_the_same_where_its_ranks_hold_the_options(serve: Serve) -> None:
    server = serve("hosted", key="sk-1")
    prompt = prompt_of(server.model, "Stars?")
    options = tuple(_likely(server, prompt, 20, 3))
    with connect(server) as engine:
        facts = engine.metadata()
        assert (facts["endpoint"], facts["reading"]) == ("chat", "ranks")
        assert facts["distributions"] == "from the 20 most probable tokens that the server lists"
        answer = _one(engine.submit([question("Stars?", Choice(options))]))
    shares, mass = plain_shares(server.model, prompt, options)
    assert answer.probabilities == pytest.approx(shares, abs=1e-5)
    assert answer.mass == pytest.approx(mass, rel=1e-4)


def test_options_that_the_ranks_do_not_hold_give_no_distribution(serve: Serve) -> None:
    server = serve("hosted")
    row = server.model.logprobs(prompt_of(server.model, "Stars?"))[-1]
    last = server.model.tokenizer.decode([int(np.argmin(row))])
    likely = _likely(server, prompt_of(server.model, "Stars?"), 20, 1)
    with connect(server) as engine:
        for options in ((*likely, last), STARS):
            answer = _one(engine.submit([question("Stars?", Choice(options))]))
            if answer.status == "ok":  # what is left open may be little enough to be nothing
                assert answer.probabilities is not None
                assert answer.probabilities[-1] == 0.0
                continue
            assert answer.status == "invalid"
            assert answer.probabilities is None
            assert "of the options' probability open" in answer.detail
        assert answer.status == "invalid", "five digits are below the last rank"


def test_a_text_that_may_go_on_to_another_option_settles_nothing(serve: Serve) -> None:
    server = serve("hosted")
    first = _likely(server, prompt_of(server.model, "Stars?"), 20, 1)[0]
    with connect(server) as engine:
        answer = _one(engine.submit([question("Stars?", Choice((first, first + "0 out of")))]))
    assert answer.status == "invalid", "the second option's first token is the first option's"


def test_one_group_is_one_request(serve: Serve) -> None:
    server = serve("vllm")
    with connect(server, window=64) as engine:
        before = len(server.asked())
        groups = [question(f"{u} {n}?", Choice(STARS), group=u) for u in "ab" for n in range(20)]
        assert {a.status for a in engine.submit(groups)} == {"ok"}
    sizes = [len(e.body["prompt"]) for e in server.asked()[before:]]
    assert sizes == [20, 20]


def test_a_prefix_that_the_server_had_is_counted_as_cached(serve: Serve) -> None:
    server = serve("vllm")
    story = "A long evening at the river, with a friend and a song. " * 8
    with connect(server) as engine:
        list(engine.submit([question(f"{story} 1?", Choice(STARS))]))
        answer = _one(engine.submit([question(f"{story} 2?", Choice(STARS))]))
        spent = engine.metadata()["spent"]
    assert 0.8 * answer.prompt_tokens < answer.cached_tokens < answer.prompt_tokens
    assert answer.prompt_tokens == len(prompt_of(server.model, f"{story} 2?"))
    assert spent["cached_tokens"] >= answer.cached_tokens


def test_a_field_left_out_without_a_word_is_found_out_and_said(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pipelines.llm.engines.openai")
    with connect(serve(VLLM.without("logprob_token_ids"))) as engine:
        probes = engine.metadata()["probes"]
    assert probes["logprob_token_ids"] == "silently ignored"
    assert probes["top_logprobs (chat)"] == "honoured (20 tokens)"
    loud = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert ["most probable tokens" in r.getMessage() for r in loud] == [True]


def test_a_field_that_is_refused_is_reported_in_the_server_s_words(serve: Serve) -> None:
    kind = VLLM.without("logprob_token_ids", loudly=True)
    with connect(serve(kind)) as engine:
        facts = engine.metadata()
    assert facts["reading"] == "ranks"
    assert "Unrecognized request argument" in facts["probes"]["logprob_token_ids"]


def test_numbers_that_are_no_probabilities_are_not_believed(serve: Serve) -> None:
    server = serve("vllm")

    def lie(body: dict) -> dict:  # type: ignore[type-arg]
        for choice in body["choices"]:
            for top in (choice["logprobs"] or {}).get("top_logprobs", ()):
                if top is not None:
                    top.update(dict.fromkeys(top, -1.5))
        return body

    server.always = edit(lie)
    with connect(server) as engine:
        facts = engine.metadata()
    assert facts["probes"]["logprob_token_ids"] == "no probabilities"
    assert facts["endpoint"] == "chat", "whose numbers were not touched"


def test_a_server_without_probabilities_answers_no_choice_unless_told_to_estimate(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(serve("ollama")) as engine:
        assert engine.metadata()["reading"] == "none"
        answer = _one(engine.submit([question("Stars?", Choice(STARS))]))
    assert answer.status == "invalid"
    assert "engine.draws" in answer.detail
    assert "not readable" in caplog.text


def test_a_begun_answer_is_continued_where_prompts_are_token_ids(serve: Serve) -> None:
    begun = (Message("user", "Stars?"), Message("assistant", "I give it "))
    server = serve("vllm")
    prompt = [*prompt_of(server.model, "Stars?"), *server.model.encode("I give it ")]
    with connect(server) as engine:
        answer = _one(engine.submit([Request(begun, constraint=Choice(STARS))]))
    shares, _ = plain_shares(server.model, prompt, STARS)
    assert answer.probabilities == pytest.approx(shares, abs=1e-5)
    with connect(serve("hosted")) as engine:
        answer = _one(engine.submit([Request(begun, constraint=Choice(STARS))]))
    assert answer.status == "invalid"
    assert "can't continue a partial answer" in answer.detail


def test_token_ids_of_the_caller_are_taken_as_they_are(serve: Serve) -> None:
    server = serve("vllm")
    prompt = tuple(server.model.encode("Some words, and then a number: "))
    with connect(server) as engine:
        answer = _one(engine.submit([Request(tokens=prompt, constraint=Choice(STARS))]))
    shares, mass = plain_shares(server.model, prompt, STARS)
    assert answer.probabilities == pytest.approx(shares, abs=1e-5)
    assert answer.mass == pytest.approx(mass, rel=1e-4)
    with connect(serve("hosted")) as engine:
        refused = _one(engine.submit([Request(tokens=prompt, constraint=Choice(STARS))]))
    assert (refused.status, refused.detail) == ("invalid", "the server does not accept token ids")


@pytest.mark.parametrize("fields", [{"repetition_penalty": 1.4}, {"min_p": 1.0}], ids=str)
def test_sampling_is_the_same_through_a_server(
    serve: Serve, fields: dict[str, float], tiny_engine: TransformersEngine
) -> None:
    # A least share of 1 leaves the most probable token at any temperature.
    heat = 1.0 if "min_p" in fields else 0.0
    asked = question("Go on.", sampling=Sampling(temperature=heat, max_tokens=12, **fields))
    with connect(serve("vllm")) as engine:
        served = _one(engine.submit([asked]))
    assert served.status in ("ok", "truncated")
    assert served.text == _one(tiny_engine.submit([asked])).text


def test_sampling_that_a_server_refuses_is_left_out_and_reported(serve: Serve) -> None:
    asked = question("Go on.", sampling=Sampling(min_p=0.1, max_tokens=4))
    with connect(serve("hosted")) as engine:
        answer = _one(engine.submit([asked]))
        left_out = engine.metadata()["left_out"]
    assert answer.status in ("ok", "truncated")
    assert left_out == {"min_p": "HTTP 400: Unrecognized request argument supplied: min_p"}
