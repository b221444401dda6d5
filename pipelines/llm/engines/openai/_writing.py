"""Answers that are texts: written by the model, checked here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipelines.llm.engines._protocol import (
    Answer,
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Request,
)
from pipelines.llm.engines.constraints import obeys
from pipelines.llm.engines.openai._capabilities import Capabilities
from pipelines.llm.engines.openai._client import Client, Completion, Failure, gather
from pipelines.llm.engines.openai._encoding import Row, constraint_kind, drawn_seed
from pipelines.llm.engines.openai._forms import (
    form_messages,
    form_room,
    json_part,
    read_form,
    response_format,
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
    first, endpoint = rows[0].request, rows[0].endpoint
    seed = drawn_seed(first.seed, first.replicate)
    fields, limit = capabilities.fields(first.sampling, seed, endpoint)
    fields |= extra
    if endpoint == "chat":
        ones = await gather([client.chat(r.request.messages, fields, limit) for r in rows])
        if capabilities.note_thoughts(ones):
            return await write(client, capabilities, rows, extra)
        return [_answer(r.request, one) for r, one in zip(rows, ones, strict=True)]
    by_limit: dict[int, list[Row]] = {}
    for row in rows:
        # The context may have room for a shorter answer only.
        room = (capabilities.context or 1 << 62) - len(row.ids or ())
        by_limit.setdefault(max(1, min(limit, room)), []).append(row)
    parts = [
        client.complete([r.ids or () for r in part], fields | {"max_tokens": limit}, limit)
        for limit, part in by_limit.items()
    ]
    return [
        _answer(row.request, one)
        for part, ones in zip(by_limit.values(), await gather(parts), strict=True)
        for row, one in zip(part, ones, strict=True)
    ]


async def fill_form(client: Client, capabilities: Capabilities, request: Request) -> Answer:
    """Answer a grammar that is a form by asking for its fields, at the chat endpoint."""
    constraint = request.constraint
    assert isinstance(constraint, GrammarConstraint)
    style = await capabilities.form_style()
    seed = drawn_seed(request.seed, request.replicate)
    room = form_room(constraint)
    fields, limit = capabilities.fields(request.sampling, seed, "chat", room)
    messages = form_messages(request.messages, style, constraint)
    fields |= response_format(style, constraint)
    one = await client.chat(messages, fields, limit)
    if capabilities.note_thoughts([one]):
        return await fill_form(client, capabilities, request)
    if isinstance(one, Completion) and one.text and not one.refusal:
        filled = read_form(constraint, one.text)
        if filled is not None and obeys(constraint, filled):
            return _ended(request, one, "ok", filled)
    return _answer(request, one)


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
        detail = "" if text or not one.thought else "the thought used up the limit of the answer"
        return _ended(request, one, "truncated", text or "", detail)
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
    """The text, if it obeys; JSON in a fence or other white space in the usual one."""
    if obeys(constraint, text):
        return text
    again = text.strip()
    if isinstance(constraint, JsonSchema):
        try:
            again = json.dumps(json.loads(json_part(text)), ensure_ascii=False)
        except ValueError:
            return None
    return again if obeys(constraint, again) else None


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:120] + " ..."
