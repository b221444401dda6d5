"""The key of an answer: equal for model calls that are the same call.

The key is the SHA-256 (hex) of canonical JSON: keys sorted, no white space, UTF-8, numbers of
sampling as doubles. Everything that may change the answer is hashed (:data:`INCLUDED`);
everything else is named, with the reason (:data:`EXCLUDED`). The two tables together hold every
field of a request, of an engine's identity and of the settings that run it: a test fails when
a new field is in neither.

``max_tokens`` is special. It is a budget, not part of the question: a reply that ended by
itself is the same under any budget that is large enough, because tokens are drawn one by one
from a seed of the request. So it is not hashed but stored beside the answer, and
:func:`pipelines.llm.answers.serves` decides whether an answer made under one budget serves under
another. Only a `truncated` answer is asked again when the budget grows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import orjson

from pipelines.llm.engines import (
    Choice,
    EngineIdentity,
    GrammarConstraint,
    JsonSchema,
    Message,
    Regex,
    Request,
)

#: Version of the scheme, hashed too. Any change of what a key is made of raises it, which makes
#: every stored answer unreachable: change it only if keys of the present scheme are wrong.
KEY_SCHEME = 1

#: Hashed fields, and why a change of each is another call.
INCLUDED: Mapping[str, str] = MappingProxyType(
    {
        "request.messages": "the question: roles, contents and digests of images, in order",
        "request.tokens": "the question, where the caller tokenised it",
        "request.constraint": "what the answer may be, with its kind",
        "request.sampling.temperature": "other probabilities are drawn from",
        "request.sampling.top_p": "other tokens can be drawn",
        "request.sampling.min_p": "other tokens can be drawn; left out of the document where 0",
        "request.sampling.repetition_penalty": "other probabilities; left out where 1",
        "request.sampling.stop": "the answer ends elsewhere",
        "request.seed": "another draw",
        "request.replicate": "another of several answers to one question",
        "identity.engine": "other code computes",
        "identity.engine_version": "other code computes",
        "identity.model": "another model",
        "identity.revision": "another state of the model",
        "identity.weights": "another state of the model, where its name does not tell",
        "identity.tokenizer": "other tokens, or another chat template",
        "identity.dtype": "other rounding; bfloat16 moves log-probabilities by up to 0.13",
        "identity.quantisation": "other weights",
        "engine.kind": "as identity.engine",
        "engine.model": "as identity.model",
        "engine.revision": "as identity.revision",
        "engine.dtype": "as identity.dtype, which `auto` is resolved to",
        "engine.quantisation": "as identity.quantisation",
        "engine.draws": "through identity.engine_version, which tells how choices are read",
        "serving.models": "where checkpoints lie; through identity.weights",
        "serving.home": "where rating models lie; through identity.weights",
        "serving.tokenizer": "through identity.tokenizer; other prompts of a server's model",
        "serving.chat_template": "through identity.tokenizer, which digests the template in use",
    }
)

#: Fields that are not hashed, and why they can't change the stored answer.
EXCLUDED: Mapping[str, str] = MappingProxyType(
    {
        "engine.require_model": "whether a reply is taken, never what it says",
        "request.group": "says who shares a prefix; changes how calls are batched",
        "request.tag": "the caller's own name for the request",
        "request.sampling.max_tokens": "a budget: stored beside the answer, compared at look-up",
        "serving.device": "the same weights at the same dtype",
        "serving.window": "how many requests wait",
        "serving.batch_tokens": "how many tokens are computed at once",
        "serving.prefix_reuse": "whether shared prefixes are computed once; equal within rounding",
        "serving.base_url": "the same model at another address",
        "serving.api_key": "a secret; says who pays",
        "serving.concurrency": "how many calls are in flight",
        "serving.timeout": "how long a call may take",
        "serving.retries": "how often a failed call is tried again",
        "serving.max_wait": "how long a server may ask to wait",
        "serving.max_tokens": "when the run stops",
        "serving.max_cost": "when the run stops",
        "serving.input_price": "what a call costs",
        "serving.output_price": "what a call costs",
        "serving.error_budget": "when the run stops",
        "serving.vllm_python": "which environment serves; its vLLM's version is in the identity",
        "serving.start_seconds": "how long a server may take to start",
        "serving.tensor_parallel": "how the model is spread over GPUs",
        "serving.pipeline_parallel": "how the model is spread over GPUs",
        "serving.data_parallel": "how many copies of the model answer",
        "serving.gpu_memory": "how much of a GPU is used",
        "serving.kv_cache_gib": "how much memory is used",
        "serving.max_context": "requests beyond it are `invalid`; forget those to ask again",
        "serving.commit_every": "how many answers are committed together",
        "serving.commit_seconds": "how often answers are committed",
        "serving.keep_requests": "whether the question is stored beside the answer",
    }
)


def answer_key(identity: EngineIdentity, request: Request) -> str:
    """The key (64 hexadecimal digits) of the answer that this engine gives to this request.

    Any request has a key, also one that no model can serve.

    Examples
    --------
    >>> from pipelines.llm.engines import EngineIdentity, Message, Request
    >>> identity = EngineIdentity("scripted", "1", "demo")
    >>> key = answer_key(identity, Request((Message("user", "Well?"),)))
    >>> key == answer_key(identity, Request((Message("user", "Well?"),), tag=7, group="g"))
    True
    >>> key == answer_key(identity, Request((Message("user", "Well?"),), replicate=1))
    False
    """
    return hashlib.sha256(_encode(_call(_identity(identity), request))).hexdigest()


def answer_keys(identity: EngineIdentity, requests: Iterable[Request]) -> list[str]:
    """The keys of many requests to one engine, in order."""
    prefix = _identity(identity)
    sha = hashlib.sha256
    return [sha(_encode(_call(prefix, request))).hexdigest() for request in requests]


def canonical_request(request: Request) -> str:
    """The request as canonical JSON, with its ``max_tokens``, for people to read."""
    question = _question(request)
    question["sampling"]["max_tokens"] = request.sampling.max_tokens
    return _encode(question).decode()


def _identity(identity: EngineIdentity) -> dict[str, str]:
    return {f.name: getattr(identity, f.name) for f in dataclasses.fields(identity)}


def _call(identity: Mapping[str, str], request: Request) -> dict[str, Any]:
    question = _question(request)
    question["key_scheme"] = KEY_SCHEME
    question["engine"] = identity
    return question


def _question(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    drawn: dict[str, Any] = {
        "temperature": _number(sampling.temperature),
        "top_p": _number(sampling.top_p),
        "stop": sampling.stop,
    }
    # Added after the first keys were stored: a call without them keeps the key that it had.
    if sampling.min_p:
        drawn["min_p"] = _number(sampling.min_p)
    if sampling.repetition_penalty != 1:
        drawn["repetition_penalty"] = _number(sampling.repetition_penalty)
    if sampling.max_tokens < 1:
        # No budget at all is a request that can't be served: not the same call as one that can.
        drawn["max_tokens"] = sampling.max_tokens
    return {
        "messages": [_turn(m) for m in request.messages],
        "tokens": request.tokens,
        "constraint": _constraint(request.constraint),
        "sampling": drawn,
        "seed": request.seed,
        "replicate": request.replicate,
    }


def _turn(message: Message) -> tuple[Any, ...]:
    """One turn; without pictures its form is that of earlier versions, so that keys stay."""
    if not message.images:
        return message.role, message.content
    images = [(image.media_type, image.sha256) for image in message.images]
    return message.role, message.content, images


def _constraint(constraint: object) -> dict[str, Any] | None:
    match constraint:
        case None:
            return None
        case Choice(options):
            return {"choice": options}
        case JsonSchema(schema):
            return {"json_schema": schema}
        case Regex(pattern):
            return {"regex": pattern}
        case GrammarConstraint(ll_grammar):
            return {"ll_grammar": ll_grammar}
    # An engine answers `invalid` to a kind that it does not know; that has a key as well.
    kind = type(constraint)
    return {"unknown": f"{kind.__module__}.{kind.__qualname__}", "repr": repr(constraint)}


def _number(value: float) -> float | str:
    """A double, -0 as 0; what JSON has no number for is written as text."""
    number = float(value)
    return number + 0.0 if math.isfinite(number) else repr(number)


def _encode(value: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Unpaired surrogates and integers beyond 64 bits, which orjson refuses. No value has
        # both forms, so no key is ambiguous.
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str
        ).encode()
