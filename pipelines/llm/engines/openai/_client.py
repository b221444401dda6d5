"""Prompts in, replies out: one body for many prompts, divided again if one of them spoils it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import Message
from pipelines.llm.engines.openai._abilities import Abilities
from pipelines.llm.engines.openai._budget import Usage, is_over_budget
from pipelines.llm.engines.openai._http import Connection, Estimate, Fault, Got, Mode
from pipelines.llm.engines.openai._replies import Reply, read_replies, split_usage

__all__ = ["NOT_ASKED", "Client", "One", "together"]

#: What a chat template may add to the bytes of a message (tokens).
_TURN = 64

#: What a prompt gets that was not sent because the budget is spent: no answer at all.
NOT_ASKED = Fault("engine_error", "not asked: the budget is spent", reached=False)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class One:
    """The reply to one prompt.

    Attributes
    ----------
    reply
        What came.
    usage
        This prompt's part of the request's tokens.
    seconds
        Latency of the request.
    """

    reply: Reply
    usage: Usage
    seconds: float


class Client:
    """Asks the two endpoints.

    Parameters
    ----------
    connection
        To the server.
    abilities
        What it can do; filled by the probes.

    Attributes
    ----------
    spent
        The error that ends the run, once a request did not fit into the budget.
    """

    def __init__(self, connection: Connection, abilities: Abilities) -> None:
        self.connection = connection
        self.abilities = abilities
        self.spent: EngineError | None = None

    async def complete(
        self,
        prompts: Sequence[Sequence[int]],
        fields: dict[str, Any],
        limit: int,
        *,
        tries: int | None = None,
        mode: Mode = "run",
        divide: bool = True,
    ) -> list[One | Fault]:
        """One reply or fault per prompt, from one request to the completions endpoint.

        A request that fails is divided, so that only the prompt at fault has the fault.

        Parameters
        ----------
        prompts
            Token ids.
        fields
            Further fields of the body.
        limit
            Longest answer (tokens), already in the fields.
        tries, mode
            As :meth:`Connection.post`.
        divide
            Whether to divide a request that fails.
        """
        if len(prompts) > 1 and not self.abilities.many:
            parts = [self.complete([p], fields, limit, tries=tries, mode=mode) for p in prompts]
            return [one for part in await together(parts) for one in part]
        nested = [list(p) for p in prompts]
        body = {
            "model": self.abilities.model,
            "prompt": nested if self.abilities.many else nested[0],
            **fields,
        }
        sizes = [len(p) for p in prompts]
        estimate = Estimate(sum(sizes), limit * len(prompts))
        sent = await self._send("/completions", body, estimate, len(prompts), tries, mode)
        if sent is NOT_ASKED and len(prompts) > 1 and divide:
            # Smaller requests may still fit; one after the other, so that they fit best.
            half = len(prompts) // 2
            first = await self.complete(prompts[:half], fields, limit, tries=tries, mode=mode)
            return first + await self.complete(
                prompts[half:], fields, limit, tries=tries, mode=mode
            )
        if not isinstance(sent, Fault):
            return self._divide(sent, sizes, limit)
        if len(prompts) == 1 or not divide or not _one_may_be_at_fault(sent):
            return [sent] * len(prompts)
        again = 1 if sent.status == "engine_error" else tries
        half = len(prompts) // 2
        halves = [
            self.complete(part, fields, limit, tries=again, mode=mode)
            for part in (prompts[:half], prompts[half:])
        ]
        return [one for part in await together(halves) for one in part]

    async def chat(
        self,
        messages: Sequence[Message],
        fields: dict[str, Any],
        limit: int,
        *,
        tries: int | None = None,
        mode: Mode = "run",
    ) -> One | Fault:
        """The reply to a conversation."""
        body = {
            "model": self.abilities.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            **fields,
        }
        # A token is at least a byte.
        most = sum(len(m.content.encode()) + _TURN for m in messages)
        estimate = Estimate(most, limit)
        sent = await self._send("/chat/completions", body, estimate, 1, tries, mode)
        return sent if isinstance(sent, Fault) else self._divide(sent, [1], limit)[0]

    async def _send(
        self,
        path: str,
        body: dict[str, Any],
        estimate: Estimate,
        count: int,
        tries: int | None,
        mode: Mode,
    ) -> Got | Fault:
        def wrong(answer: dict[str, Any]) -> str:
            found = read_replies(answer, count)
            return found if isinstance(found, str) else ""

        url = self.connection.address.api + path
        try:
            return await self.connection.post(
                url, body, estimate, mode=mode, tries=tries, check=wrong
            )
        except EngineError as fault:
            if not is_over_budget(fault):
                raise
            self.spent = fault
            return NOT_ASKED

    def _divide(self, got: Got, sizes: list[int], limit: int) -> list[One | Fault]:
        replies = read_replies(got.body, len(sizes))
        assert not isinstance(replies, str)
        fingerprint = got.body.get("system_fingerprint")
        if isinstance(fingerprint, str) and len(self.abilities.fingerprints) < 16:
            self.abilities.fingerprints.add(self.connection.address.quote(fingerprint))
        for reply in replies:
            if self.connection.address.leaks(f"{reply.text}{reply.refusal}{reply.finish}"):
                raise EngineError(
                    "the server's answer repeats the key; nothing of it was kept",
                    where=self.connection.address.api,
                    hint="check what answers at serving.base_url",
                )
        written = [_length(reply, limit) for reply in replies]
        parts = split_usage(got.usage, sizes, written)
        return [One(r, u, got.seconds) for r, u in zip(replies, parts, strict=True)]


def _length(reply: Reply, limit: int) -> int:
    """About how long a reply is, for its share of the request's tokens."""
    text = len((reply.text or "").encode()) // 3 + 1
    return limit if reply.finish == "length" else min(limit, text)


def _one_may_be_at_fault(fault: Fault) -> bool:
    """Whether a request may have failed because of one of its prompts."""
    if fault.status in ("invalid", "refused"):
        return True
    return fault.reached and (fault.code >= 500 or fault.code == 0)


async def together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first exception cancels the rest and is raised as it is."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
