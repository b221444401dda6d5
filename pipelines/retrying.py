"""Retries of HTTP requests: which failures are temporary, and how long to wait."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["MAX_BACKOFF", "TRANSIENT_STATUS", "backoff", "retry_after"]

#: Answers of a server that may be another one on the next attempt; 429 asks for a pause.
TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
#: Longest pause between two tries of one request (seconds).
MAX_BACKOFF = 30.0


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds that a ``Retry-After`` header asks to wait (RFC 9110, 10.2.3), or None.

    It holds seconds or an HTTP date; a moment that has passed means no wait. What is neither
    counts as absent.

    >>> retry_after("2.5")
    2.5
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


def backoff(attempt: int, base: float) -> float:
    """Seconds to wait after try ``attempt`` (from 1): doubling, capped, jittered by half.

    The jitter keeps workers that failed together from coming back together.

    >>> 0.5 <= backoff(1, 1.0) <= 1.0 and 15.0 <= backoff(99, 1.0) <= 30.0
    True
    """
    delay = min(MAX_BACKOFF, base * 2.0 ** min(attempt - 1, 16))
    return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
