"""Servers that misbehave: each row ends in one answer with the right status, or the run ends."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from support import llm_faults as faults
from support.llm_api import KINDS, Kind
from support.llm_client import STARS, connect
from support.llm_faults import Fault
from support.llm_server import LlmServer, self_signed

from pipelines.config import ServingSettings
from pipelines.errors import EngineError
from pipelines.llm.answers import AnswerStore, ask
from pipelines.llm.engines import Answer, Choice, JsonSchema, Request, Sampling
from pipelines.llm.engines.openai import OpenAIEngine
from pipelines.llm.engines.testing import CONSTRAINTS, question

pytestmark = pytest.mark.faults

Serve = Callable[..., LlmServer]
Body = dict[str, Any]
Pair = tuple[LlmServer, OpenAIEngine]

SHORT = Sampling(max_tokens=2)


@pytest.fixture(scope="module")
def vllm(tiny_model: Path) -> Iterator[Pair]:
    """A server of vLLM's kind and an engine on it, for tests that leave both as they were."""
    with LlmServer(tiny_model, "vllm") as server, connect(server, timeout=1.0) as engine:
        yield server, engine


@pytest.fixture(scope="module")
def hosted(tiny_model: Path) -> Iterator[Pair]:
    """The same of a hosted kind."""
    with LlmServer(tiny_model, "hosted") as server, connect(server, timeout=1.0) as engine:
        yield server, engine


def _ask(engine: OpenAIEngine, *requests: Request) -> list[Answer]:
    """Answers in the order of their requests."""
    found = {id(a.request): a for a in engine.submit(list(requests))}
    assert len(found) == len(requests)
    return [found[id(r)] for r in requests]


def _stars(count: int, **fields: Any) -> list[Request]:
    return [question(f"Film {n}?", Choice(STARS), **fields) for n in range(count)]


