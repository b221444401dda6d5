"""Answers that are texts: written by the model, checked here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipelines.llm.engines._protocol import Answer, Constraint, JsonSchema, Request
from pipelines.llm.engines.constraints import obeys
from pipelines.llm.engines.openai._capabilities import Capabilities
from pipelines.llm.engines.openai._client import Client, Completion, Failure, gather
from pipelines.llm.engines.openai._encoding import (
    Row,
    constraint_kind,
    drawn_seed,
    sampling_fields,
    server_sampling,
)
from pipelines.statuses import Status


def failed_answer(request: Request, failure: Failure) -> Answer:
    """The answer of a request that failed."""
    return Answer(request, failure.status, detail=failure.detail)


async def write(
    client: Client, capabilities: Capabilities, rows: Sequence[Row], extra: dict[str, Any]
) -> list[Answer]:
    """One answer per row; rows share sampling, constraint, seed and endpoint.

    ``extra`` holds the fields that encode the constraint.
    """
    first, chat = rows[0].request, rows[0].endpoint == "chat"
    sampling, seed = first.sampling, drawn_seed(first.seed, first.replicate)
    field = capabilities.limit_field if chat else "max_tokens"
    fields = sampling_fields(sampling, seed, field)
    fields |= server_sampling(capabilities.server, sampling) | extra
    if chat:
        asked = [client.chat(r.request.messages, fields, sampling.max_tokens) for r in rows]
        return [_answer(r.request, one) for r, one in zip(rows, await gather(asked), strict=True)]
    by_limit: dict[int, list[Row]] = {}
    for row in rows:
        # The context may have room for a shorter answer only.
        room = (capabilities.context or 1 << 62) - len(row.ids or ())
        by_limit.setdefault(max(1, min(sampling.max_tokens, room)), []).append(row)
    parts = [
        client.complete([r.ids or () for r in part], fields | {"max_tokens": limit}, limit)
        for limit, part in by_limit.items()
    ]
    return [
        _answer(row.request, one)
        for part, ones in zip(by_limit.values(), await gather(parts), strict=True)
        for row, one in zip(part, ones, strict=True)
    ]


def _answer(request: Request, one: Completion | Failure) -> Answer:
    if isinstance(one, Failure):
        return failed_answer(request, one)
    text = one.text
    cut = [text.index(s) for s in request.sampling.stop if s in text] if text else []
    if one.refusal:
        return _ended(request, one, "refused", None, _line(one.refusal))
    if text and cut:
        text = text[: min(cut)]  # where a server left a stop string in
    elif one.finish == "length":
        return _ended(request, one, "truncated", text or "")
    if text is None:
        return _ended(request, one, "invalid", None, "the reply has no text")
    usual = _in_style(request.constraint, text)
    if usual is None:
        kind = constraint_kind(request.constraint) if request.constraint else ""
        detail = f"the reply breaks its constraint ({kind}): {_line(text)!r}"
        return _ended(request, one, "invalid", None, detail)
    return _ended(request, one, "ok", usual)


def _ended(
    request: Request, one: Completion, status: Status, text: str | None, detail: str = ""
) -> Answer:
    return Answer(
        request,
        status,
        text=text,
        finish_reason=one.finish,
        prompt_tokens=one.cost.usage.prompt,
        completion_tokens=one.cost.usage.completion,
        cached_tokens=one.cost.usage.cached,
        latency=one.cost.seconds,
        detail=one.cost.describe(detail),
    )


def _in_style(constraint: Constraint | None, text: str) -> str | None:
    """The text, if it obeys; JSON with other white space is written in the usual one."""
    if obeys(constraint, text):
        return text
    if isinstance(constraint, JsonSchema):
        try:
            again = json.dumps(json.loads(text), ensure_ascii=False)
        except ValueError:
            return None
        return again if obeys(constraint, again) else None
    return None


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:120] + " ..."
