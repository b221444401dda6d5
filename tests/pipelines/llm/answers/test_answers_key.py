"""The key of an answer: what is in it, what is not, and that it never moves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calls import IDENTITY, question

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.answers import (
    EXCLUDED,
    INCLUDED,
    KEY_SCHEME,
    answer_key,
    answer_keys,
    canonical_request,
)
from pipelines.llm.engines import (
    Choice,
    EngineIdentity,
    GrammarConstraint,
    JsonSchema,
    Message,
    Regex,
    Request,
    Sampling,
)

BARE = EngineIdentity("e", "1", "m")
BASE = Request(
    (Message("system", "You are a person."), Message("user", "How many stars?")),
    constraint=Choice(("1", "2", "10")),
    sampling=Sampling(0.7, 0.9, 64, ("\n",)),
    seed=3,
    replicate=2,
)

#: Never change these: a key that moves makes every stored answer unreachable.
GOLDEN: dict[str, tuple[EngineIdentity, Request, str]] = {
    "empty": (
        BARE,
        Request(),
        "a13675de9f73452c0b5198800021e62eb540bdd2f7b9c4c27539abfe05481433",
    ),
    "plain": (
        IDENTITY,
        Request((Message("user", "How many stars?"),)),
        "1bd7d80085b1308d13a1a51052b023dc8488eb80b1fe9fdf141c9de07323c7a5",
    ),
    "conversation": (
        IDENTITY,
        Request(
            (
                Message("system", 'You are a person who likes ünïcode \u2028 and "quotes".'),
                Message("user", "How many stars?"),
                Message("assistant", "I give "),
            ),
            constraint=Choice(("1", "2", "10")),
            seed=3,
            replicate=2,
        ),
        "86a9ba61c216be10f0049671e10c024965ea04810f66c6b3cf4f5b6647f74de9",
    ),
    "tokens": (
        IDENTITY,
        Request(tokens=(1, 15043, 29871), sampling=Sampling(0.7, 0.9, 64, ("\n",))),
        "53500fa9206ed76b0599db861a26120548a4ae03f5f3f7da172dc5240d69709f",
    ),
    "json": (
        IDENTITY,
        Request((Message("user", "x"),), constraint=JsonSchema('{"type":"object"}')),
        "02528143ff6d9d477a1a27970facc06c40692b7a08137e3fccfbc01686319f31",
    ),
    "regex": (
        IDENTITY,
        Request((Message("user", "x"),), constraint=Regex("[a-z]{3}")),
        "1c55e20cb4b1510572a2a621ae90d5ceaf64e3c118e2aeb797610f98f8f7c0b2",
    ),
    "grammar": (
        IDENTITY,
        Request((Message("user", "x"),), constraint=GrammarConstraint("start: /a/")),
        "883275190dd94bd023e0ec3a7c309ebf14ea0f58bc3fffc3c93ebb2aa94ab261",
    ),
    "what orjson refuses": (
        IDENTITY,
        Request((Message("user", "\ud800"),), seed=2**70),
        "6fd8d5c03118c269373757c3561044ae2dc088118490be68ef3c2e39d7148745",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_frozen_keys_have_not_moved(name: str) -> None:
    identity, request, key = GOLDEN[name]
    assert answer_key(identity, request) == key
    assert answer_keys(identity, [request]) == [key]


def test_a_key_is_the_hash_of_the_canonical_json_that_the_page_describes() -> None:
    document = {
        "constraint": {"choice": ["1", "2", "10"]},
        "engine": {
            "dtype": "",
            "engine": "e",
            "engine_version": "1",
            "model": "m",
            "quantisation": "none",
            "revision": "",
            "tokenizer": "",
            "weights": "",
        },
        "key_scheme": 1,
        "messages": [["system", "You are a person."], ["user", "How many stars?"]],
        "replicate": 2,
        "sampling": {"stop": ["\n"], "temperature": 0.7, "top_p": 0.9},
        "seed": 3,
        "tokens": [],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert answer_key(BARE, BASE) == hashlib.sha256(text.encode()).hexdigest()
    assert KEY_SCHEME == 1


def test_every_field_is_decided_in_exactly_one_of_the_tables() -> None:
    known = {f"request.{f.name}" for f in fields(Request)} - {"request.sampling"}
    known |= {f"request.sampling.{f.name}" for f in fields(Sampling)}
    known |= {f"identity.{f.name}" for f in fields(EngineIdentity)}
    known |= {f"engine.{name}" for name in EngineSettings.model_fields}
    known |= {f"serving.{name}" for name in ServingSettings.model_fields}
    assert not INCLUDED.keys() & EXCLUDED.keys()
    assert known - INCLUDED.keys() - EXCLUDED.keys() == set(), "decide: hashed or not, and why"
    assert (INCLUDED.keys() | EXCLUDED.keys()) - known == set(), "no such field"
    assert all(INCLUDED.values())
    assert all(EXCLUDED.values())


Change = Callable[[Request], Request]


def sampled(**changes: Any) -> Change:
    return lambda r: replace(r, sampling=replace(r.sampling, **changes))


INCLUDE: dict[str, list[Change]] = {
    "request.messages": [
        lambda r: replace(r, messages=r.messages[1:]),
        lambda r: replace(r, messages=r.messages[::-1]),
        lambda r: replace(r, messages=(Message("user", "You are a person."), r.messages[1])),
        lambda r: replace(r, messages=(r.messages[0], Message("user", "How many stars? "))),
    ],
    "request.tokens": [
        lambda r: replace(r, messages=(), tokens=(1, 2)),
        lambda r: replace(r, messages=(), tokens=(2, 1)),
        lambda r: replace(r, messages=(), tokens=(12,)),
    ],
    "request.constraint": [
        lambda r: replace(r, constraint=None),
        lambda r: replace(r, constraint=Choice(("1", "2", "1", "0"))),
        lambda r: replace(r, constraint=Choice(("2", "1", "10"))),
        lambda r: replace(r, constraint=Regex("1|2|10")),
        lambda r: replace(r, constraint=GrammarConstraint("1|2|10")),
        lambda r: replace(r, constraint=JsonSchema("1|2|10")),
    ],
    "request.sampling.temperature": [sampled(temperature=0.0), sampled(temperature=0.71)],
    "request.sampling.top_p": [sampled(top_p=1.0)],
    "request.sampling.min_p": [sampled(min_p=0.05)],
    "request.sampling.repetition_penalty": [sampled(repetition_penalty=1.1)],
    "request.sampling.stop": [sampled(stop=()), sampled(stop=("\n", "\n"))],
    "request.seed": [lambda r: replace(r, seed=4)],
    "request.replicate": [lambda r: replace(r, replicate=3)],
}


def test_what_is_included_changes_the_key() -> None:
    asked = {name for name in INCLUDED if name.startswith("request.")}
    assert INCLUDE.keys() == asked
    made = [change(BASE) for changes in INCLUDE.values() for change in changes]
    keys = answer_keys(IDENTITY, [BASE, *made])
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("field", [f.name for f in fields(EngineIdentity)])
def test_every_part_of_the_engines_identity_changes_the_key(field: str) -> None:
    assert f"identity.{field}" in INCLUDED
    other = replace(IDENTITY, **{field: getattr(IDENTITY, field) + "x"})
    assert answer_key(other, BASE) != answer_key(IDENTITY, BASE)


EXCLUDE: dict[str, list[Change]] = {
    "request.group": [lambda r: replace(r, group="hers"), lambda r: replace(r, group="")],
    "request.tag": [lambda r: replace(r, tag=7), lambda r: replace(r, tag=object())],
    "request.sampling.max_tokens": [sampled(max_tokens=1), sampled(max_tokens=2**40)],
}


def test_what_is_excluded_does_not_change_the_key() -> None:
    assert EXCLUDE.keys() == {name for name in EXCLUDED if name.startswith("request.")}
    made = [change(BASE) for changes in EXCLUDE.values() for change in changes]
    assert set(answer_keys(IDENTITY, [BASE, *made])) == {answer_key(IDENTITY, BASE)}


def test_equal_numbers_have_equal_keys_however_they_are_written() -> None:
    whole = replace(BASE, sampling=Sampling(temperature=1, top_p=1))
    real = replace(BASE, sampling=Sampling(temperature=1.0, top_p=1.0))
    assert answer_key(IDENTITY, whole) == answer_key(IDENTITY, real)
    none, minus = (replace(BASE, sampling=Sampling(temperature=t)) for t in (0.0, -0.0))
    assert answer_key(IDENTITY, none) == answer_key(IDENTITY, minus)


ODD = [
    Request(),
    question("\x00"),
    question("\udfff"),
    question("x", constraint=object()),
    question("x", constraint=Choice(())),
    question("x", seed=-(2**80)),
    question("x", sampling=Sampling(temperature=float("nan"))),
    question("x", sampling=Sampling(temperature=float("inf"))),
    question("x", sampling=Sampling(max_tokens=2**80)),
    Request(tokens=(2**70,)),
]


def test_requests_that_no_model_can_serve_have_keys_too() -> None:
    keys = answer_keys(IDENTITY, ODD)
    assert len(set(keys)) == len(ODD)
    assert all(len(key) == 64 and int(key, 16) >= 0 for key in keys)


def test_the_request_for_people_is_json_with_the_budget() -> None:
    found = json.loads(canonical_request(BASE))
    assert found["messages"][1] == ["user", "How many stars?"]
    assert found["sampling"] == {
        "max_tokens": 64,
        "stop": ["\n"],
        "temperature": 0.7,
        "top_p": 0.9,
    }
    for odd in ODD:
        assert json.loads(canonical_request(odd))


texts = st.text(st.characters(codec=None), max_size=8)
messages = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), texts), max_size=3
).map(tuple)
constraints = st.none() | st.one_of(
    st.builds(Choice, st.lists(texts, max_size=3).map(tuple)),
    st.builds(JsonSchema, texts),
    st.builds(Regex, texts),
    st.builds(GrammarConstraint, texts),
)
samplings = st.builds(
    Sampling,
    st.floats(0, 2),
    st.floats(0.1, 1),
    st.just(64),
    st.lists(texts, max_size=2).map(tuple),
)
requests = st.builds(
    Request,
    messages,
    st.lists(st.integers(0, 9), max_size=2).map(tuple),
    constraints,
    samplings,
    st.integers(0, 3),
    st.integers(0, 2),
)


@settings(max_examples=100, deadline=None)
@given(requests, requests)
def test_two_requests_have_one_key_exactly_if_they_are_equal(one: Request, other: Request) -> None:
    same = answer_key(IDENTITY, one) == answer_key(IDENTITY, other)
    assert same == (one == other)
