"""Concurrency limit and pauses of the requests to one server."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math

from pipelines.errors import EngineError
from pipelines.retrying import backoff

__all__ = ["ConcurrencyLimiter"]


class ConcurrencyLimiter:
    """Slots for requests in flight, and the pause that holds all of them after a 429.

    Retries are served before new requests. A rate limit halves the number of slots, once per
    round trip: requests sent before the last cut tell nothing new. It grows again by one for as
    many answers as there are slots. To be used inside one event loop.

    Parameters
    ----------
    max_requests
        Slots to begin with, and at most (count).
    max_wait
        Longest pause that is honoured (seconds).
    max_pauses
        Pauses in a row, without an answer between them, before giving up (count).
    where
        The server, for errors.

    Attributes
    ----------
    limit
        Slots now, 1 to ``max_requests``.
    cuts
        How often the limit was halved.
    paused
        Time for which requests were held (seconds).
    """

    def __init__(self, max_requests: int, *, max_wait: float, max_pauses: int, where: str) -> None:
        self.max_requests = max_requests
        self.limit = max_requests
        self.cuts = 0
        self.paused = 0.0
        self._max_wait = max_wait
        self._max_pauses = max_pauses
        self._where = where
        self._in_flight = 0
        self._answers = 0
        self._last_cut = -math.inf
        self._until = -math.inf
        self._pauses = 0
        self._timer: asyncio.TimerHandle | None = None
        self._order = itertools.count()
        #: Whether it is a new request, its number, and what it waits for.
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []

    async def acquire(self, *, retry: bool) -> None:
        """Wait for a slot, and for the end of a pause. Retries are served first."""
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (not retry, next(self._order), slot))
        self._grant()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self._in_flight -= 1
        self._grant()

    def pause_left(self, now: float) -> float:
        """Seconds until requests may be sent; 0 if they may now."""
        return max(0.0, self._until - now)

    def answered(self) -> None:
        """Note that the server took a request."""
        self._pauses = 0
        self._answers += 1
        if self._answers >= self.limit:
            self._answers = 0
            self.limit = min(self.limit + 1, self.max_requests)

    def throttled(self, wait: float | None, *, started: float, now: float) -> None:
        """Halve the limit and hold all requests.

        Parameters
        ----------
        wait
            Seconds that the server asks to wait; None: it did not say. Overlapping pauses count
            once.
        started, now
            When the refused request was sent, and the time (seconds on the loop's clock).

        Raises
        ------
        EngineError
            If the pause is longer than is honoured, or one too many in a row.
        """
        if started > self._last_cut:
            self.limit = max(1, self.limit // 2)
            self._last_cut, self._answers = now, 0
            self.cuts += 1
        fresh = self._until <= now
        if fresh:
            self._pauses += 1
        if wait is None:
            wait = min(backoff(self._pauses, 1.0), self._max_wait)
        if wait > self._max_wait:
            raise EngineError(
                f"the server asks to wait {wait:.0f} s, longer than serving.max_wait "
                f"({self._max_wait:.0f} s)",
                where=self._where,
                hint="run again later: received answers are stored; or raise serving.max_wait",
            )
        if fresh and self._pauses > self._max_pauses:
            raise EngineError(
                f"the server still limits the rate after {self._max_pauses} pauses in a row",
                where=self._where,
                hint="run again later: received answers are stored; or lower serving.concurrency",
            )
        until = max(self._until, now + wait)
        self.paused += until - max(self._until, now)
        self._until = until

    def _grant(self) -> None:
        """Give free slots to those that wait, unless a pause holds them."""
        loop = asyncio.get_running_loop()
        left = self.pause_left(loop.time())
        if left > 0:
            if self._timer is None:
                self._timer = loop.call_later(left, self._resume)
            return
        while self._waiting and self._in_flight < self.limit:
            slot = heapq.heappop(self._waiting)[-1]
            if not slot.done():
                self._in_flight += 1
                slot.set_result(None)

    def _resume(self) -> None:
        self._timer = None
        self._grant()
