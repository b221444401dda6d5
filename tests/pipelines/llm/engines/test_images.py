"""Pictures in messages: sent over HTTP as they are, refused by engines that take none."""

from __future__ import annotations

import io
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace

import pytest
from PIL import Image as Pillow
from support.llm_api import KINDS
from support.llm_client import connect
from support.llm_server import LlmServer

from pipelines.llm.answers import answer_key, canonical_request
from pipelines.llm.engines import (
    Choice,
    EngineIdentity,
    Image,
    Message,
    Regex,
    Request,
    Sampling,
)
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.llm.engines.transformers import TransformersEngine

Serve = Callable[..., LlmServer]
IDENTITY = EngineIdentity("e", "1", "m")


def png(colour: str) -> Image:
    file = io.BytesIO()
    Pillow.new("RGB", (4, 6), colour).save(file, "PNG")
    return Image("image/png", file.getvalue())


def asking(*images: Image, **more) -> Request:
    more = {"sampling": Sampling(0.0, max_tokens=8), **more}
    return Request((Message("user", "What is it?", images),), **more)


def test_the_openai_engine_sends_pictures_after_the_text(serve: Serve) -> None:
    server = serve(replace(KINDS["vllm"], images=True))
    red = png("red")
    with connect(server) as engine:
        answers = list(engine.submit([asking(red, group="g"), asking(png("blue"), group="g")]))
    assert all(answer.text is not None for answer in answers)
    posted = [e.body for e in server.log if e.path == "/v1/chat/completions"]
    parts = [body["messages"][-1]["content"] for body in posted if "messages" in body]
    pictured = [p for p in parts if isinstance(p, list)]
    assert len(pictured) == 2
    assert pictured[0][0] == {"type": "text", "text": "What is it?"}
    sent = {p[1]["image_url"]["url"].partition(",")[2] for p in pictured}
    assert red.data in {b64decode(data) for data in sent}


def test_a_constraint_holds_for_an_answer_about_a_picture(serve: Serve) -> None:
    server = serve(replace(KINDS["vllm"], images=True))
    with connect(server) as engine:
        (answer,) = engine.submit([asking(png("red"), constraint=Regex("(red|blue)"))])
    assert answer.status == "ok"
    assert answer.text in ("red", "blue")


def test_a_server_without_pictures_gives_an_invalid_answer(serve: Serve) -> None:
    server = serve("vllm")
    with connect(server) as engine:
        seen, plain = sorted(
            engine.submit([asking(png("red")), asking()]),
            key=lambda a: not a.request.messages[0].images,
        )
    assert seen.status in ("invalid", "refused")
    assert seen.text is None
    assert plain.text is not None


def test_no_distribution_is_read_about_a_picture(serve: Serve) -> None:
    server = serve(replace(KINDS["vllm"], images=True))
    with connect(server) as engine:
        (answer,) = engine.submit([asking(png("red"), constraint=Choice(("1", "2")))])
    assert (answer.status, answer.probabilities) == ("invalid", None)
    assert "image" in answer.detail


def test_engines_that_take_no_pictures_say_so(tiny_engine: TransformersEngine) -> None:
    for engine in (tiny_engine, ScriptedEngine()):
        (answer,) = engine.submit([asking(png("red"))])
        assert (answer.status, answer.detail) == ("invalid", "the engine does not support images")


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        (asking(Image("text/html", b"x")), "type such as image/jpeg"),
        (asking(Image("image/png", b"")), "empty"),
        (Request((Message("user", "Q"), Message("assistant", "A", (png("red"),)))), "prefix"),
    ],
)
def test_pictures_that_can_t_be_sent_are_invalid(request_: Request, fault: str) -> None:
    (answer,) = ScriptedEngine(images=True).submit([request_])
    assert answer.status == "invalid"
    assert fault in answer.detail


def test_the_key_of_an_answer_has_the_digest_of_a_picture_and_nothing_without_one() -> None:
    red, blue = png("red"), png("blue")
    keys = {answer_key(IDENTITY, asking(*images)) for images in ((), (red,), (blue,), (red, blue))}
    assert len(keys) == 4
    assert answer_key(IDENTITY, asking(Image("image/png", bytes(red.data)))) in keys
    assert red.sha256 in canonical_request(asking(red))
    # The key that this request had before messages could hold pictures.
    before = "1bd7d80085b1308d13a1a51052b023dc8488eb80b1fe9fdf141c9de07323c7a5"
    from support.calls import IDENTITY as KNOWN

    assert answer_key(KNOWN, Request((Message("user", "How many stars?"),))) == before
