"""Answers that are texts: written by the model, checked here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.llm.engines._protocol import (
    Answer,
    Constraint,
    JsonSchema,
    Request,
    Sampling,
    Status,
)
from pipelines.llm.engines.constraints import obeys
from pipelines.llm.engines.openai._capabilities import Endpoint
from pipelines.llm.engines.openai._client import Client, One, together
from pipelines.llm.engines.openai._encodings import constraint_kind, neutral, sampling_fields
from pipelines.llm.engines.openai._http import Failure

__all__ = ["Row", "drawn_seed", "endpoint_of", "failed_answer", "write"]


@dataclass(frozen=True, slots=True)
class Row:
    """A request that is ready to be sent.

    Attributes
    ----------
    request
        What was asked.
    ids
        Its prompt as token ids; None: its messages go to the chat endpoint.
    """

    request: Request
    ids: tuple[int, ...] | None


def drawn_seed(seed: int, replicate: int) -> int:
    """The seed that a server is given: 31 bits that differ with the seed and the replicate.

    >>> drawn_seed(7, 0)
    7
    >>> drawn_seed(7, 1) == drawn_seed(7, 2)
    False
    """
    if replicate == 0 and 0 <= seed < 2**31:
        return seed
    digest = hashlib.sha256(f"{seed}/{replicate}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 1


def endpoint_of(row: Row) -> Endpoint:
    """Where a row is sent."""
    return "chat" if row.ids is None else "completions"


def failed_answer(request: Request, fault: Failure) -> Answer:
    """The answer of a request that failed."""
    return Answer(request, fault.status, detail=fault.detail)


async def write(client: Client, rows: Sequence[Row], extra: dict[str, Any]) -> list[Answer]:
    """One answer per row; rows share sampling, constraint and seed.

    Parameters
    ----------
    client
        The server.
    rows
        At least one; all with token ids, or all without.
    extra
        Fields that tell the server the constraint.
    """
    first = rows[0].request
    seed = drawn_seed(first.seed, first.replicate)
    results: list[One | Failure]
    if rows[0].ids is None:
        fields = _fields(client, first.sampling, seed, client.capabilities.limit_field) | extra
        results = await together(
            [client.chat(r.request.messages, fields, first.sampling.max_tokens) for r in rows]
        )
        return [_answer(row.request, one) for row, one in zip(rows, results, strict=True)]
    fields = _fields(client, first.sampling, seed, "max_tokens") | extra
    limits = [_room(client, row) for row in rows]
    parts = [
        client.complete(
            [r.ids for r, n in zip(rows, limits, strict=True) if n == limit and r.ids is not None],
            fields | {"max_tokens": limit},
            limit,
        )
        for limit in sorted(set(limits))
    ]
    found = dict(zip(sorted(set(limits)), map(iter, await together(parts)), strict=True))
    return [_answer(row.request, next(found[n])) for row, n in zip(rows, limits, strict=True)]


def _room(client: Client, row: Row) -> int:
    """Longest answer that the context has room for (tokens, at least 1)."""
    most, context = row.request.sampling.max_tokens, client.capabilities.context
    assert row.ids is not None
    return most if context is None else max(1, min(most, context - len(row.ids)))


def _fields(client: Client, sampling: Sampling, seed: int, limit_field: str) -> dict[str, Any]:
    return sampling_fields(sampling, seed, limit_field) | neutral(client.capabilities.server)


def _answer(request: Request, one: One | Failure) -> Answer:
    if isinstance(one, Failure):
        return failed_answer(request, one)
    reply = one.reply
    text, cut = reply.text, _stopped(reply.text or "", request.sampling.stop)
    if reply.refusal:
        return _ended(request, one, "refused", None, detail=_line(reply.refusal))
    if cut is not None:
        text = cut
    elif reply.finish == "length":
        return _ended(request, one, "truncated", text or "")
    if text is None:
        return _ended(request, one, "invalid", None, detail="the reply has no text")
    said = _in_style(request.constraint, text)
    if said is None:
        kind = constraint_kind(request.constraint) if request.constraint else ""
        detail = f"the reply breaks its constraint ({kind}): {_line(text)!r}"
        return _ended(request, one, "invalid", None, detail=detail)
    return _ended(request, one, "ok", said)


def _ended(
    request: Request, one: One, status: Status, text: str | None, detail: str = ""
) -> Answer:
    return Answer(
        request,
        status,
        text=text,
        finish_reason=one.reply.finish,
        prompt_tokens=one.cost.usage.prompt,
        completion_tokens=one.cost.usage.completion,
        cached_tokens=one.cost.usage.cached,
        latency=one.cost.seconds,
        detail=one.cost.describe(detail),
    )


def _stopped(text: str, stop: Sequence[str]) -> str | None:
    """The text before the first stop string, where a server left one in."""
    places = [text.index(s) for s in stop if s in text]
    return text[: min(places)] if places else None


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
