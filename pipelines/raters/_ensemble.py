"""Several raters as one, and how far they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from pipelines.errors import ConfigError
from pipelines.raters.protocol import (
    OK,
    Floats,
    Ints,
    Rater,
    RatingBatch,
    TableRater,
    asks_model,
    for_personas,
)


@dataclass(frozen=True)
class EnsembleBatch(RatingBatch):
    """A batch rated by several raters."""

    #: Mean total variation between the distributions of two members, 0-1, of shape (pairs,); NaN
    #: where there is no rating.
    disagreement: Floats | None = None
    #: Standard deviation of the members' expected ratings, on the scale, of shape (pairs,).
    spread: Floats | None = None


class EnsembleRater(TableRater):
    """Averages the distributions of its members (BIEL averages two models, section 4).

    The members, at least two, are on one scale and have different names (else ConfigError). A pair
    has a rating only if every member has one: an average over those that answered would be another
    estimator from pair to pair. The status of other pairs is the first member's that failed, and
    the note names it.

    Examples
    --------
    >>> from pipelines.raters import MeanRater, RandomRater, SCALES
    >>> stats = pl.DataFrame({"item_id": ["ml:1"], "train_ratings": [9],
    ...                       "train_mean_rating": [5.0]})
    >>> items, personas = stats.select("item_id"), pl.DataFrame({"persona_id": ["persona:a:0"]})
    >>> scale = SCALES["1-5"]
    >>> both = EnsembleRater([RandomRater(scale), MeanRater(stats, scale)])
    >>> batch = both.rate(personas, items)
    >>> batch.probabilities.round(2).tolist(), batch.disagreement.round(2).tolist()
    ([[0.1, 0.1, 0.1, 0.1, 0.6]], [0.8])
    """

    name = "ensemble"

    def __init__(self, raters: Sequence[Rater]) -> None:
        if len(raters) < 2:
            raise ConfigError("an ensemble needs at least two raters", where="scoring.ensemble")
        scales = {rater.scale.name for rater in raters}
        if len(scales) > 1:
            raise ConfigError(
                "raters of an ensemble must answer on one scale", where=", ".join(sorted(scales))
            )
        names = [rater.name for rater in raters]
        if len(set(names)) < len(names):
            raise ConfigError(
                "raters of an ensemble need names that differ", where=", ".join(names)
            )
        #: Members.
        self.raters = tuple(raters)
        self.scale = raters[0].scale
        #: Pairs rated, and sums of total variations and spreads over them; copies share it.
        self.disagreement = np.zeros(3)

    @property
    def language_model(self) -> bool:
        """True if a member asks a language model."""
        return any(getattr(r, "language_model", asks_model(r.name)) for r in self.raters)

    def for_personas(self, persona_embeddings: pl.DataFrame) -> EnsembleRater:
        """Its members with the vectors of other personas; its counts go on."""
        ensemble = copy(self)
        ensemble.raters = tuple(for_personas(rater, persona_embeddings) for rater in self.raters)
        return ensemble

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> EnsembleBatch:
        """Mean distributions with their disagreement."""
        batches = [rater.rate(personas, items, past, pairs=pairs) for rater in self.raters]
        status = [OK] * len(pairs)
        notes: list[list[str]] = [[] for _ in range(len(pairs))]
        for rater, batch in zip(self.raters, batches, strict=True):
            remarks = batch.notes or [None] * len(pairs)
            for row, (state, note) in enumerate(zip(batch.status, remarks, strict=True)):
                if state != OK and status[row] == OK:
                    status[row] = state
                if state != OK or note:
                    notes[row].append(f"{rater.name}: {note or state}")
        ok = np.array([s == OK for s in status], dtype=bool)
        stacked = np.stack([batch.probabilities for batch in batches])
        mean = np.where(ok[:, None], stacked.mean(axis=0), np.nan)
        couples = [total_variation(a, b) for a, b in combinations(stacked, 2)]
        disagreement = np.where(ok, np.mean(couples, axis=0), np.nan)
        spread = np.where(ok, np.std([b.expected for b in batches], axis=0), np.nan)
        self.disagreement += [ok.sum(), disagreement[ok].sum(), spread[ok].sum()]
        versions = [b.prompt_version for b in batches if b.prompt_version is not None]
        return EnsembleBatch(
            self.scale,
            mean,
            status,
            _joined(batches, len(pairs)),
            ["; ".join(note) or None for note in notes],
            prompt_version=versions[0] if versions else None,
            disagreement=disagreement,
            spread=spread,
        )

    def metadata(self) -> dict[str, Any]:
        """Members and their mean disagreement over the pairs rated so far."""
        rated, *sums = self.disagreement.tolist()
        means = [total / rated if rated else None for total in sums]
        members = {rater.name: rater.metadata() for rater in self.raters}
        return self.described(
            {name: member["fitted"] for name, member in members.items()},
            {"weights": "equal"},
            members=members,
            disagreement={
                "pairs": int(rated),
                "mean_total_variation": means[0],
                "mean_spread": means[1],
            },
        )

    def close(self) -> None:
        """Close the members that can be closed."""
        for rater in self.raters:
            close = getattr(rater, "close", None)
            if close is not None:
                close()


def _joined(batches: Sequence[RatingBatch], size: int) -> list[str | None] | None:
    """The keys of all answers behind each pair, joined by ``+``; None if no member asks."""
    keyed = [batch.answer_keys for batch in batches if batch.answer_keys is not None]
    if not keyed:
        return None
    joined = ("+".join(k for k in (keys[row] for keys in keyed) if k) for row in range(size))
    return [keys or None for keys in joined]


def at_temperature(probabilities: Floats, temperature: float) -> Floats:
    """Distributions sharpened (below 1) or flattened (above 1) as sampling at a temperature does.

    Stored distributions are at temperature 1; this is the only place where another one enters.
    ``probabilities`` and the result, ``p ** (1 / temperature)`` with normalised rows, have shape
    (pairs, answers); rows of NaN stay NaN. 0 puts everything on the most probable answer (the
    lowest of several). A negative temperature is a ConfigError.

    Examples
    --------
    >>> at_temperature(np.array([[0.8, 0.2]]), 0.5).round(4).tolist()
    [[0.9412, 0.0588]]
    >>> at_temperature(np.array([[0.4, 0.4, 0.2]]), 0).tolist()
    [[1.0, 0.0, 0.0]]
    """
    if not temperature >= 0:
        raise ConfigError("a temperature must be at least 0", where=f"{temperature}")
    p = np.asarray(probabilities, dtype=np.float64)
    if temperature == 1 or not p.size:
        return p.copy()
    top = p.max(axis=-1, keepdims=True)
    if temperature == 0:
        first = np.zeros_like(p)
        np.put_along_axis(first, np.argmax(p, axis=-1)[..., None], 1.0, axis=-1)
        return np.where(np.isnan(top), np.nan, first)
    # Relative to the largest, so that no row underflows to nothing.
    shaped = (p / top) ** (1.0 / temperature)
    return np.asarray(shaped / shaped.sum(axis=-1, keepdims=True))


def total_variation(first: Floats, second: Floats) -> Floats:
    """Half the sum of absolute differences, 0-1, over the last axis."""
    return np.asarray(np.abs(first - second).sum(axis=-1) / 2)
