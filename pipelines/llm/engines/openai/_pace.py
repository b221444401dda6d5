"""When to send: the number of requests in flight, pauses that the server asks for, back-off.

Everything here is logic without a clock or a network: the caller gives the time, so the laws of
it are tested as laws.
"""

from __future__ import annotations

import math

from pipelines.errors import EngineError
from pipelines.retrying import backoff

__all__ = ["Gate", "Pace"]

#: Limit to begin with (requests in flight).
FIRST_LIMIT = 8
#: Share of the limit that is kept when the server throttles, and when it grows too slow.
CUT_THROTTLED = 0.5
CUT_SLOW = 0.7
#: Mean latency over the best one (both per unit of work) from which the limit grows no more.
SLOW = 8.0
#: Weight of the newest latency in the mean, and growth of the best one per answer, so that a
#: server that became slower for good is measured against what it is now.
NEWEST = 0.2
DRIFT = 1.002


class Pace:
    """How many requests may be in flight: additive increase, multiplicative decrease.

    The limit doubles per round trip until the first sign of trouble, then grows by one per
    round trip. Being throttled, or failed, halves it, once per round trip: requests sent before
    the last cut tell nothing new. Answers slower than ``patience`` cut it too, since the next
    step would be time-outs. While the mean latency is many times the best, it stays.

    Parameters
    ----------
    most
        Highest limit (requests).
    patience
        Latency above which the server counts as overloaded (seconds).

    Examples
    --------
    >>> pace = Pace(32, patience=60.0)
    >>> pace.limit
    8
    >>> pace.throttled(started=1.0, now=2.0)
    >>> pace.throttled(started=1.5, now=2.1)  # sent before the cut: the same trouble
    >>> pace.limit
    4
    """

    def __init__(self, most: int, patience: float) -> None:
        self.most = most
        self.cuts = 0
        self._patience = patience
        self._limit = float(min(most, FIRST_LIMIT))
        self._probing = True
        self._last_cut = -math.inf
        self._mean: float | None = None
        self._best = math.inf

    @property
    def limit(self) -> int:
        """Requests that may be in flight now, 1 to ``most``."""
        return max(1, int(self._limit))

    def answered(
        self, seconds: float, *, started: float, now: float, work: int = 1, busy: bool = True
    ) -> None:
        """Note an answer.

        Parameters
        ----------
        seconds
            Its latency.
        started, now
            When it was sent, and the time (seconds on any one clock).
        work
            Tokens it brought (count): a longer answer may take longer.
        busy
            Whether the limit was reached meanwhile; a limit that nobody used is not raised.
        """
        each = seconds / max(1, work)
        self._mean = each if self._mean is None else self._mean + NEWEST * (each - self._mean)
        self._best = min(self._best * DRIFT, self._mean)
        if seconds > self._patience:
            self._cut(CUT_SLOW, started, now)
        elif busy and self._mean <= SLOW * self._best:
            step = 1.0 if self._probing else 1.0 / self._limit
            self._limit = min(float(self.most), self._limit + step)
        elif self._mean > SLOW * self._best:
            self._probing = False

    def throttled(self, *, started: float, now: float) -> None:
        """Note a 429, or another fault that a busy server has, of a request sent at ``started``."""
        self._cut(CUT_THROTTLED, started, now)

    def _cut(self, factor: float, started: float, now: float) -> None:
        self._probing = False
        if started > self._last_cut:
            self._limit = max(1.0, self._limit * factor)
            self._last_cut = now
            self.cuts += 1


class Gate:
    """The pause that holds all requests at once.

    Parameters
    ----------
    longest
        Longest pause that is honoured (seconds).
    most
        Pauses in a row, without one answer between them, before giving up (count).
    where
        The server, for errors.
    """

    def __init__(self, longest: float, most: int, where: str) -> None:
        self._longest = longest
        self._most = most
        self._where = where
        self._until = -math.inf
        self._in_a_row = 0
        self.paused = 0.0

    def left(self, now: float) -> float:
        """Seconds until requests may be sent; 0 if they may now."""
        return max(0.0, self._until - now)

    def answered(self) -> None:
        """Note that the server took a request."""
        self._in_a_row = 0

    def pause(self, seconds: float | None, now: float) -> None:
        """Hold all requests for ``seconds`` (None: the server did not say); overlaps count once.

        Raises
        ------
        EngineError
            If the pause is longer than is honoured, or one too many in a row.
        """
        fresh = self._until <= now
        if fresh:
            self._in_a_row += 1
        if seconds is None:
            seconds = min(backoff(self._in_a_row, 1.0), self._longest)
        if seconds > self._longest:
            raise EngineError(
                f"the server asks to wait {seconds:.0f} s, longer than serving.max_wait "
                f"({self._longest:.0f} s)",
                where=self._where,
                hint="run again later: answers that came are kept; or raise serving.max_wait",
            )
        if fresh and self._in_a_row > self._most:
            raise EngineError(
                f"the server still limits the rate after {self._most} pauses in a row",
                where=self._where,
                hint="run again later: answers that came are kept; or lower serving.concurrency",
            )
        until = max(self._until, now + seconds)
        self.paused += until - max(self._until, now)
        self._until = until
