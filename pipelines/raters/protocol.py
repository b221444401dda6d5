"""Raters: the protocol, their array form, and the distributions that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import EngineError
from pipelines.forks import check_polars
from pipelines.scales import RatingScale

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The status of a pair that has a rating.
OK = "ok"
#: Raters that need no language model.
FITTED_RATERS = ("statistical", "random", "mean")
#: Names, up to a colon, of those that ask one, or may.
_ASKING = ("llm", "listwise", "ensemble")
#: Pairs of a sweep over all items that are rated at once (count).
_SWEPT = 4096


@dataclass(frozen=True)
class RatingBatch:
    """Rating distributions of a batch of pairs."""

    #: Scale of the probabilities.
    scale: RatingScale
    #: Shape (pairs, answers of the scale), rows sum to 1; NaN where the status is not `ok`.
    probabilities: Floats
    #: One per pair: `ok`, `truncated`, `invalid`, `refused` or `engine_error`.
    status: Sequence[str]
    #: Key of the stored answer behind each pair; None for raters without a model.
    answer_keys: Sequence[str | None] | None = None
    #: Notes on single pairs, such as the cause of a failure; None without one.
    notes: Sequence[str | None] | None = None
    #: Version of the prompt that was asked; None for raters without prompts.
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
    """Rates items for personas, both given as tables.

    This is all that a class must have; ``pipelines.raters.testing.check_rater`` tests it. It may
    also have ``bind(personas, items)``, which returns a
    :class:`BoundRater` that is faster than the general one, ``needs`` and ``uses`` (names of
    tables that it must be given, and that it reads where there are any), ``explain``
    (:class:`Explainer`), ``close()``, and ``for_personas(persona_embeddings)``
    (:func:`for_personas`).
    """

    @property
    def name(self) -> str:
        """Value of the ``rater`` column."""

    @property
    def scale(self) -> RatingScale:
        """The scale of its answers."""

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
            Earlier ratings of personas: columns ``persona_id, item_id, rating`` (on `scale`),
            oldest first.
        pairs
            Row numbers (persona, item), of shape (pairs, 2); default: every persona with
            every item, persona by persona.
        """

    def metadata(self) -> dict[str, Any]:
        """Name (``rater``) and values ``fitted`` and set ``by_hand`` (JSON objects)."""


def asks_model(name: str) -> bool:
    """True if the rater's name denotes a language model; one of somebody's own says so itself.

    >>> asks_model("llm:m"), asks_model("surrogate:llm:m"), asks_model("mean"), asks_model("mine")
    (True, False, False, False)
    """
    return name.partition(":")[0] in _ASKING


