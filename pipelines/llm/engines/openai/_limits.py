"""Limits of a run: requests in flight, and a budget of tokens and money."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import CapacityLimiter

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines.openai._replies import Usage
from pipelines.retrying import backoff

_MILLION = 1_000_000


class Budget:
    """Token and money limits of a run: no request is sent that could take it over them.

    A request reserves its upper bound before it is sent and settles its real cost when it is
    answered. One whose answer was lost (a time-out, a cut connection) counts in full: a server
    that bills has billed it. A limit in money without a price is a :class:`ConfigError`.

    Attributes
    ----------
    spent, reserved
        Tokens of the answered requests, and upper bound of those in flight.
    lost
        Requests that count in full, because their usage is unknown.
    """

    def __init__(self, serving: ServingSettings) -> None:
        self._max_tokens, self._max_cost = serving.max_tokens, serving.max_cost
        self._prices = (serving.input_price, serving.output_price)
        if self._max_cost is not None and not any(self._prices):
            raise ConfigError(
                "serving.max_cost needs prices to count with",
                where="serving.input_price, serving.output_price",
                hint="set the prices of a million tokens, or limit serving.max_tokens",
            )
        self.spent = self.reserved = Usage()
        self.lost = 0

    def reserve(self, bound: Usage) -> bool:
        """Reserve a request's upper bound; False: wait until another request has settled.

        Raises :class:`EngineError` if it would not fit even when nothing else is in flight.
        """
        reserved = self.reserved + bound
        total = self.spent + reserved
        fits = self._max_tokens is None or total.prompt + total.completion <= self._max_tokens
        if fits and (self._max_cost is None or self._cost(total) <= self._max_cost):
            self.reserved = reserved
            return True
        if self.reserved != Usage():
            return False
        limits = {"serving.max_tokens": self._max_tokens, "serving.max_cost": self._max_cost}
        raise EngineError(
            f"the budget is spent: {self.spent.prompt} tokens in, {self.spent.completion} out, "
            f"cost {self._cost(self.spent):.4f}; the next request can take up to {bound.prompt} "
            f"in and {bound.completion} out",
            where=", ".join(f"{name} {n:g}" for name, n in limits.items() if n is not None),
            hint="received answers are stored: raise the limit and run again to go on",
            details=self.metadata(),
        )

    def settle(self, bound: Usage, used: Usage | None) -> None:
        """Book what a request used in place of its bound; None: unknown, it counts in full."""
        self.reserved += Usage(-bound.prompt, -bound.completion)
        self.lost += used is None
        used = bound if used is None else used
        self.spent += Usage(used.prompt, used.completion, used.cached)

    def metadata(self) -> dict[str, Any]:
        """Tokens and money spent; JSON-ready."""
        return {
            "prompt_tokens": self.spent.prompt,
            "completion_tokens": self.spent.completion,
            "cached_tokens": self.spent.cached,
            "cost": round(self._cost(self.spent), 6),
            "requests_without_usage": self.lost,
        }

    def _cost(self, usage: Usage) -> float:
        return (usage.prompt * self._prices[0] + usage.completion * self._prices[1]) / _MILLION


class RateLimiter:
    """Slots for requests in flight, halved by a 429, and the cool-down that follows it.

    One slot comes back for as many answers as there are slots. Requests sent before the last
    halving only extend its cool-down, which is at most ``max_wait`` seconds; ``max_cooldowns`` in a
    row without an answer end the run. To be used inside one event loop.
    """

    def __init__(self, max_slots: int, *, max_wait: float, max_cooldowns: int, where: str) -> None:
        self.max_slots = max_slots
        self.cuts, self.paused = 0, 0.0  # halvings; seconds for which requests were held
        self._slots = CapacityLimiter(max_slots)
        self._max_wait, self._max_cooldowns, self._where = max_wait, max_cooldowns, where
        self._answers = self._cooldowns = 0
        self._last_cut = self._until = -math.inf

    @property
    def limit(self) -> int:
        """Slots at present (count)."""
        return int(self._slots.total_tokens)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot; wait for it, and for the end of a cool-down."""
        loop = asyncio.get_running_loop()
        async with self._slots:
            while (left := self.cooldown_left(loop.time())) > 0:
                await asyncio.sleep(left)
            yield

    def cooldown_left(self, now: float) -> float:
        """Seconds until requests may be sent; 0 if they may now."""
        return max(0.0, self._until - now)

    def answered(self) -> None:
        """Note an answer."""
        self._cooldowns = 0
        self._answers += 1
        if self._answers >= self.limit:
            self._answers = 0
            self._slots.total_tokens = min(self.limit + 1, self.max_slots)

    def throttled(self, wait: float | None, *, started: float, now: float) -> None:
        """Halve the slots and hold all requests for the seconds that the server asks for.

        ``wait`` is None where it does not say; ``started`` is when the refused request was sent
        (seconds on the loop's clock). Raises :class:`EngineError` if the cool-down is longer than
        is honoured, or one too many in a row.
        """
        if started > self._last_cut:
            self._slots.total_tokens = max(1, self.limit // 2)
            self._last_cut, self._answers = now, 0
            self.cuts += 1
            self._cooldowns += 1
        if wait is None:
            wait = min(backoff(self._cooldowns, 1.0), self._max_wait)
        hint = "run again later: received answers are stored; or "
        if wait > self._max_wait:
            raise EngineError(
                f"the server asks to wait {wait:.0f} s, longer than serving.max_wait "
                f"({self._max_wait:.0f} s)",
                where=self._where,
                hint=hint + "raise serving.max_wait",
            )
        if self._cooldowns > self._max_cooldowns:
            raise EngineError(
                f"the server still limits the rate after {self._max_cooldowns} pauses in a row",
                where=self._where,
                hint=hint + "lower serving.concurrency",
            )
        until = max(self._until, now + wait)
        self.paused += until - max(self._until, now)
        self._until = until
