"""Habits of servers that people have: thoughts, refused parameters, short lists, empty replies."""

from __future__ import annotations

import itertools
import json
import logging
import math
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from support.chat_server import ChatServer, RefusalError, reply

from pipelines.config import Settings
from pipelines.errors import EngineError
from pipelines.llm.engines import Answer, Choice, Engine, Request, Sampling, check_engine
from pipelines.llm.engines.testing import question
from pipelines.llm.grammars import explanation, sentence_plan
from pipelines.llm.grammars._parts import Blank
from pipelines.raters.llm import LLMRater
from pipelines.scales import SCALES

MARKS = tuple("0123456789")
Body = dict[str, Any]


def _ask(engine: Engine, request: Request) -> Answer:
    [answer] = engine.submit([request])
    return answer


def _mark(**fields: Any) -> Request:
    return question("Stars?", Choice(MARKS), **fields)


def _listed(texts: dict[str, float]) -> Body:
    """Log-probabilities of the first token, as a chat endpoint lists them."""
    top = [{"token": text, "logprob": math.log(chance)} for text, chance in texts.items()]
    return {"content": [{"token": top[0]["token"], "logprob": -1.0, "top_logprobs": top}]}


# Parameters ----------------------------------------------------------------------------------


def test_parameters_at_their_defaults_are_not_sent() -> None:
    with ChatServer(lambda _: reply("8")) as server, server.connect() as engine:
        _ask(engine, question("Go on.", sampling=Sampling(max_tokens=4), seed=3))
        sent = server.bodies[-1].keys() - {"model", "messages"}
    assert sent == {"temperature", "max_tokens", "seed"}


def test_refused_parameter_is_left_out_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    words = "`temperature` and `top_p` cannot both be specified for this model"

    def answer(body: Body) -> Body:
        if {"temperature", "top_p"} <= body.keys():
            raise RefusalError(words)
        return reply("8")

    caplog.set_level(logging.WARNING)
    with ChatServer(answer) as server, server.connect() as engine:
        asked = question("Go on.", sampling=Sampling(top_p=0.9, max_tokens=4))
        assert [_ask(engine, asked).status for _ in range(2)] == ["ok", "ok"]
        assert engine.metadata()["left_out"] == {"temperature": f"HTTP 400: {words}"}
        assert server.bodies[-1]["top_p"] == 0.9
    assert f"temperature is left out: the server refuses it (HTTP 400: {words})" in caplog.text


def test_parameter_refused_without_its_name_is_found() -> None:
    def answer(body: Body) -> Body:
        if "seed" in body:
            raise RefusalError("Bad Request")
        return reply("8")

    with ChatServer(answer) as server, server.connect(draws=4) as engine:
        assert engine.metadata()["left_out"] == {"seed": "HTTP 400: Bad Request"}
        assert _ask(engine, _mark()).status == "ok"


def test_refusal_that_only_mentions_a_parameter_leaves_it_in() -> None:
    def answer(body: Body) -> Body:
        if "poison" in json.dumps(body["messages"]):
            raise RefusalError("no seed of evil here")
        return reply("8")

    with ChatServer(answer) as server, server.connect() as engine:
        bad = _ask(engine, question("poison", sampling=Sampling(max_tokens=4)))
        assert (bad.status, bad.detail) == ("invalid", "HTTP 400: no seed of evil here")
        assert engine.metadata()["left_out"] == {}


# Probes --------------------------------------------------------------------------------------


def test_refused_probe_is_reported_in_the_servers_words() -> None:
    def answer(body: Body) -> Body:
        if "logprobs" in body:
            raise RefusalError("logprobs are for paying customers")
        return reply("8")

    with ChatServer(answer) as server, server.connect() as engine:
        answered = _ask(engine, _mark())
    assert answered.status == "invalid"
    assert "logprobs are for paying customers" in answered.detail
    assert "set engine.draws" in answered.detail


def test_probe_that_times_out_is_reported_as_that() -> None:
    def answer(body: Body) -> Body:
        if "logprobs" in body:
            time.sleep(0.6)
        return reply("8")

    with ChatServer(answer) as server, server.connect(timeout=0.3) as engine:
        facts = engine.metadata()
    assert facts["probes"]["top_logprobs (chat)"] == "timeout after 2 tries"
    assert "timeout after 2 tries" in facts["distributions"]
    assert "no log-probabilities" not in facts["distributions"]


