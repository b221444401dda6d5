"""Raters as a running environment asks them: a batch of live questions, in numbers.

:class:`pipelines.raters.Rater` takes and gives frames of ids, which suits tables. An environment
asks the same few personas about the same items thousands of times a second, each with a memory
that has just changed. Here personas and items are row numbers of two fixed frames, a memory is
a row of item numbers with its ratings, and what does not change is computed once.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import polars as pl

from pipelines.raters._live_statistical import LiveStatistical
from pipelines.raters._live_tables import LiveTables
from pipelines.raters._protocol import Floats, Ints, Rater, RatingBatch
from pipelines.raters._statistical import StatisticalRater
from pipelines.scales import RatingScale

__all__ = ["LiveRater", "live_rater"]


@runtime_checkable
class LiveRater(Protocol):
    """Rates batches of live questions.

    Raises what :meth:`pipelines.raters.Rater.rate` raises.
    """

    @property
    def name(self) -> str:
        """What the ``rater`` column says."""
        ...

    @property
    def scale(self) -> RatingScale:
        """The scale of its answers, and of the ratings in memories."""
        ...

    @property
    def items(self) -> int:
        """How many items there are (count)."""
        ...

    def rate(
        self, personas: Ints, items: Ints, past: Ints, ratings: Floats, met: Ints | None = None
    ) -> RatingBatch:
        """Rate one pair per row.

        Parameters
        ----------
        personas, items
            Row numbers of the frames that this was made with, each of shape (n,). A persona may
            stand in several rows, with another memory in each.
        past
            Item numbers of each row's memory, oldest first, -1 where there is none, of shape
            (n, k).
        ratings
            Their ratings on `scale`, of shape (n, k); ignored where `past` is -1.
        met
            How often each row's persona met its item before (count), of shape (n,), for raters
            that tell; default: as often as it is in `past`.
        """
        ...


def live_rater(rater: Rater, personas: pl.DataFrame, items: pl.DataFrame) -> LiveRater:
    """The live form of a rater over these personas and items."""
    if isinstance(rater, StatisticalRater):
        return LiveStatistical(rater, personas, items)
    return LiveTables(rater, personas, items)
