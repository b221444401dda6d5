"""Prompts in, replies out: one body for many prompts, divided again if one of them spoils it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import Message
from pipelines.llm.engines.openai._budget import Usage, is_over_budget
from pipelines.llm.engines.openai._capabilities import Capabilities
from pipelines.llm.engines.openai._http import Connection, Estimate, Failure, Mode, Response
from pipelines.llm.engines.openai._replies import Reply, read_replies, split_usage

__all__ = ["NOT_ASKED", "SERVED_BY", "Client", "Cost", "One", "together"]

_log = logging.getLogger("pipelines.llm.engines.openai")
#: Beginning of the part of an answer's detail that names the model that answered.
SERVED_BY = "served by "
#: Names of models, and fingerprints, that are kept (count).
MAX_NAMES = 16

#: What a chat template may add to the bytes of a message (tokens).
_TURN = 64

#: What a prompt gets that was not sent because the budget is spent: no answer at all.
NOT_ASKED = Failure("engine_error", "not asked: the budget is spent", reached=False)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens and time of one or several HTTP requests, and the models that answered them.

    Attributes
    ----------
    usage
        Tokens.
    seconds
        Longest latency.
    served_by
        Model and fingerprint as the server reports them, such as ``tiny-1m (fp_1)``.
    """

    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    served_by: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.usage + other.usage,
            max(self.seconds, other.seconds),
            tuple(dict.fromkeys(self.served_by + other.served_by)),
        )

    def describe(self, detail: str = "") -> str:
        """Return an answer's detail: a fault or note, if any, and who served it."""
        origin = SERVED_BY + ", ".join(self.served_by) if self.served_by else ""
        return "; ".join(filter(None, (detail, origin)))


@dataclass(frozen=True, slots=True)
class One:
    """The reply to one prompt, and its part of the request's cost."""

    reply: Reply
    cost: Cost


class Client:
    """Asks the two endpoints.

    Parameters
    ----------
    connection
        To the server.
    capabilities
        What it can do; filled by the probes.
    exact
        Whether a reply by another model than the one asked for ends the run
        (``engine.require_model``).

    Attributes
    ----------
    spent
        The error that ends the run, once a request did not fit into the budget.
    """

    def __init__(
        self, connection: Connection, capabilities: Capabilities, *, exact: bool = False
    ) -> None:
        self.connection = connection
        self.capabilities = capabilities
        self._exact = exact
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
    ) -> list[One | Failure]:
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
        if len(prompts) > 1 and not self.capabilities.many:
            parts = [self.complete([p], fields, limit, tries=tries, mode=mode) for p in prompts]
            return [one for part in await together(parts) for one in part]
        nested = [list(p) for p in prompts]
        body = {
            "model": self.capabilities.model,
            "prompt": nested if self.capabilities.many else nested[0],
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
        if not isinstance(sent, Failure):
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
    ) -> One | Failure:
        """The reply to a conversation."""
        body = {
            "model": self.capabilities.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            **fields,
        }
        # A token is at least a byte.
        most = sum(len(m.content.encode()) + _TURN for m in messages)
        estimate = Estimate(most, limit)
        sent = await self._send("/chat/completions", body, estimate, 1, tries, mode)
        return sent if isinstance(sent, Failure) else self._divide(sent, [1], limit)[0]

    async def _send(
        self,
        path: str,
        body: dict[str, Any],
        estimate: Estimate,
        count: int,
        tries: int | None,
        mode: Mode,
    ) -> Response | Failure:
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

    def _divide(self, got: Response, sizes: list[int], limit: int) -> list[One | Failure]:
        replies = read_replies(got.body, len(sizes))
        assert not isinstance(replies, str)
        served_by = self._origin(got.body)
        for reply in replies:
            if self.connection.address.leaks(f"{reply.text}{reply.refusal}{reply.finish}"):
                raise EngineError(
                    "the server's answer repeats the key; nothing of it was kept",
                    where=self.connection.address.api,
                    hint="check what answers at serving.base_url",
                )
        written = [_length(reply, limit) for reply in replies]
        parts = split_usage(got.usage, sizes, written)
        return [
            One(reply, Cost(usage, got.seconds, served_by))
            for reply, usage in zip(replies, parts, strict=True)
        ]

    def _origin(self, body: dict[str, Any]) -> tuple[str, ...]:
        """Model and fingerprint that a reply names; note them, and compare the model.

        Raises
        ------
        EngineError
            If the model must be exactly the one asked for and is not.
        """
        quote, can = self.connection.address.quote, self.capabilities
        named, fingerprint = body.get("model"), body.get("system_fingerprint")
        model = quote(named) if isinstance(named, str) else ""
        mark = quote(fingerprint) if isinstance(fingerprint, str) else ""
        if self._exact and model != can.model:
            raise EngineError(
                f"the server answers as {model or 'no model by name'}, not as {can.model}",
                where=f"engine.require_model is exact; {self.connection.address.api}",
                hint=f"set engine.model to {model}" if model else "set engine.require_model to any",
            )
        if mark and len(can.fingerprints) < MAX_NAMES:
            can.fingerprints.add(mark)
        if model and model not in can.answered_by and len(can.answered_by) < MAX_NAMES:
            can.answered_by.add(model)
            if model != can.model:
                _log.warning(
                    "%s answers as %s, not as the model that is asked for (%s)",
                    self.connection.address.api,
                    model,
                    can.model,
                )
        origin = f"{model} ({mark})" if model and mark else model or mark
        return (origin,) if origin else ()


def _length(reply: Reply, limit: int) -> int:
    """About how long a reply is, for its share of the request's tokens."""
    text = len((reply.text or "").encode()) // 3 + 1
    return limit if reply.finish == "length" else min(limit, text)


def _one_may_be_at_fault(fault: Failure) -> bool:
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