def test_server_that_never_answers_says_timeout() -> None:
    def answer(_: Body) -> Body:
        time.sleep(0.6)
        return reply("8")

    with (
        ChatServer(answer) as server,
        pytest.raises(EngineError, match=r"timeout after 2 tries.*serving.timeout"),
    ):
        server.connect(timeout=0.2)


# Lists and draws -----------------------------------------------------------------------------


def test_tokens_with_a_space_before_them_count() -> None:
    chances = {"8": 0.5, " 8": 0.2, "7": 0.2, " 7": 0.099}
    with (
        ChatServer(lambda _: reply("8", logprobs=_listed(chances))) as server,
        server.connect() as engine,
    ):
        answer = _ask(engine, question("Stars?", Choice(("7", "8"))))
    assert answer.probabilities == pytest.approx((0.299 / 0.999, 0.7 / 0.999))
    assert answer.mass == pytest.approx(0.999)


def test_reply_without_a_list_is_requested_once_again() -> None:
    """llama.cpp lists nothing where the drawn token is a part of a character."""
    count = itertools.count()
    listed = _listed({"8": 0.7, "7": 0.2999})

    def answer(body: Body) -> Body:
        lost = "logprobs" in body and next(count) % 2 == 0
        return reply("8", logprobs=None if lost else listed)

    with ChatServer(answer) as server, server.connect() as engine:
        assert engine.metadata()["reading"] == "ranks"
        before = len(server.bodies)
        answered = _ask(engine, question("Stars?", Choice(("7", "8"))))
        assert len(server.bodies) - before == 2
    assert answered.probabilities == pytest.approx((0.2999 / 0.9999, 0.7 / 0.9999))
    assert answered.prompt_tokens == 100, "both requests count"


def _five(body: Body) -> Body:
    """At most five tokens, and other answers with other seeds."""
    if body.get("top_logprobs", 0) > 5:
        raise RefusalError("top_logprobs must be <= 5")
    listed = {"8": 0.3, "7": 0.25, "6": 0.2, "9": 0.15, "5": 0.05}
    return reply(str(5 + body.get("seed", 0) % 4), logprobs=_listed(listed))


def test_list_too_short_for_the_scale_is_completed_by_draws() -> None:
    with ChatServer(_five) as server, server.connect(draws=8) as engine:
        assert engine.metadata()["probes"]["top_logprobs (chat)"] == "honoured (5 tokens)"
        answer = _ask(engine, _mark(seed=0))
        assert engine.identity.engine_version.endswith("choices by ranks 5, else draws 8")
    assert answer.probabilities == (0, 0, 0, 0, 0, 0.25, 0.25, 0.25, 0.25, 0)
    assert answer.detail == "an estimate: shares among 8 answers drawn"


def test_rater_refuses_a_scale_that_the_list_does_not_hold_before_any_call() -> None:
    with ChatServer(_five) as server, server.connect() as engine:
        before = len(server.bodies)
        with pytest.raises(EngineError, match=r"of 10 answers.*5 most probable.*engine\.draws"):
            LLMRater(engine, SCALES["0-9"])
        assert len(server.bodies) == before
        assert LLMRater(engine, SCALES["1-5"]).name == "llm:qwen3:8b"


def test_estimate_says_that_it_is_one(caplog: pytest.LogCaptureFixture) -> None:
    def answer(body: Body) -> Body:
        return reply(str(5 + body.get("seed", 0) % 4))

    with ChatServer(answer) as server, server.connect(draws=64) as engine:
        assert engine.metadata()["reading"] == "draws"
        answers = [_ask(engine, _mark(seed=4)) for _ in range(2)]
        assert "draws 64" in engine.identity.engine_version
    assert answers[0].probabilities == answers[1].probabilities
    assert answers[0].probabilities == (0, 0, 0, 0, 0, 0.25, 0.25, 0.25, 0.25, 0)
    assert answers[0].detail == "an estimate: shares among 64 answers drawn"
    assert "ESTIMATE" in caplog.text