HTML = b"<!doctype html><html><body>502 Bad Gateway</body></html>"
PASSING = {
    "cut": faults.truncated(),
    "reset": faults.reset(),
    "hang up": faults.hang_up(),
    "500": faults.status(500),
    "502": faults.raw(HTML, "text/html", 502),
    "503": faults.status(503),
    "529": faults.status(529),
    "429": faults.status(429, retry_after=0.02),
    "503 with wait": faults.status(503, retry_after=0.02),
    "empty body": faults.raw(b""),
    "garbage": faults.raw(b"\x00\xff{not json"),
    "HTML with 200": faults.raw(HTML, "text/html"),
    "a list": faults.raw(b"[1, 2]"),
    "no answers": faults.raw(b'{"choices": []}'),
    "answers that are none": faults.raw(b'{"choices": [7]}'),
    "error with 200": faults.raw(b'{"error": {"message": "upstream", "code": 503}}'),
    "a stream": faults.raw(b'data: {"choices": []}\n\ndata: [DONE]\n\n', "text/event-stream"),
    "drip": faults.drip(0.3),
    "slow": faults.slow(3.0),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_a_passing_fault_is_tried_again_and_leaves_no_trace(vllm: Pair, fault: Fault) -> None:
    server, engine = vllm
    want = [a.probabilities for a in _ask(engine, *_stars(3))]
    tried = engine.metadata()["retries"]
    server.break_next(fault)
    answers = _ask(engine, *_stars(3))
    assert [a.status for a in answers] == ["ok"] * 3
    assert [a.probabilities for a in answers] == want
    assert engine.metadata()["retries"] == tried + 1


LASTING = {
    "500": (faults.status(500, message="out of memory"), "HTTP 500: out of memory after 3 tries"),
    "garbage": (faults.raw(b"{not json"), "the answer is not a JSON object after 3 tries"),
    "empty": (faults.raw(b""), "the answer is empty after 3 tries"),
    "HTML": (faults.raw(HTML, "text/html"), "the answer is an HTML page after 3 tries"),
    "cut": (faults.truncated(), "the connection broke (RemoteProtocolError) after 3 tries"),
    "slow": (faults.slow(2.0), "timeout after 3 tries"),
}


@pytest.mark.parametrize(("fault", "detail"), LASTING.values(), ids=LASTING.keys())
def test_a_row_whose_fault_lasts_is_one_engine_error_among_good_rows(
    hosted: Pair, fault: Fault, detail: str
) -> None:
    server, engine = hosted
    server.break_where("poison", *[fault] * 3)
    requests = [question(text, sampling=SHORT) for text in ("a", "poison", "b")]
    answers = _ask(engine, *requests)
    assert [a.status == "engine_error" for a in answers] == [False, True, False]
    assert (answers[1].detail, answers[1].text) == (detail, None)


@pytest.mark.parametrize(
    ("fault", "status"),
    [(faults.status(400, message="bad prompt"), "invalid"), (faults.status(500), "engine_error")],
    ids=["400", "500"],
)
def test_one_bad_prompt_spoils_no_other_prompt_of_its_request(
    serve: Serve, fault: Fault, status: str
) -> None:
    server = serve()
    requests = _stars(7, group="her")
    bad = server.model.encode(server.model.prompt([{"role": "user", "content": "Film 3?"}]))
    with connect(server) as engine:
        server.break_where(lambda body: bad in body["prompt"], *[fault] * 30)
        answers = _ask(engine, *requests)
    assert [a.status for a in answers] == ["ok"] * 3 + [status] + ["ok"] * 3


FINAL = {
    "400": (faults.status(400, message="no such field"), "invalid", "HTTP 400: no such field"),
    "422": (faults.status(422, message="bad"), "invalid", "HTTP 422: bad"),
    "413": (faults.status(413), "invalid", "HTTP 413"),
    "filtered": (
        faults.status(400, message="flagged", error={"code": "content_filter"}),
        "refused",
        "HTTP 400: flagged",
    ),
}


@pytest.mark.parametrize(("fault", "status", "detail"), FINAL.values(), ids=FINAL.keys())
def test_what_another_try_cannot_change_is_tried_once(
    hosted: Pair, fault: Fault, status: str, detail: str
) -> None:
    server, engine = hosted
    server.break_next(fault)
    before = len(server.asked())
    [answer] = _ask(engine, question("poison", sampling=SHORT))
    assert answer.status == status
    assert answer.detail.startswith(detail)
    assert len(server.asked()) == before + 1


def _message(**fields: Any) -> Fault:
    def change(body: Body) -> Body:
        choice = body["choices"][0]
        choice["message"].update({k: v for k, v in fields.items() if k != "finish_reason"})
        choice["finish_reason"] = fields.get("finish_reason", choice["finish_reason"])
        return body

    return faults.edit(change)


REPLIES = {
    "refusal": (_message(refusal="I can't.", content=None), "refused", "I can't."),
    "filter": (_message(finish_reason="content_filter"), "refused", "content filter"),
    "tool call": (_message(content=None, finish_reason="tool_calls"), "invalid", "no text"),
    "thought only": (_message(content=None, finish_reason="length"), "truncated", ""),
}


@pytest.mark.parametrize(("fault", "status", "detail"), REPLIES.values(), ids=REPLIES.keys())
def test_replies_that_are_no_answers_say_what_they_are(
    hosted: Pair, fault: Fault, status: str, detail: str
) -> None:
    server, engine = hosted
    server.break_next(fault)
    [answer] = _ask(engine, question("Well?", sampling=SHORT))
    assert answer.status == status
    assert detail in answer.detail
    assert not answer.text


def test_a_right_answer_of_the_wrong_content_type_is_taken(hosted: Pair) -> None:
    server, engine = hosted
    choice = {"index": 0, "message": {"content": "Well."}, "finish_reason": "stop"}
    server.break_next(faults.raw(json.dumps({"choices": [choice]}).encode(), "text/plain"))
    [answer] = _ask(engine, question("Well?", sampling=SHORT))
    assert (answer.status, answer.text) == ("ok", "Well.")


def test_constraint_without_server_support_is_checked_here(
    serve: Serve,
) -> None:
    server = serve("ollama")
    with connect(server) as engine:
        facts = engine.metadata()
        free, regex, schema = _ask(
            engine,
            question("Free.", sampling=Sampling(max_tokens=4)),
            question("Say.", CONSTRAINTS["regex"]),
            question("Say.", CONSTRAINTS["json"]),
        )
    assert facts["constraints"] == (
        "checked here; grammars are asked for as fields of JSON under a schema with patterns"
    )
    assert free.status in ("ok", "truncated")
    assert regex.status in ("invalid", "truncated")
    assert schema.status == "ok"
    assert json.loads(schema.text or "").keys() == {"genre", "liked"}


def test_a_reply_that_breaks_its_constraint_is_invalid_though_the_server_says_ok(
    vllm: Pair,
) -> None:
    server, engine = vllm

    def lie(body: Body) -> Body:
        body["choices"][0]["text"] = "violet 7"
        return body

    server.break_next(faults.edit(lie))
    [answer] = _ask(engine, question("Say.", CONSTRAINTS["regex"]))
    assert (answer.status, answer.text) == ("invalid", None)
    assert "breaks its constraint (regex): 'violet 7'" in answer.detail


def test_json_with_other_white_space_is_written_in_the_usual_one(vllm: Pair) -> None:
    server, engine = vllm

    def spread(body: Body) -> Body:
        body["choices"][0]["text"] = '{\n  "n":1\n}'
        body["choices"][0]["finish_reason"] = "stop"
        return body

    schema = '{"type":"object","properties":{"n":{"const":1}},"required":["n"]}'
    server.break_next(faults.edit(spread))
    # The model's own text is thrown away: a few tokens of it are enough.
    [answer] = _ask(engine, question("Say.", JsonSchema(schema), sampling=Sampling(max_tokens=4)))
    assert (answer.status, answer.text) == ("ok", '{"n": 1}')


# Waiting -------------------------------------------------------------------------------------


def test_retry_after_is_honoured_in_seconds_and_as_a_date(serve: Serve) -> None:
    server = serve()
    with connect(server) as engine:
        for named in (False, True):
            soon = datetime.now(UTC) + timedelta(seconds=2.5)
            wait = format_datetime(soon, usegmt=True) if named else 0.3
            server.break_next(faults.status(429, retry_after=wait))
            [answer] = _ask(engine, *_stars(1))
            assert answer.status == "ok"
        refused, received = (e for e in server.asked()[-4:-2]), server.asked()[-3]
        assert received.at - next(refused).at >= 0.3
        assert server.asked()[-1].at - server.asked()[-2].at >= 0.4
        assert engine.metadata()["paused_seconds"] >= 0.7


def test_a_wait_that_is_too_long_ends_the_run_and_says_so(serve: Serve) -> None:
    server = serve()
    with connect(server, max_wait=10.0) as engine:
        server.break_next(faults.status(429, retry_after=3_600))
        with pytest.raises(EngineError, match=r"asks to wait 3600 s.*serving.max_wait"):
            _ask(engine, *_stars(1))


def test_a_storm_of_429_ends_after_bounded_tries(serve: Serve) -> None:
    server = serve()
    with connect(server, retries=3) as engine:
        before = len(server.asked())
        server.always = faults.status(429, retry_after=0.01)
        with pytest.raises(EngineError, match="limits the rate after 4 pauses"):
            _ask(engine, *_stars(1))
        assert len(server.asked()) - before == 5


def test_concurrency_settles_below_what_the_server_bears(serve: Serve) -> None:
    server = serve("hosted", latency=0.02)
    with connect(server, concurrency=32, window=64, retries=10) as engine:
        server.most = 3
        small = Sampling(max_tokens=1)
        answers = _ask(engine, *(question(f"Film {n}?", sampling=small) for n in range(100)))
        limit = engine.metadata()["concurrency"]
    assert {a.status for a in answers} <= {"ok", "truncated"}
    assert limit["cuts"] >= 1
    refused = [e for e in server.asked() if e.status == 429]
    assert 0 < len(refused) < len(answers)
    assert limit["limit"] <= 8


# The end of the run --------------------------------------------------------------------------


ENDS = {
    "401": (faults.status(401), "refuses the key"),
    "403": (faults.status(403), "refuses the key"),
    "402": (faults.status(402, message="pay"), "can't be used"),
    "404": (faults.status(404, message="no such model"), "does not know"),
    "redirect": (faults.redirect("http://127.0.0.1:9/v1"), "redirects"),
    "no credit": (faults.status(429, error={"code": "insufficient_quota"}), "no credit"),
}


@pytest.mark.parametrize(("fault", "words"), ENDS.values(), ids=ENDS.keys())
def test_what_no_request_can_get_round_ends_the_run_at_once(
    serve: Serve, fault: Fault, words: str
) -> None:
    server = serve()
    with connect(server) as engine:
        before = len(server.asked())
        server.always = fault
        with pytest.raises(EngineError, match=words):
            _ask(engine, *_stars(3))
        assert len(server.asked()) == before + 1


def test_a_server_that_dies_ends_the_run_after_the_answers_that_came(serve: Serve) -> None:
    server = serve("hosted")
    with connect(server, concurrency=2, window=4) as engine:
        answers = engine.submit(
            question(f"{n}?", sampling=Sampling(max_tokens=1)) for n in range(99)
        )
        received = [next(answers) for _ in range(10)]
        server.stop()
        with pytest.raises(EngineError, match=r"does not answer.*received answers are stored"):
            received.extend(answers)
    assert 10 <= len(received) < 99


def test_no_server_is_said_at_the_start(serve: Serve) -> None:
    server = serve()
    server.stop()
    with pytest.raises(EngineError, match="does not answer"):
        connect(server)


def test_leaving_early_cancels_what_is_in_flight(serve: Serve) -> None:
    server = serve("hosted")
    with connect(server, concurrency=4, window=16) as engine:
        before = len(server.asked())
        server.latency = 0.3
        answers = engine.submit(question(f"{n}?", sampling=SHORT) for n in range(1_000))
        next(answers)
        answers.close()
        server.latency = 0.0
        [answer] = _ask(engine, question("Still there?", sampling=SHORT))
        assert answer.status in ("ok", "truncated")
        assert len(server.asked()) - before < 20


def test_an_interrupt_comes_through_and_stops_the_work(serve: Serve) -> None:
    server = serve("hosted")
    with connect(server, concurrency=4, window=16) as engine:
        before = len(server.asked())
        server.latency = 0.5
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            list(engine.submit(question(f"{n}?", sampling=SHORT) for n in range(1_000)))
        server.latency = 0.0
        [answer] = _ask(engine, question("Still there?", sampling=SHORT))
        assert answer.status in ("ok", "truncated")
        assert len(server.asked()) - before < 20


def test_closing_while_an_iteration_is_open_ends_it_with_an_error(serve: Serve) -> None:
    server = serve("hosted")
    engine = connect(server, concurrency=2, window=4)
    server.latency = 0.2
    answers = engine.submit(question(f"{n}?", sampling=SHORT) for n in range(50))
    next(answers)
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        list(answers)


# Readings that can't be --------------------------------------------------------------------


def _every_logprob(value: Any) -> Fault:
    """Answer rightly, but with this log-probability for every token."""

    def change(found: Any) -> Any:
        if isinstance(found, list):
            return [change(f) for f in found]
        if not isinstance(found, dict):
            return found
        out = {}
        for name, inner in found.items():
            if name == "logprob":
                out[name] = value
            elif name == "token_logprobs":
                out[name] = [None if v is None else value for v in inner]
            elif name == "top_logprobs" and isinstance(inner, list) and inner:
                flat = not any(isinstance(e, dict) and "logprob" in e for e in inner)
                out[name] = (
                    [e and dict.fromkeys(e, value) for e in inner] if flat else change(inner)
                )
            else:
                out[name] = change(inner)
        return out

    return faults.edit(change)


READINGS = {
    "token_ids": KINDS["vllm"],
    "ranks": KINDS["hosted"],
}


@pytest.mark.parametrize("value", [5.0, 0.5, -0.05], ids=["5", "one half", "sum above 1"])
@pytest.mark.parametrize("kind", READINGS.values(), ids=READINGS.keys())
def test_impossible_probabilities_in_a_run_are_invalid(
    serve: Serve, tmp_path: Path, kind: Kind, value: float
) -> None:
    server = serve(kind)
    tolerant = ServingSettings(error_budget=1.0)
    with connect(server) as engine, AnswerStore(tmp_path) as store:
        server.always = _every_logprob(value)
        rows = list(ask(engine, _stars(3), store, serving=tolerant))
        assert {answer.status for _, _, answer in rows} == {"invalid"}
        assert all(answer.probabilities is None and answer.detail for _, _, answer in rows)
    assert store.stats().statuses["ok"] == 0


# Which model answered ----------------------------------------------------------------------


def _names(model: str | None) -> Fault:
    def change(body: Body) -> Body:
        return {k: v for k, v in body.items() if k != "model"} | ({"model": model} if model else {})

    return faults.edit(change)


@pytest.mark.parametrize("kind", ["vllm", "hosted"])
def test_the_model_that_answered_is_in_detail_and_facts(
    serve: Serve, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(kind)
    with connect(server) as engine, AnswerStore(tmp_path) as store:
        identity = engine.identity
        server.always = _names("other-7b")
        requests = [question(f"{n}?", sampling=SHORT) for n in range(20)]
        details = {a.detail for _, _, a in ask(engine, requests, store, serving=ServingSettings())}
        facts = engine.metadata()
        assert engine.identity == identity, "keys of stored answers do not move"
    assert details == {f"served by other-7b (fp_{kind})"}
    assert {stored.detail for stored in store.select(limit=99)} == details
    assert facts["answered_by"] == ["other-7b", "tiny-1m"]
    assert facts["fingerprints"] == [f"fp_{kind}"]
    assert caplog.text.count("answers as other-7b") == 1


@pytest.mark.parametrize(("name", "shown"), [("other-7b", "other-7b"), (None, "no model by name")])
def test_require_model_exact_refuses_another_model(
    serve: Serve, tmp_path: Path, name: str | None, shown: str
) -> None:
    server = serve("hosted")
    with connect(server, require_model="exact") as engine, AnswerStore(tmp_path) as store:
        assert _ask(engine, question("Well?", sampling=SHORT))[0].status == "truncated"
        server.always = _names(name)
        with pytest.raises(EngineError, match=f"answers as {shown}, not as tiny-1m"):
            list(ask(engine, [question("Well?")], store, serving=ServingSettings()))
    assert store.stats().answers == 0


# Keys, certificates, order -----------------------------------------------------------------


def test_a_key_that_expires_stops_the_run_and_a_new_key_asks_the_rest(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve("hosted", key="sk-first")
    requests = [question(f"{n}?", sampling=SHORT) for n in range(40)]
    with connect(server, window=4) as engine, AnswerStore(tmp_path) as store:
        rows = ask(engine, requests, store, serving=ServingSettings())
        for _ in range(10):
            next(rows)
        server.key = "sk-second"
        with pytest.raises(EngineError) as caught:
            list(rows)
    stored = store.stats().answers
    assert 10 <= stored < 40
    text = str(caught.value)
    assert "refuses the key (HTTP 401)" in text
    assert "set UNDERSTUDY_SERVING__API_KEY to a valid key" in text
    assert f"{stored} answers of this run are stored in {store.folder}" in text
    assert "run again: only the rest is requested" in text
    with connect(server) as engine, AnswerStore(tmp_path) as store:
        before = len(server.asked())
        assert len(list(ask(engine, requests, store, serving=ServingSettings()))) == 40
        assert len(server.asked()) - before == 40 - stored


def test_a_self_signed_certificate_is_said_and_can_be_trusted(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path)
    server = serve("hosted", certificate=(certificate, key))
    assert server.url.startswith("https://")
    with pytest.raises(EngineError) as caught:
        connect(server)
    text = str(caught.value)
    assert "certificate is not trusted (self-signed certificate)" in text
    assert "SSL_CERT_FILE" in text
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with connect(server) as engine:
        assert _ask(engine, question("Well?", sampling=SHORT))[0].status == "truncated"


def test_https_to_a_server_without_tls_is_said(serve: Serve) -> None:
    server = serve("hosted")
    with pytest.raises(EngineError, match=r"no TLS connection.*http://"):
        connect(server, base_url=server.url.replace("http://", "https://"))