def all_pairs(personas: int, items: int) -> Ints:
    """Row numbers of every persona with every item, persona by persona.

    >>> all_pairs(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    grid = np.indices((personas, items)).reshape(2, -1)
    return np.ascontiguousarray(grid.T).astype(np.int64)


class TableRater(ABC):
    """Base of raters: fills in the pairs, and states its metadata in the form of the protocol."""

    name: str
    scale: RatingScale
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()

    def rate(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None = None,
        *,
        pairs: npt.NDArray[np.integer[Any]] | None = None,
    ) -> RatingBatch:
        """Rate pairs of a persona and an item; see :class:`Rater`."""
        return self.rate_pairs(personas, items, histories, self.pairs_of(personas, items, pairs))

    @abstractmethod
    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """:meth:`rate` of given pairs, of shape (pairs, 2)."""

    @staticmethod
    def pairs_of(
        personas: pl.DataFrame, items: pl.DataFrame, pairs: npt.NDArray[np.integer[Any]] | None
    ) -> Ints:
        """The pairs of :meth:`rate`, of shape (pairs, 2); every pair by default."""
        chosen = all_pairs(personas.height, items.height) if pairs is None else pairs
        return np.asarray(chosen, np.int64).reshape(-1, 2)

    def described(self, fitted: Any = None, by_hand: Any = None, **more: Any) -> dict[str, Any]:
        """Metadata of the rater from its fitted values, those set by hand, and others."""
        head = {"rater": self.name, "scale": self.scale.name}
        return {**head, "fitted": fitted or {}, "by_hand": by_hand or {}, **more}


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
        """Reasons of each persona for its rating.

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
        One row per pair, in order: ``explanation`` (null where there is none), ``status, note``.
        """


class BoundRater:
    """A rater over fixed personas and items: arrays of row numbers in, distributions out.

    Environments rate few personas and items thousands of times a second, each time with another
    memory. This class serves any :class:`Rater`, through tables; subclasses compute what does not
    change once. ``language_model`` and ``note`` (one sentence, for people) tell whether a language
    model makes the ratings, ``warning`` what a reader of results must know, else None.
    """

    warning: str | None = None

    def __init__(self, rater: Rater, personas: pl.DataFrame, items: pl.DataFrame) -> None:
        self._rater, self._personas, self._items = rater, personas, items
        self.name, self.scale = rater.name, rater.scale
        self.language_model: bool = getattr(rater, "language_model", asks_model(rater.name))
        self.note = f"Ratings are those of the rater {self.name}" + (
            ", a language model." if self.language_model else ": no language model was used."
        )

    def rate(
        self, personas: Ints, items: Ints, past: Ints, ratings: Floats, met: Ints | None = None
    ) -> RatingBatch:
        """Rate one pair per row.

        Parameters
        ----------
        personas, items
            Row numbers, each of shape (n,). A persona may stand in several rows, with another
            memory in each.
        past
            Item numbers of each row's memory, oldest first, -1 where there is none, of shape
            (n, k).
        ratings
            Their ratings on `scale`, of shape (n, k); ignored where `past` is -1.
        met
            Earlier meetings of each row's persona and item (count), of shape (n,), for raters
            that show it; default: as often as it is in `past`.

        Raises
        ------
        UnderstudyError
            Errors of :meth:`Rater.rate`.
        """
        del met
        # Tables hold histories by persona: a persona in several rows is rated once more for each.
        layer = layers(personas)
        if not layer.any():
            return self._through_tables(personas, items, past, ratings)
        probabilities = np.full((len(personas), len(self.scale)), np.nan)
        status = [""] * len(personas)
        for number in range(int(layer.max()) + 1):
            rows = np.flatnonzero(layer == number)
            part = self._through_tables(personas[rows], items[rows], past[rows], ratings[rows])
            probabilities[rows] = part.probabilities
            for row, row_status in zip(rows.tolist(), part.status, strict=True):
                status[row] = row_status
        return RatingBatch(self.scale, probabilities, status)

    def sweep(self, persona: int, past: Ints, ratings: Floats) -> Floats:
        """Expected rating of every item with a memory of shape (k,); NaN where there is none."""
        everything = np.arange(self._items.height, dtype=np.int64)
        out = np.empty(len(everything))
        for start in range(0, len(everything), _SWEPT):
            part = everything[start : start + _SWEPT]
            again = (len(part), len(past))
            memory = np.broadcast_to(past, again), np.broadcast_to(ratings, again)
            out[part] = self.rate(np.full(len(part), persona), part, *memory).expected
        return out

    def explain(self, persona: int, item: int, past: Ints, ratings: Floats) -> dict[str, float]:
        """Effects on the expected rating, by name, in units of the scale; empty if unknown."""
        del persona, item, past, ratings
        return {}

    def _through_tables(
        self, personas: Ints, items: Ints, past: Ints, ratings: Floats
    ) -> RatingBatch:
        check_polars(f"rater {self.name}")
        who = self._personas[personas.tolist()]
        pairs = np.stack([np.arange(len(personas)), items], axis=1)
        histories = self._histories(who, past, ratings)
        batch = self._rater.rate(who, self._items, histories, pairs=pairs)
        check_batch(batch, len(pairs), self.name)
        return batch

    def _histories(self, who: pl.DataFrame, past: Ints, ratings: Floats) -> pl.DataFrame:
        row, column = np.nonzero(past >= 0)
        return pl.DataFrame(
            {
                "persona_id": who["persona_id"].gather(row),
                "item_id": self._items["item_id"].gather(past[row, column]),
                "rating": pl.Series(ratings[row, column], dtype=pl.Float64),
            }
        )


def check_batch(batch: object, pairs: int, name: str) -> None:
    """Check what the rater of this name returned for so many pairs.

    EngineError unless there is a distribution (not negative, sums to 1) for each that is `ok`.
    """
    if not isinstance(batch, RatingBatch):
        kind = type(batch).__name__
        raise EngineError(f"`rate` returned {kind}, not a RatingBatch", where=f"rater {name}")
    if len(batch) != pairs or len(batch.status) != pairs:
        raise EngineError(f"{len(batch)} ratings for {pairs} pairs", where=f"rater {name}")
    ok = np.array([s == OK for s in batch.status], dtype=bool)
    answered = batch.probabilities[ok]
    sums = np.isclose(answered.sum(axis=1), 1.0, rtol=0, atol=1e-6)
    wrong = ~(sums & (answered >= 0).all(axis=1))
    if wrong.any():
        raise EngineError(
            f"{int(wrong.sum())} distributions are negative or don't sum to 1",
            where=f"rater {name}",
        )


def bind(rater: Rater, personas: pl.DataFrame, items: pl.DataFrame) -> BoundRater:
    """The array form of a rater over these personas and items: its own, or the general one."""
    method = getattr(rater, "bind", None)
    bound: BoundRater = (method or partial(BoundRater, rater))(personas, items)
    return bound


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


def for_personas(rater: Rater, persona_embeddings: pl.DataFrame) -> Rater:
    """The rater with the vectors of other personas; what it learned and counted stays.

    A rater without a method of this name needs no vectors, or has those of everybody.
    """
    method = getattr(rater, "for_personas", None)
    if method is None:
        return rater
    updated: Rater = method(persona_embeddings)
    return updated