@pytest.mark.parametrize("empty", [None, "", "I would rather not say."])
def test_empty_reply_is_one_lost_draw(empty: str | None) -> None:
    count = itertools.count()
    with (
        ChatServer(lambda _: reply(empty if next(count) % 4 == 3 else "8")) as server,
        server.connect(draws=8) as engine,
    ):
        answer = _ask(engine, _mark())
    assert answer.status == "ok"
    assert answer.probabilities == (0, 0, 0, 0, 0, 0, 0, 0, 1, 0)
    assert answer.detail == "an estimate: shares among 6 answers drawn"


def test_free_answers_count_for_the_option_they_name() -> None:
    said = itertools.cycle(["8", "8/10", "**8**", "Rating: 7.", "7.5", "10", "80", "2 or 3?"])
    with ChatServer(lambda _: reply(next(said))) as server, server.connect(draws=8) as engine:
        answer = _ask(engine, _mark())
    # Two of the eight begin with a mark and name another; three are no mark at all.
    assert answer.probabilities == pytest.approx((0, 0, 0.2, 0, 0, 0, 0, 0.2, 0.6, 0))
    assert answer.mass == pytest.approx(5 / 8)


@pytest.mark.parametrize(("answer", "usable"), [("4", True), ("I can't say.", False)])
def test_ratings_are_tried_with_a_rating(answer: str, *, usable: bool) -> None:
    """A server of a rating model has no yes or no."""
    with ChatServer(lambda _: reply(answer)) as server:
        settings = Settings(
            engine={"kind": "openai", "model": "m", "draws": 4}, serving={"base_url": server.url}
        )
        tried = (
            nullcontext()
            if usable
            else pytest.raises(EngineError, match="can't be asked for ratings")
        )
        with tried:
            check_engine(settings.engine, settings.serving, choices=True)


def test_unreadable_replies_are_quoted() -> None:
    with (
        ChatServer(lambda _: reply("As an AI I don't rate films. " * 50)) as server,
        server.connect(draws=2) as engine,
    ):
        answer = _ask(engine, _mark())
    assert answer.status == "invalid"
    assert "none of 2 answers drawn is one of the options; the first: As an AI I" in answer.detail
    assert len(answer.detail) < 350


# Thoughts ------------------------------------------------------------------------------------

