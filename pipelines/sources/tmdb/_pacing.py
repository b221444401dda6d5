"""When to ask again: Retry-After, back-off, and the gate that holds all workers at once."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from pipelines.errors import SourceUnavailableError

__all__ = ["Gate", "backoff_delay", "retry_after"]

#: Longest pause between two tries of one film (seconds).
MAX_BACKOFF = 30.0


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds that a ``Retry-After`` header asks to wait (RFC 9110, 10.2.3), or ``None``.

    It holds seconds or an HTTP date; a date in the past means no wait. What is neither is
    taken as absent.

    >>> retry_after("7")
    7.0
    >>> retry_after("Wed, 21 Oct 2015 07:28:10 GMT", datetime(2015, 10, 21, 7, 28, tzinfo=UTC))
    10.0
    >>> retry_after("soon") is None
    True
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        seconds = (when - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def backoff_delay(attempt: int, base: float) -> float:
    """Seconds to wait before try ``attempt`` + 1: doubling, capped, with full jitter.

    The jitter lies between a half and the whole of the delay, so that workers that failed
    together don't come back together.

    >>> 0.5 <= backoff_delay(1, 1.0) <= 1.0 and 4.0 <= backoff_delay(4, 1.0) <= 8.0
    True
    """
    delay = min(MAX_BACKOFF, base * 2.0 ** (attempt - 1))
    return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


class Gate:
    """Where every worker waits while the server asks for fewer requests.

    Parameters
    ----------
    max_wait
        Longest pause that is honoured (seconds).
    max_pauses
        Pauses in a row, without one answer between them, before giving up.
    describe
        Says how far the fetch is, for the error's hint.
    """

    def __init__(self, max_wait: float, max_pauses: int, describe: Callable[[], str]) -> None:
        self._max_wait = max_wait
        self._max_pauses = max_pauses
        self._describe = describe
        self._until = 0.0
        self._in_a_row = 0
        self.paused = 0.0

    async def wait(self) -> None:
        """Return once no pause is in force."""
        loop = asyncio.get_running_loop()
        while (left := self._until - loop.time()) > 0:
            await asyncio.sleep(left)

    def answered(self) -> None:
        """Note that the server took a request."""
        self._in_a_row = 0

    def pause(self, seconds: float, where: str) -> None:
        """Hold all workers for ``seconds`` from now; overlapping pauses count once.

        Raises
        ------
        SourceUnavailableError
            If the pause is too long, or one too many in a row.
        """
        if seconds > self._max_wait:
            raise SourceUnavailableError(
                f"TMDB asks to wait {seconds:.0f} s, longer than tmdb.max_wait "
                f"({self._max_wait:.0f} s)",
                where=where,
                hint=self._describe(),
            )
        now = asyncio.get_running_loop().time()
        if self._until <= now:
            self._in_a_row += 1
            if self._in_a_row > self._max_pauses:
                raise SourceUnavailableError(
                    f"TMDB limits the rate of requests even after {self._max_pauses} pauses",
                    where=where,
                    hint=self._describe(),
                )
        until = max(self._until, now + seconds)
        self.paused += until - max(self._until, now)
        self._until = until
