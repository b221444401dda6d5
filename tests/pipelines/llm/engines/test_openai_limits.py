"""Budgets, redaction and refused settings of a run."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from support import llm_faults as faults
from support.llm_api import KINDS
from support.llm_client import STARS, connect
from support.llm_server import LlmServer

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError, UnderstudyError
from pipelines.llm.answers import AnswerStore, ask
from pipelines.llm.engines import Answer, Choice, Request, Sampling, load_engine
from pipelines.llm.engines.openai import OpenAIEngine
from pipelines.llm.engines.openai._client import open_address
from pipelines.llm.engines.openai._limits import Budget
from pipelines.llm.engines.openai._replies import Usage
from pipelines.llm.engines.testing import question

KEY = "sk-live-93ad/7f+e1=="
SHORT = Sampling(max_tokens=2)
Serve = Callable[..., LlmServer]


def _questions(count: int, **fields: Any) -> Iterator[Request]:
    return (question(f"Film {n}?", Choice(STARS), **fields) for n in range(count))


def _until_it_ends(engine: OpenAIEngine, requests: Iterator[Request]) -> tuple[list[Answer], Any]:
    received: list[Answer] = []
    try:
        received.extend(engine.submit(requests))
    except EngineError as fault:
        return received, fault
    return received, None


# The budget ----------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 100), st.floats(0, 1)), max_size=60),
    st.integers(0, 3_000),
)
def test_no_order_of_requests_takes_a_run_over_its_tokens(
    requests: list[tuple[int, int, float]], most: int
) -> None:
    budget = Budget(ServingSettings(max_tokens=max(1, most)))
    flying = []
    for prompt, completion, share in requests:
        bound = Usage(prompt, completion)
        try:
            fits = budget.reserve(bound)
        except EngineError:
            continue
        if not fits:
            budget.settle(*flying.pop(0))
            continue
        used = Usage(prompt, int(completion * share)) if share < 0.9 else None
        flying.append((bound, used))
        spent = budget.spent + sum((b for b, _ in flying), Usage())
        assert spent.prompt + spent.completion <= max(1, most)
    for one, used in flying:
        budget.settle(one, used)
    assert budget.spent.prompt + budget.spent.completion <= max(1, most)
    assert budget.reserved == Usage()


def test_money_is_counted_by_the_prices_of_a_million_tokens() -> None:
    budget = Budget(ServingSettings(max_cost=1.0, input_price=2.0, output_price=10.0))
    used = Usage(100_000, 20_000)
    assert budget.reserve(used)
    budget.settle(used, used)
    assert budget.metadata()["cost"] == pytest.approx(0.2 + 0.2)
    with pytest.raises(EngineError, match=r"100000 tokens in, 20000 out, cost 0\.4000"):
        budget.reserve(Usage(0, 60_001))


def test_what_is_lost_counts_in_full_and_what_was_refused_counts_nothing() -> None:
    budget = Budget(ServingSettings(max_tokens=1_000))
    lost, refused = Usage(10, 5), Usage(100, 50)
    assert budget.reserve(lost)
    assert budget.reserve(refused)
    budget.settle(lost, None)
    budget.settle(refused, Usage())
    assert (budget.spent, budget.lost) == (lost, 1)


def test_a_limit_in_money_needs_prices() -> None:
    with pytest.raises(ConfigError, match="needs prices"):
        Budget(ServingSettings(max_cost=1.0))


def test_a_spent_budget_ends_the_run_with_every_paid_answer_and_says_what_was_spent(
    serve: Serve,
) -> None:
    server = serve()
    with connect(server) as engine:
        probing = engine.metadata()["spent"]
    start = probing["prompt_tokens"] + probing["completion_tokens"]
    with connect(server, max_tokens=start + 500) as engine:
        received, fault = _until_it_ends(engine, _questions(200, group="her"))
        spent = engine.metadata()["spent"]
    assert fault is not None
    assert f"{spent['prompt_tokens']} tokens in, {spent['completion_tokens']} out" in str(fault)
    assert f"serving.max_tokens {start + 500}" in str(fault)
    assert start + 400 < spent["prompt_tokens"] + spent["completion_tokens"] <= start + 500
    assert {a.status for a in received} == {"ok"}
    paid = sum(a.prompt_tokens + a.completion_tokens for a in received)
    assert start + paid == spent["prompt_tokens"] + spent["completion_tokens"]


@pytest.mark.pipeline
def test_a_budget_in_money_holds_with_many_requests_in_flight(serve: Serve) -> None:
    server = serve("hosted", latency=0.01)
    prices = {"input_price": 1_000.0, "output_price": 2_000.0}
    with connect(server, **prices) as engine:
        probing = engine.metadata()["spent"]["cost"]
    with connect(server, max_cost=probing + 2.0, concurrency=16, **prices) as engine:
        asked = (question(f"Film {n}?", sampling=SHORT) for n in range(500))
        received, fault = _until_it_ends(engine, asked)
        spent = engine.metadata()["spent"]["cost"]
    assert fault is not None
    assert 10 < len(received) < 500
    assert {a.status for a in received} <= {"ok", "truncated"}
    assert probing + 1.0 < spent <= probing + 2.0


def test_a_budget_too_small_for_the_probes_is_said_at_the_start(serve: Serve) -> None:
    with pytest.raises(EngineError, match="the budget is spent"):
        connect(serve(), max_tokens=20)


@given(st.integers(0, 10_000), st.integers(0, 500), st.integers(0, 10_000), st.integers(1, 20))
def test_shares_add_up_to_what_their_request_used(
    prompt: int, completion: int, cached: int, count: int
) -> None:
    used = Usage(prompt, completion, min(cached, prompt))
    parts = used.split(count)
    assert sum(parts, Usage()) == used
    assert all(0 <= part.cached <= part.prompt for part in parts)


# The key -------------------------------------------------------------------------------------


def _everything(engine: OpenAIEngine, answers: list[Answer]) -> str:
    return "\n".join(
        [repr(engine), repr(engine.identity), json.dumps(engine.metadata()), repr(engine.__dict__)]
        + [repr(a) for a in answers]
    )


def test_the_key_is_sent_and_told_to_nobody_else(
    serve: Serve, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve("hosted", key=KEY)
    with connect(server) as engine:
        server.break_where("one", faults.status(400, message=f"Bearer {KEY} was bad"))
        server.break_where("two", *[faults.status(500, message=f"trace: {KEY}")] * 3)
        texts = ("one", "two", "three")
        answers = list(engine.submit([question(t, sampling=SHORT) for t in texts]))
        shown = _everything(engine, answers)
    outcomes = {a.request.messages[0].content: (a.status, a.detail) for a in answers}
    assert outcomes["one"] == ("invalid", "HTTP 400: Bearer [key] was bad")
    assert outcomes["two"] == ("engine_error", "HTTP 500: trace: [key] after 3 tries")
    assert outcomes["three"][0] in ("ok", "truncated")
    assert all(e.headers["authorization"] == f"Bearer {KEY}" for e in server.asked())
    out, err = capfd.readouterr()
    assert "127.0.0.1" in caplog.text, "the log was on"
    for place in (shown, caplog.text, out, err):
        assert KEY not in place


def test_nothing_that_is_stored_has_the_key(serve: Serve, tmp_path: Path) -> None:
    server = serve("hosted", key=KEY)
    serving = ServingSettings(
        base_url=server.url, api_key=SecretStr(KEY), retries=0, error_budget=1
    )
    with connect(server, retries=0) as engine, AnswerStore(tmp_path, serving=serving) as store:
        server.break_where("one", faults.status(400, message=f"Bearer {KEY} was bad"))
        server.break_where("two", faults.status(500, message=f"trace: {KEY}"))
        asked = [question(t, sampling=SHORT) for t in ("one", "two", "three")]
        answers = list(ask(engine, asked, store, serving=serving))
    assert len(answers) == 3
    files = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert [f for f in files if f.suffix == ".sqlite"]
    for file in files:
        assert KEY.encode() not in file.read_bytes(), file


def test_a_key_that_the_server_repeats_is_replaced_in_its_reply(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve("hosted", key=KEY)
    reply = '{"choices": [{"index": 0, "message": {"content": "KEY"}, "finish_reason": "stop"}]}'
    with connect(server) as engine:
        server.break_next(faults.raw(reply.replace("KEY", f"You sent {KEY}").encode()))
        answers = list(engine.submit([question("Well?", sampling=SHORT)]))
        shown = _everything(engine, answers)
    assert answers[0].text == "You sent [key]"
    assert KEY not in shown + caplog.text


@pytest.mark.parametrize("given", [None, "sk-wrong-1"])
def test_a_key_that_is_refused_is_said_without_it(serve: Serve, given: str | None) -> None:
    server = serve("hosted", key=KEY)
    with pytest.raises(EngineError, match="UNDERSTUDY_SERVING__API_KEY") as caught:
        connect(server, api_key=given)
    assert "sk-" not in "".join(traceback.format_exception(caught.value))


def test_the_key_goes_to_no_other_host(serve: Serve) -> None:
    server, other = serve("hosted", key=KEY), serve("hosted")
    with connect(server) as engine:
        server.always = faults.redirect(other.url + "/chat/completions")
        with pytest.raises(EngineError, match="redirects"):
            list(engine.submit([question("Well?", sampling=SHORT)]))
    assert other.log == []


def test_no_header_is_sent_but_the_usual_ones_and_the_key(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "sk-of-somebody")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: sk-of-somebody\nX-Team: films")
    usual = {"host", "accept", "accept-encoding", "connection", "user-agent"}
    for key, more in ((KEY, {"authorization"}), (None, set())):
        server = serve("hosted", key=key)
        with connect(server) as engine:
            list(engine.submit([question("Well?", sampling=SHORT)]))
        for entry in server.log:
            assert entry.headers.keys() - {"content-length", "content-type"} == usual | more
            assert "sk-of-somebody" not in str(entry.headers)


# Settings ------------------------------------------------------------------------------------


def _address(base_url: str, key: str | None = KEY) -> str:
    serving = ServingSettings(base_url=base_url, api_key=SecretStr(key) if key else None)
    return open_address(serving).api


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://127.0.0.1:8000/v1/",
        "http://localhost/v1",
        "http://10.1.2.3:8000/v1",
        "http://gpu-7:8000/v1",
        "http://vllm.models.svc.cluster.local/v1",
    ],
)
def test_addresses_to_which_a_key_may_go(url: str) -> None:
    assert _address(url) == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://api.example.com/v1", "unencrypted"),
        ("http://8.8.8.8/v1", "unencrypted"),
        ("ftp://host/v1", "not an http"),
        ("nothing", "not an http"),
        ("http://[::1", "not an address"),
        (f"https://user:{KEY.replace('/', '')}@host/v1", "no credentials"),
        ("https://host/v1?key=abc", "no credentials"),
    ],
)
def test_addresses_to_which_none_may_go(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        _address(url)
    assert "sk-live" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_plain_http_is_fine_where_no_key_is_sent() -> None:
    assert _address("http://api.example.com/v1", None) == "http://api.example.com/v1"


@pytest.mark.parametrize("key", ["with space", "new\nline", "schlüssel"])
def test_a_key_that_no_header_carries_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match="invalid characters") as caught:
        _address("https://host/v1", key)
    assert key not in str(caught.value)


def test_a_model_that_the_server_has_not_is_refused_with_what_it_has(serve: Serve) -> None:
    server = serve()
    server.name = "tiny-2m"
    with pytest.raises(ConfigError, match=r"no model tiny-2m.*it lists tiny-1m"):
        connect(server)


def test_the_configured_tokenizer_must_be_the_model_s(
    serve: Serve, tiny_model: Path, tmp_path: Path
) -> None:
    with connect(serve(), tokenizer=tiny_model) as engine:
        facts = engine.metadata()
        assert facts["tokens"] == "serving.tokenizer"
        assert facts["probes"]["tokenizer"] == "the same as the server's"
        assert len(engine.identity.tokenizer) == 64
    other = json.loads((tiny_model / "tokenizer.json").read_text())
    other["model"]["merges"] = other["model"]["merges"][:300]
    (tmp_path / "tokenizer.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match="does not belong to the server's model"):
        connect(serve(), tokenizer=tmp_path / "tokenizer.json")


def test_with_a_tokenizer_here_the_server_tokenizes_no_prompt(
    serve: Serve, tiny_model: Path
) -> None:
    server = serve()
    with connect(server, tokenizer=tiny_model) as engine:
        before = len(server.asked("/tokenize"))
        here = {a.request: a for a in engine.submit(_questions(10))}
        assert len(server.asked("/tokenize")) == before
    with connect(server) as engine:
        there = {a.request: a for a in engine.submit(_questions(10))}
    assert {r: a.probabilities for r, a in here.items()} == {
        r: a.probabilities for r, a in there.items()
    }


def test_the_identity_says_what_answers_and_not_where(serve: Serve) -> None:
    servers = [serve(), serve(), serve(KINDS["vllm"].without("logprob_token_ids"))]
    found = []
    for server, more in zip(servers, ({}, {"concurrency": 2, "window": 3}, {}), strict=True):
        with connect(server, **more) as engine:
            found.append(engine.identity)
    assert found[0] == found[1]
    assert found[0].engine_version == "vllm 0.0.test; choices by token_ids"
    assert found[2].engine_version == "vllm 0.0.test; choices by ranks 20"
    assert str(servers[0].url) not in repr(found[0])


def test_the_registry_opens_it_from_settings(serve: Serve) -> None:
    server = serve()
    engine = load_engine(
        EngineSettings(kind="openai", model=server.name), ServingSettings(base_url=server.url)
    )
    assert [a.status for a in engine.submit(_questions(2))] == ["ok", "ok"]
    engine.close()
    with pytest.raises(UnderstudyError, match="needs a model"):
        OpenAIEngine(EngineSettings(kind="openai"), ServingSettings(base_url=server.url))