THOUGHT = "Between 3 and 5, I would say. "
DRESSES: dict[str, Callable[[str], Body]] = {
    "tags": lambda text: reply(f"<think>\n{THOUGHT}\n</think>\n\n{text}"),
    "empty tags": lambda text: reply(f"<think>\n\n</think>\n\n{text}"),
    "other tags": lambda text: reply(f"<Thinking>{THOUGHT}</Thinking>{text}"),
    "square tags": lambda text: reply(f"[THINK]{THOUGHT}[/THINK]{text}"),
    "marks": lambda text: reply(f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|>{text}"),
    "closing tag only": lambda text: reply(f"{THOUGHT}</think>{text}"),
    "field": lambda text: reply(text, reasoning_content=THOUGHT),
    "other field": lambda text: reply(text, reasoning=THOUGHT),
    "channels": lambda text: reply(
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>{text}"
    ),
    "parts": lambda text: reply(
        [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": text}]
    ),
}


@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES.keys())
def test_thoughts_are_stripped_from_ratings_and_texts(dress: Callable[[str], Body]) -> None:
    with ChatServer(lambda _: dress("8")) as server, server.connect(draws=2) as engine:
        assert engine.metadata()["thinks"] is True
        assert _ask(engine, _mark()).text == "8"
        free = _ask(engine, question("Go on.", sampling=Sampling(max_tokens=4)))
    assert (free.status, free.text, free.completion_tokens) == ("ok", "8", 7)


def test_limit_has_room_for_thoughts() -> None:
    def answer(body: Body) -> Body:
        if body["max_tokens"] < 100:
            return reply(None, "length", reasoning_content=THOUGHT)
        return reply("8", reasoning_content=THOUGHT)

    with ChatServer(answer) as server, server.connect(draws=2) as engine:
        assert _ask(engine, _mark()).status == "ok"


def test_model_that_thinks_only_about_hard_questions_gets_room() -> None:
    def answer(body: Body) -> Body:
        if "Stars" not in body["messages"][-1]["content"]:
            return reply("Red.")
        if body["max_tokens"] < 100:
            return reply(f"<think>{THOUGHT}", "length")
        return reply(f"<think>{THOUGHT}</think>8")

    with ChatServer(answer) as server, server.connect(draws=2) as engine:
        assert engine.metadata()["thinks"] is False
        assert _ask(engine, _mark()).text == "8"
        assert engine.metadata()["thinks"] is True


def test_thinking_is_turned_off_where_the_server_can() -> None:
    def answer(body: Body) -> Body:
        off = body.get("reasoning_effort") == "none"
        return reply("8") if off else reply("8", reasoning_content=THOUGHT)

    with ChatServer(answer) as server, server.connect(draws=2) as engine:
        assert engine.metadata()["thinking_switch"] == {"reasoning_effort": "none"}
        assert _ask(engine, _mark()).status == "ok"
        assert server.bodies[-1]["reasoning_effort"] == "none"
        assert server.bodies[-1]["max_tokens"] < 100


def test_thought_that_uses_up_the_limit_says_so() -> None:
    with (
        ChatServer(lambda _: reply(None, "length", reasoning_content=THOUGHT)) as server,
        server.connect(draws=2) as engine,
    ):
        free = _ask(engine, question("Go on.", sampling=Sampling(max_tokens=4)))
        mark = _ask(engine, _mark())
    assert (free.status, free.detail) == (
        "truncated",
        "the thought used up the limit of the answer",
    )
    assert mark.detail.endswith("the first: the thought used up the limit of the answer")


# Forms ---------------------------------------------------------------------------------------

PLAN = sentence_plan(["Ann likes ", Blank("what", (2, 4)), " and ", Blank("more", (1, 3)), "."])
FILLED = {"what": "Old films from Rome!", "more": "tea"}


def _by_schema(body: Body) -> Body:
    form = body.get("response_format", {})
    if form.get("type") != "json_schema":
        return reply("Old films.")
    if "zq" in form["json_schema"]["schema"]["properties"]:
        return reply('{"zq": "vx"}')
    return reply(json.dumps(FILLED))


def _without_patterns(body: Body) -> Body:
    form = json.dumps(body.get("response_format", {}))
    if "pattern" in form and "zq" not in form:
        raise RefusalError("unsupported pattern")
    return _by_schema(body)


def _in_json_mode(body: Body) -> Body:
    mode = body.get("response_format", {}).get("type")
    if mode == "json_schema":
        raise RefusalError("json_schema is not supported")
    return reply(json.dumps(FILLED) if mode == "json_object" else "Old films.")


def _in_lines(body: Body) -> Body:
    if "response_format" in body:
        raise RefusalError("response_format is not supported")
    if re.search(r"^what: ", body["messages"][-1]["content"], re.MULTILINE):
        return reply("Sure!\n**what**: Old films\nfrom Rome\n- more: Tea")
    return reply("Old films.")


@pytest.mark.parametrize("answer", [_by_schema, _without_patterns, _in_json_mode, _in_lines])
def test_grammar_is_asked_for_as_a_form(answer: Callable[[Body], Body]) -> None:
    with ChatServer(answer) as server, server.connect() as engine:
        written = _ask(engine, question("Who?", PLAN.constraint))
        shown = server.bodies[-1]["messages"][-1]["content"]
    assert (written.status, written.text) == ("ok", "Ann likes old films from rome and tea.")
    assert "Ann likes [what] and [more]." in shown


def test_form_with_an_answer_of_few_is_read() -> None:
    grammar = explanation(("1", "2"))
    text = '{"reason": "The film is long and quiet, and she likes that.", "answer": 2}'
    with ChatServer(lambda _: reply(f"```json\n{text}\n```")) as server, server.connect() as engine:
        written = _ask(engine, question("Why?", grammar.constraint))
    assert grammar.parse(written.text or "") == {
        "reason": "The film is long and quiet, and she likes that.",
        "answer": "2",
    }


def test_reply_that_does_not_fill_the_form_is_quoted() -> None:
    with ChatServer(lambda _: reply("I'd rather not.")) as server, server.connect() as engine:
        written = _ask(engine, question("Who?", PLAN.constraint))
    assert written.status == "invalid"
    assert 'breaks its constraint (grammar): "I\'d rather not."' in written.detail
