"""The gate that holds all workers while the server asks for fewer requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pipelines.errors import SourceUnavailableError

__all__ = ["Gate"]


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
