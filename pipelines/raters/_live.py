"""Raters as a running environment asks them: a batch of live questions, in numbers.

:class:`pipelines.raters.Rater` takes and gives frames of ids, which suits tables. An environment
asks the same few personas about the same items thousands of times a second, each with a memory
that has just changed. Here personas and items are row numbers of two fixed frames, a memory is
a row of item numbers with its ratings, and what does not change is computed once.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import polars as pl

from pipelines.raters._replay import LiveReplay, ReplayRater
from pipelines.raters.llm import LLMRater
from pipelines.raters.protocol import Floats, Ints, Rater, RatingBatch
from pipelines.raters.statistical import LiveStatistical, StatisticalRater
from pipelines.scales import RatingScale

__all__ = ["LiveRater", "LiveTables", "layers", "live_rater"]


@runtime_checkable
class LiveRater(Protocol):
    """Rates batches of live questions.

    Raises what :meth:`pipelines.raters.Rater.rate` raises.
    """

    @property
    def name(self) -> str:
        """Value of the ``rater`` column."""
        ...

    @property
    def scale(self) -> RatingScale:
        """The scale of its answers, and of the ratings in memories."""
        ...

    @property
    def items(self) -> int:
        """Number of items."""
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
    if isinstance(rater, ReplayRater):
        return LiveReplay(rater, personas, items)
    return LiveTables(rater, personas, items)


class LiveTables:
    """Any :class:`pipelines.raters.Rater`, live, through frames: one call per batch.

    A rater of tables knows a history by the id of its persona. Where a persona stands in several
    rows, each with a memory of its own, a language model is asked about copies of it under other
    ids, which no prompt shows; other raters, for which the id may mean something, are asked once
    more for each such layer.

    Parameters
    ----------
    rater
        The rater.
    personas, items
        Rows of those contracts: what the numbers mean.
    """

    def __init__(self, rater: Rater, personas: pl.DataFrame, items: pl.DataFrame) -> None:
        self._rater = rater
        self._personas, self._items = personas, items
        self._ids = items["item_id"]

    @property
    def name(self) -> str:
        """Value of the ``rater`` column."""
        return self._rater.name

    @property
    def scale(self) -> RatingScale:
        """The scale of its answers."""
        return self._rater.scale

    @property
    def items(self) -> int:
        """Number of items."""
        return self._items.height

    def rate(
        self, personas: Ints, items: Ints, past: Ints, ratings: Floats, met: Ints | None = None
    ) -> RatingBatch:
        """Rate one pair per row; see :class:`pipelines.raters.LiveRater`."""
        layer = layers(personas)
        if isinstance(self._rater, LLMRater) or not layer.any():
            return self._ask(personas, layer, items, past, ratings, met)
        probabilities = np.full((len(personas), len(self.scale)), np.nan)
        status = [""] * len(personas)
        for number in range(int(layer.max()) + 1):
            rows = np.flatnonzero(layer == number)
            part = self._ask(
                personas[rows], layer[rows] * 0, items[rows], past[rows], ratings[rows],
                None if met is None else met[rows],
            )  # fmt: skip
            probabilities[rows] = part.probabilities
            for row, said in zip(rows.tolist(), part.status, strict=True):
                status[row] = said
        return RatingBatch(self.scale, probabilities, status)

    def _ask(
        self,
        personas: Ints,
        layer: Ints,
        items: Ints,
        past: Ints,
        ratings: Floats,
        met: Ints | None,
    ) -> RatingBatch:
        who = self._personas[personas.tolist()]
        copy = pl.Series("layer", layer)
        who = who.with_columns(
            persona_id=pl.when(copy > 0)
            .then(pl.format("{}#{}", "persona_id", copy))
            .otherwise("persona_id")
        )
        row, column = np.nonzero(past >= 0)
        remembered = pl.DataFrame(
            {
                "persona_id": who["persona_id"].gather(row),
                "item_id": self._ids.gather(past[row, column]),
                "rating": pl.Series(ratings[row, column], dtype=pl.Float64),
            }
        )
        pairs = np.stack([np.arange(len(personas)), items], axis=1)
        if met is not None and isinstance(self._rater, LLMRater):
            return self._rater.rate(who, self._items, remembered, pairs=pairs, met=met.tolist())
        return self._rater.rate(who, self._items, remembered, pairs=pairs)


def layers(values: Ints) -> Ints:
    """Number of earlier rows with the same value.

    >>> layers(np.array([4, 2, 4, 4])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.searchsorted(ordered, ordered, side="left")
    out = np.empty(len(values), np.int64)
    out[order] = np.arange(len(values)) - first
    return out
