"""Answers that are texts: written by the model, checked here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

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
    form_format,
    form_messages,
    form_room,
    json_part,
    read_form,
)
from pipelines.statuses import Status


def failed_answer(request: Request, failure: Failure) -> Answer:
    """The answer of a request that failed."""
    return Answer(request, failure.status, detail=failure.detail)


async def write(client: Client, capabilities: Capabilities, rows: Sequence[Row]) -> list[Answer]:
    """One answer per row; rows with token ids share sampling, constraint and seed."""
    first = rows[0].request
    if rows[0].ids is None or capabilities.is_form(first.constraint):
        return await gather([_reply(client, capabilities, row.request) for row in rows])
    seed = drawn_seed(first.seed, first.replicate)
    fields, limit = capabilities.fields(first.sampling, seed, "completions")
    fields |= capabilities.constraint_fields(first.constraint)
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
        _answer(row.request, reply)
        for part, ones in zip(by_limit.values(), await gather(parts), strict=True)
        for row, reply in zip(part, ones, strict=True)
    ]


async def _reply(client: Client, capabilities: Capabilities, request: Request) -> Answer:
    """Ask at the chat endpoint, for the fields of a grammar that the server does not take."""
    constraint, messages, room = request.constraint, request.messages, 0
    extra = capabilities.constraint_fields(constraint)
    form = constraint if capabilities.is_form(constraint) else None
    style = capabilities.style
    if isinstance(form, GrammarConstraint):
        messages = form_messages(messages, style, form)
        room, extra = form_room(form), form_format(style, form)
    seed = drawn_seed(request.seed, request.replicate)
    fields, limit = capabilities.fields(request.sampling, seed, "chat", room)
    reply = await client.chat(messages, fields | extra, limit)
    if capabilities.note_thoughts(reply) or (form and capabilities.note_pattern(reply, style)):
        return await _reply(client, capabilities, request)
    if isinstance(form, GrammarConstraint) and isinstance(reply, Completion) and reply.text:
        filled = read_form(form, reply.text)
        if filled is not None and obeys(form, filled):
            reply = replace(reply, text=filled, finish="stop")
    return _answer(request, reply)


def _answer(request: Request, reply: Completion | Failure) -> Answer:
    if isinstance(reply, Failure):
        return failed_answer(request, reply)
    text = reply.text
    cut = [text.index(s) for s in request.sampling.stop if s in text] if text else []
    if reply.refusal:
        return _ended(request, reply, "refused", None, _line(reply.refusal))
    if text and cut:
        text = text[: min(cut)]  # where a server left a stop string in
    elif reply.finish == "length":
        detail = "" if text or not reply.thought else "the thought used up the limit of the answer"
        return _ended(request, reply, "truncated", text or "", detail)
    if text is None:
        return _ended(request, reply, "invalid", None, "the reply has no text")
    usual = _in_style(request.constraint, text)
    if usual is None:
        kind = constraint_kind(request.constraint) if request.constraint else ""
        detail = f"the reply breaks its constraint ({kind}): {_line(text)!r}"
        return _ended(request, reply, "invalid", None, detail)
    return _ended(request, reply, "ok", usual)


def _ended(
    request: Request, reply: Completion, status: Status, text: str | None, detail: str = ""
) -> Answer:
    return Answer(
        request,
        status,
        text=text,
        finish_reason=reply.finish,
        prompt_tokens=reply.cost.usage.prompt,
        completion_tokens=reply.cost.usage.completion,
        cached_tokens=reply.cost.usage.cached,
        latency=reply.cost.seconds,
        detail=reply.cost.describe(detail),
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
