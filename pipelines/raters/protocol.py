"""What a rater is and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.scales import RatingScale

__all__ = ["OK", "Explainer", "Floats", "Ints", "Rater", "RatingBatch", "all_pairs"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The status of a pair that has a rating.
OK = "ok"


@dataclass(frozen=True)
class RatingBatch:
    """Rating distributions of a batch of pairs.

    Attributes
    ----------
    scale
        What the probabilities are about.
    probabilities
        Shape (pairs, answers of the scale), rows sum to 1; NaN where the status is not `ok`.
    status
        One per pair: `ok`, `truncated`, `invalid`, `refused` or `engine_error`.
    answer_keys
        Key of the stored answer behind each pair; None for raters without a model.
    notes
        What there is to say about single pairs, such as why one failed; None where nothing.
    prompt_version
        Version of the prompt that was asked; None for raters without prompts.
    """

    scale: RatingScale
    probabilities: Floats
    status: Sequence[str]
    answer_keys: Sequence[str | None] | None = None
    notes: Sequence[str | None] | None = None
    prompt_version: str | None = None

    def __len__(self) -> int:
        return len(self.probabilities)

    @cached_property
    def expected(self) -> Floats:
        """Expected rating on the scale, of shape (pairs,)."""
        # Row by row, not as a product of matrices: a row's rounding is then its own.
        return np.asarray((self.probabilities * self.scale.answers).sum(axis=1))

    @cached_property
    def mode(self) -> Floats:
        """Most probable answer (the lowest of several), NaN where there is no rating."""
        answers = self.scale.answers[np.argmax(np.nan_to_num(self.probabilities), axis=1)]
        return np.where(np.isnan(self.probabilities[:, 0]), np.nan, answers)

    @cached_property
    def entropy(self) -> Floats:
        """Entropy of each distribution, in nats."""
        p = self.probabilities
        # `0 log 0` is 0; the smallest normal number stands in for 0 inside the logarithm.
        logs = np.log(np.maximum(p, np.finfo(float).tiny))
        return np.asarray(np.abs((p * logs).sum(axis=1)))

    def sample(self, draw: Floats) -> Floats:
        """The answer at quantile `draw` (uniform numbers in [0, 1), one per pair)."""
        below = np.cumsum(self.probabilities, axis=1)[:, :-1] <= np.asarray(draw)[:, None]
        return np.where(
            np.isnan(self.probabilities[:, 0]), np.nan, self.scale.answers[below.sum(axis=1)]
        )


@runtime_checkable
class Rater(Protocol):
    """Says what personas would give to items.

    ``pipelines.raters.testing.RaterContract`` is the class that an implementation's tests
    inherit.
    """

    @property
    def name(self) -> str:
        """Value of the ``rater`` column."""
        ...

    @property
    def scale(self) -> RatingScale:
        """The scale of its answers."""
        ...

    def rate(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None = None,
        *,
        pairs: npt.NDArray[np.integer[Any]] | None = None,
    ) -> RatingBatch:
        """Rate pairs of a persona and an item.

        Parameters
        ----------
        personas
            Rows of the `personas` contract.
        items
            Rows of the `items` contract.
        histories
            What personas rated before: columns ``persona_id, item_id, rating`` (on `scale`),
            oldest first.
        pairs
            Row numbers (persona, item), of shape (pairs, 2); default: every persona with
            every item, persona by persona.
        """
        ...

    def metadata(self) -> dict[str, Any]:
        """What is fitted and what is set by hand, ready for JSON."""
        ...


def all_pairs(personas: int, items: int) -> Ints:
    """Row numbers of every persona with every item, persona by persona.

    >>> all_pairs(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    grid = np.indices((personas, items)).reshape(2, -1)
    return np.ascontiguousarray(grid.T).astype(np.int64)


@runtime_checkable
class Explainer(Protocol):
    """A rater that can also write why."""

    def explain(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        pairs: npt.NDArray[np.integer[Any]],
        ratings: Floats,
        histories: pl.DataFrame | None = None,
        *,
        seed: int = 0,
    ) -> pl.DataFrame:
        """Why each persona gives its item this rating.

        Parameters
        ----------
        personas, items, pairs, histories
            As for :meth:`Rater.rate`.
        ratings
            On the rater's scale, one per pair; NaN where there is none.
        seed
            Of the draw of the texts.

        Returns
        -------
        One row per pair, in order, with the columns ``explanation`` (null where there is none),
        ``status`` and ``note``.
        """
        ...
