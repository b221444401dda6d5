"""The statistical rater as a running environment asks it: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.errors import ContractError
from pipelines.raters.protocol import OK, BoundRater, Floats, Ints, RatingBatch
from pipelines.raters.statistical._profiles import EFFECTS, Catalogue, Profiles, pair_features
from pipelines.raters.statistical._rater import StatisticalRater, is_human, width_of
from pipelines.scales import rescale

_LENIENCY, _HISTORY = EFFECTS.index("leniency"), EFFECTS.index("history")
#: Persona-item values that are kept as a table (count, 8 bytes each); more are computed when
#: they are asked for.
_TABLE = 16_000_000


class LiveStatistical(BoundRater):
    """The distributions of :meth:`StatisticalRater.rate` from arrays, without frames.

    The posterior of taste given k past ratings (`TasteModel`) is computed in its dual form: with
    whitened item features Z (Z·Zᵀ is the prior covariance of two items' surpluses) and past
    surpluses y, the weights are Zₖᵀ·(Zₖ·Zₖᵀ + σ²·1)⁻¹·y, so that a memory of k items costs a k by k
    solve per row, all rows at once; where k exceeds the number of features, the primal form is the
    smaller one. Each row's result is the same to the last bit whatever stands in the other rows.
    """

    def __init__(
        self, rater: StatisticalRater, personas: pl.DataFrame, items: pl.DataFrame
    ) -> None:
        super().__init__(rater, personas, items)
        self.note = (
            "The rater is statistical: a model fitted on human ratings; no language model was used."
        )
        self._fitted = rater
        catalogue, rows = rater._place(items)
        self._known = rows < len(rater.catalogue.index)
        self._every_known = bool(self._known.all())
        self._profiles = rater._profiles(personas, None)
        self._catalogue, self._rows = catalogue, rows
        self._weights = rater._weights
        self._per_star = max(float(self._weights[0]), 0.1)
        self._static = _Static(self._profiles, catalogue, rows, self._weights)
        model = rater.tastes if is_human(personas).all() else rater.persona_prior
        # Σ = L·Lᵀ; a flat direction of Σ is one that ratings can't tell about: no jitter needed
        # beyond rounding.
        lower = np.linalg.cholesky(
            model.covariance + 1e-12 * np.trace(model.covariance) * np.eye(len(model.covariance))
        )
        white = catalogue.taste[rows] @ lower
        inner = lower.T @ model.typical @ lower
        self._items_white = white
        # An item that was not there at fitting is an average one as far as memories go, and the
        # last row, where the number -1 leads, is nothing: it teaches nothing.
        average = np.zeros(catalogue.taste.shape[1])
        average[0] = 1.0
        taught = np.where(self._known[:, None], white, average @ lower)
        # A statement on a genre is one more observation, with a rating's noise, that says what
        # was expected: it narrows the prior.
        observed = np.sqrt(model.noise) * rater.conditioner.observed @ lower
        self._white = np.vstack([taught, observed, np.zeros(white.shape[1])])
        stated = (self._profiles.likes + self._profiles.dislikes) > 0
        most = int(stated.sum(axis=1).max(initial=0))
        order = np.argsort(~stated, axis=1, kind="stable")[:, :most]
        listed = np.take_along_axis(stated, order, axis=1)
        self._stated = np.where(listed, len(rows) + order, -1)
        self._whitened_typical = np.ascontiguousarray(self._white @ inner)
        self._inner = inner
        self._lower00 = float(lower[0, 0])
        self._prior = float((model.covariance * model.typical).sum())
        self._most = self._profiles.variance
        self._unread = rater._widths(self._profiles)
        self._extremes = rater._extremes(self._profiles)
        drawn = self._profiles.stated
        self._drawn = np.zeros(len(self._unread), dtype=np.bool_)
        self._level = np.ones(len(self._unread))
        if drawn is not None:
            self._drawn, self._level = drawn.variance > 0, drawn.level
        self._all_drawn = bool(self._drawn.all())

    def rate(
        self,
        personas: Ints,
        items: Ints,
        past: Ints,
        ratings: Floats,
        met: Ints | None = None,  # noqa: ARG002 (base)
    ) -> RatingBatch:
        """Rate one pair per row; see :class:`pipelines.raters.BoundRater`.

        ContractError if a past rating is off the scale.
        """
        static = self._static.of(personas, items)
        # Without memories, the result is the same from what follows, to the last bit.
        if not past.size or int(past.max()) < 0:
            return self._batch(personas, static, self._unread[personas])
        taste, variance = self.beliefs(personas, past, ratings)
        location = static + self._moved(taste, items)
        return self._batch(personas, location, self._widths(personas, variance))

    def sweep(self, persona: int, past: Ints, ratings: Floats) -> Floats:
        """Expected rating of every item for one persona with one memory of shape (k,)."""
        everything = np.arange(len(self._rows), dtype=np.int64)
        again = np.full(len(everything), persona)
        static = self._static.of(again, everything)
        if not len(past):
            return self._batch(again, static, self._unread[again]).expected
        taste, variance = self.beliefs(again[:1], past[None], ratings[None])
        moved = self._moved(np.broadcast_to(taste, (len(everything), taste.shape[1])), everything)
        width = self._widths(again[:1], variance)
        return self._batch(again, static + moved, np.repeat(width, len(everything))).expected

    def explain(self, persona: int, item: int, past: Ints, ratings: Floats) -> dict[str, float]:
        """Effects on the expected rating of one pair, by name, in units of the scale."""
        who, taste, width = np.array([persona]), None, self._unread[[persona]]
        if len(past):
            taste, variance = self.beliefs(who, past[None], ratings[None])
            width = self._widths(who, variance)
        parts = self._parts(who, np.array([item]), taste)[0]
        # Row 0 is the whole, the others are without one effect each.
        location = parts.sum() - np.concatenate([[0.0], parts])
        again = np.full(len(location), persona)
        expected = self._batch(again, location, np.repeat(width, len(location))).expected
        return {e: float(expected[0] - expected[n + 1]) for n, e in enumerate(EFFECTS)}

    def _parts(self, personas: Ints, items: Ints, taste: Floats | None) -> Floats:
        """Parts of the location of each pair after beliefs, of shape (n, effects)."""
        pairs = np.stack([personas, self._rows[items]], axis=1)
        parts = pair_features(self._profiles, self._catalogue, pairs) * self._weights
        if taste is not None:
            moved = self._moved_by(taste, items)
            parts[:, _LENIENCY] += moved[0]
            parts[:, _HISTORY] += moved[1]
        return np.asarray(parts, np.float64)

    def settle(
        self, memories: Sequence[tuple[Ints, Floats]], personas: Ints | None = None
    ) -> Settled:
        """The rater with memories that no longer change.

        ``memories`` are item numbers, oldest first, and ratings on `scale`; ``personas`` those of
        the memories (default every persona once, in their order). Raises ContractError if a rating
        is off the scale, or there is not one memory per persona.
        """
        who = np.arange(len(self._unread)) if personas is None else personas
        if len(memories) != len(who):
            raise ContractError(
                f"{len(memories)} memories for {len(who)} personas", where=self.name
            )
        taste = np.zeros((len(memories), self._items_white.shape[1]))
        widths = self._unread[who]
        # Singly: padding to the longest would make a row depend on the others.
        for n, (past, ratings) in enumerate(memories):
            if len(past):
                persona = who[n : n + 1]
                learned, variance = self.beliefs(persona, past[None], ratings[None])
                taste[n], widths[n] = learned[0], self._widths(persona, variance)[0]
        return Settled(self, taste, widths, who)

    def beliefs(self, personas: Ints, past: Ints, ratings: Floats) -> tuple[Floats, Floats]:
        """Posterior of taste after memories (as of :meth:`rate`, with at least one column).

        Returns weights over whitened features, of shape (n, features), the first of which carries
        leniency; and the variance of the surplus over a typical item in squared rating units, of
        shape (n,); where every persona's taste is drawn and known, what was unknown before the
        draw.
        """
        present = past >= 0
        if not (self.scale.covers(ratings) | ~present).all():
            raise ContractError("a past rating is not on the scale", where=self.scale.name)
        rater, noise = self._fitted, self._fitted.tastes.noise
        stars = rescale(ratings, self.scale, rater.source)
        placed = None if self._every_known else self._known
        expected = self._static.past(personas, past, placed) / self._per_star
        surplus = np.where(present, stars - rater.quality.mean - expected, 0.0)
        observed = np.concatenate([past, self._stated[personas]], axis=1)
        surplus = np.concatenate([surplus, np.zeros((len(past), self._stated.shape[1]))], axis=1)
        # Wrapping leads -1 to the last row, which is nothing.
        white = self._white.take(observed, axis=0, mode="wrap")
        most = self._most[personas]
        if observed.shape[1] <= white.shape[2]:
            turned = white.transpose(0, 2, 1)
            gram = np.matmul(white, turned)
            # A view of the diagonals.
            np.einsum("nii->ni", gram)[...] += noise
            if self._all_drawn:  # no width depends on what is left unknown
                solved = np.linalg.solve(gram, surplus[:, :, None])
                return np.matmul(turned, solved)[:, :, 0], most
            # As well-conditioned as the noise is large, and the inverse serves twice.
            inverse = np.linalg.inv(gram)
            taste = np.matmul(turned, np.matmul(inverse, surplus[:, :, None]))[:, :, 0]
            reading = self._whitened_typical.take(observed, axis=0, mode="wrap")
            read = np.matmul(reading, turned)
            shape = (len(past), -1)
            variance = self._prior - np.vecdot(inverse.reshape(shape), read.reshape(shape))
        else:
            gram = np.matmul(white.transpose(0, 2, 1), white) / noise
            np.einsum("nii->ni", gram)[...] += 1.0
            moment = np.matmul(white.transpose(0, 2, 1), surplus[:, :, None]) / noise
            inner = np.broadcast_to(self._inner, gram.shape)
            solved = np.linalg.solve(gram, np.concatenate([moment, inner], axis=2))
            taste = np.ascontiguousarray(solved[:, :, 0])
            variance = np.einsum("nii->n", solved[:, :, 1:])
        return taste, np.where(present.any(axis=1), np.minimum(variance, most), most)

    def _moved(self, taste: Floats, items: Ints) -> Floats:
        """Addition of beliefs to locations, of shape (n,)."""
        leniency, history = self._moved_by(taste, items)
        return leniency + history

    def _moved_by(self, taste: Floats, items: Ints) -> tuple[Floats, Floats]:
        """The addition's parts: leniency by its weight, the rest by history's."""
        leniency = self._lower00 * taste[:, 0]
        surplus = np.vecdot(self._items_white[items], np.ascontiguousarray(taste))
        return self._weights[_LENIENCY] * leniency, self._weights[_HISTORY] * (surplus - leniency)

    def _widths(self, personas: Ints, variance: Floats) -> Floats:
        # A drawn taste is known: ratings leave no less unknown.
        width = width_of(variance, self._fitted.tastes, self._fitted.usual_variance)
        width *= self._level[personas]
        return np.asarray(np.where(self._drawn[personas], self._unread[personas], width))

    def _batch(self, personas: Ints, location: Floats, width: Floats) -> RatingBatch:
        probabilities = self._fitted.distributions(location, width, self._extremes[personas])
        return RatingBatch(self.scale, probabilities, [OK] * len(location))


@dataclass(frozen=True)
class Settled:
    """Ratings with memories that no longer change; made by `LiveStatistical.settle`.

    A row's result is the same to the last bit whatever stands in the other rows. Pairs name a
    memory by its number, which is the persona's own where every persona has one.
    """

    #: The bound rater.
    rater: LiveStatistical
    #: Features and widths that memories teach, of shape (personas, features) and (personas,).
    taste: Floats
    widths: Floats
    personas: Ints

    def rate(self, memories: Ints, items: Ints) -> RatingBatch:
        """Rate one pair of a memory and an item per row."""
        live, personas = self.rater, self.personas[memories]
        location = live._static.of(personas, items) + live._moved(self.taste[memories], items)
        return live._batch(personas, location, self.widths[memories])

    def effects(self, memories: Ints, items: Ints) -> Floats:
        """Parts of the location of each pair, in logits, of shape (n, effects).

        In the order of `EFFECTS`. The expected rating grows with the location, so that the
        largest part is the effect without which it would be lowest, and the smallest the one
        without which it would be highest.
        """
        return self.rater._parts(self.personas[memories], items, self.taste[memories])


class _Static:
    """The prior of a pair before any rating: a table if it is small, else on demand."""

    def __init__(
        self, profiles: Profiles, catalogue: Catalogue, rows: Ints, weights: Floats
    ) -> None:
        self._profiles, self._catalogue, self._rows = profiles, catalogue, rows
        self._weights = weights
        self._lenient = profiles.leniency * weights[_LENIENCY]
        self._quality = catalogue.quality[rows] * weights[0]
        self._blank = self._of_nothing()
        self._word = weights[EFFECTS.index("word")]
        assert profiles.stated is not None
        self._felt = (
            profiles.stated.liked + profiles.stated.disliked + profiles.stated.drawn
        ) * weights[EFFECTS.index("taste")]
        self._columns = catalogue.taste[rows]
        self._shares = catalogue.shares[rows].astype(np.float64)
        self._textual = bool(profiles.vectors.shape[1] and catalogue.vectors.shape[1])
        if self._textual:
            self._mean, spread = profiles.standard(catalogue)
            self._told = spread > 1e-6
            self._spread = np.where(self._told, spread, 1.0)
            self._vectors = catalogue.vectors[rows]
            self._embedded = catalogue.embedded[rows]
        self._table: Floats | None = None
        if len(self._lenient) * len(rows) <= _TABLE:
            self._table = self._whole()

    def _of_nothing(self) -> Floats:
        """Locations of an item of which nothing is known, of shape (personas,)."""
        none = self._catalogue.joined(
            np.zeros((1, len(self._catalogue.genres)), np.float32),
            np.zeros((1, self._catalogue.features.shape[1])),
            np.zeros(1),
        )
        people = np.arange(len(self._lenient))
        pairs = np.stack([people, np.full(len(people), len(none.quality) - 1)], axis=1)
        features = pair_features(self._profiles, none, pairs)
        return np.asarray((features * self._weights).sum(axis=1), np.float64)

    def _whole(self) -> Floats:
        people = np.arange(len(self._lenient))
        things = np.arange(len(self._rows))
        out = np.empty((len(people), len(things)))
        for start in range(0, len(people), 64):
            part = people[start : start + 64]
            pairs = np.stack([np.repeat(part, len(things)), np.tile(self._rows, len(part))], axis=1)
            features = pair_features(self._profiles, self._catalogue, pairs)
            out[part] = (features * self._weights).sum(axis=1).reshape(len(part), -1)
        return out

    def of(self, personas: Ints, items: Ints) -> Floats:
        """Locations of pairs; the two broadcast against each other."""
        if self._table is not None:
            return self._table[personas, items]
        out = self._quality[items] + self._lenient[personas]
        shares = self._shares[items]
        out = out + np.vecdot(self._felt[personas], self._columns[items])
        if self._profiles.marks is not None:
            marks = self._profiles.marks
            praised = np.vecdot(marks.praised[personas], shares)
            panned = np.vecdot(marks.panned[personas], shares)
            out = out + self._word * marks.of(personas, praised, panned)
        if self._textual:
            cosine = np.vecdot(self._profiles.vectors[personas], self._vectors[items])
            standard = np.clip((cosine - self._mean[personas]) / self._spread[personas], -4.0, 4.0)
            comparable = self._told[personas] & self._embedded[items]
            out = out + self._weights[4] * np.where(comparable, standard, 0.0)
        return np.asarray(out, np.float64)

    def past(self, personas: Ints, past: Ints, placed: np.ndarray | None) -> Floats:
        """Locations of remembered pairs (n, k); what stands where there is none is arbitrary.

        `placed` is a mask of the items that were there at fitting; None: all of them.
        """
        out = self.of(personas[:, None], past)
        if placed is None:
            return out
        return np.where(placed[past], out, self._blank[personas][:, None])
