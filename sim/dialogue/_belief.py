"""Bayesian belief over customer types, and the value of asking.

A type is a train persona with its scores y_k of a choice set. A belief has weights w_k that sum to
one. Answers are columns, see :mod:`sim.dialogue._answers`.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from pipelines.errors import ConfigError
from pipelines.seeding import uniform
from sim.dialogue._answers import AnswerModel
from sim.dialogue._feedback import TONES, stars_of, tone_of, tone_of_text
from sim.dialogue._protocol import REGRET_LEVELS, Outcome
from sim.dialogue._world import ChoiceSet, DialogueWorld, Floats, Ints

#: Types of a belief at most (count).
MAX_TYPES = 350
#: Least probability of an answer, so that one that no type gives leaves a belief defined.
_LEAST = 1e-9
#: Least weight of a type whose logarithm is taken.
_TINY = 1e-30
#: Choice sets whose tables are kept (count).
_SETS = 256
#: Penalty of the regression that predicts scores in unseen categories.
_RIDGE = 10.0
#: Standard deviation of a reported regret around the type's (points), and probability that stars
#: or tone are any at random.
_DEVIATION, _RANDOM = 5.0, 0.1
_TYPES = 111


class SetBelief:
    """Tables of one choice set over K types: scores and answer probabilities.

    ``y`` are the scores of the types, of shape (K, products), ``p`` the probabilities of their
    answers, of shape (K, columns); those of a facet sum to one. ``first`` is the first column of
    each facet and the number of columns at the end. Weights ``w`` are of shape (K,).
    """

    def __init__(self, y: Floats, p: Floats, first: Ints) -> None:
        self.y = np.ascontiguousarray(y, np.float32)
        self.p = np.ascontiguousarray(p, np.float32)
        self.first = first
        self._y_by_product = np.ascontiguousarray(self.y.T)
        #: Best score of each type, of shape (K,).
        self.most = self.y.max(axis=1)

    @classmethod
    def of(cls, shelf: ChoiceSet, y: Floats, model: AnswerModel) -> SetBelief:
        """Tables for these scores under an answer model."""
        return cls(y, model.probabilities(shelf, y), shelf.answer_starts)

    @property
    def facets(self) -> int:
        """Facets of the set (count)."""
        return len(self.first) - 1

    @cached_property
    def log_p(self) -> Floats:
        """Log likelihood of each column, of shape (columns, K)."""
        return np.ascontiguousarray(np.log(np.maximum(self.p, _LEAST)).T)

    @cached_property
    def best(self) -> Ints:
        """Best product of each type, of shape (K,); the first of equal ones."""
        return np.asarray(self.y.argmax(axis=1), np.int64)

    @cached_property
    def _events(self) -> Floats:
        """Regret and the six events of `CONFIDENCES`, of shape (products, K, 7)."""
        regret = self.most[:, None] - self.y
        # Rank with ties at the best place: one more than the number of better products.
        ordered = np.sort(self.y, axis=1)[:, ::-1]
        fifth = ordered[:, min(4, ordered.shape[1] - 1)][:, None]
        events = [regret <= 0, self.y >= fifth, *(regret <= level for level in REGRET_LEVELS)]
        return np.stack([regret, *events]).astype(np.float32).transpose(2, 1, 0).copy()

    @cached_property
    def _winners(self) -> Floats:
        """1 where a product is a type's best one, of shape (products that are, K)."""
        products = np.unique(self.best)
        return np.asarray(products[:, None] == self.best, np.float32)

    def posterior(self, log_prior: Floats, columns: list[int]) -> Floats:
        """Weights after the answers of some columns."""
        return normalised(log_prior + self.log_p[columns].sum(axis=0))

    def scores(self, w: Floats) -> Floats:
        """Expected score of each product, of shape (products,)."""
        return np.asarray(w @ self.y, np.float32)

    def expected(self, w: Floats, product: int) -> Floats:
        """Expected regret and six confidences of selling a product, of shape (7,)."""
        return np.asarray(w @ self._events[product], np.float32)

    def answered(self, w: Floats) -> tuple[np.float32, Floats]:
        """V(w) = max_a Σ_k w_k y_ka, and Σ_v P(v) V(w^v) of each facet, of shape (facets,).

        Weights need not sum to one: both are homogeneous in them.
        """
        after = ((self._y_by_product * w) @ self.p).max(axis=0)
        return self.scores(w).max(), self._by_facet(after)

    def evi(self, w: Floats) -> Floats:
        """EVI(f) = Σ_v P(v) V(w^v) - V(w) of each facet, never negative; shape (facets,)."""
        now, after = self.answered(w)
        return np.asarray(np.maximum(after - now, 0), np.float32)

    def gain(self, w: Floats, *, cost: float, depth: int, free: Any) -> Floats:
        """Expected gain of asking each facet now, less the cost, of shape (facets,).

        ``cost`` is that of a question (points); ``free`` marks facets that may still be asked, of
        shape (facets,). With ``depth`` 1 the product is sold after the question, with 2 the best
        next question may be asked before, at its cost.
        """
        if depth == 1:
            return np.asarray(self.evi(w) - cost, np.float32)
        facet = np.repeat(np.arange(self.facets), np.diff(self.first))
        then = np.empty(len(facet), np.float32)
        for column, chances in enumerate(self.p.T):
            child = w * chances
            now, after = self.answered(child)
            after = np.where(free, after, -np.inf)
            after[facet[column]] = -np.inf  # the answer would be the same again
            then[column] = max(now, after.max() - cost * child.sum())
        return np.asarray(self._by_facet(then) - cost - self.scores(w).max(), np.float32)

    def information_gain(self, w: Floats) -> Floats:
        """H(A*) - Σ_v P(v) H(A* | v) in nats, A* the best product; of shape (facets,)."""
        winners: Floats = np.asarray((self._winners * w) @ self.p, np.float32)
        prior = _neg_entropy(self._winners @ w).sum()
        joint = _neg_entropy(winners).sum(axis=0) - _neg_entropy(w @ self.p)
        return np.asarray(np.maximum(self._by_facet(joint) - prior, 0), np.float32)

    def learned(self, w: Floats, outcome: Outcome) -> Floats:
        """Weights after the feedback on a sold product; the same without feedback."""
        sold = self.y[:, outcome.product]
        regret = self.most - sold
        log_w = np.log(np.maximum(w, _TINY))
        if outcome.regret is not None:
            log_w = log_w - (outcome.regret - regret) ** 2 / (2 * _DEVIATION**2)
        if outcome.stars is not None:
            log_w = log_w + _match(stars_of(sold, self.most) == outcome.stars, 6)
        if outcome.text is not None and (tone := tone_of_text(outcome.text)) >= 0:
            log_w = log_w + _match(tone_of(regret) == tone, len(TONES))
        return normalised(log_w)

    def _by_facet(self, columns: Floats) -> Floats:
        """Sums of columns over each facet's answers."""
        if not self.facets:
            return np.zeros(0, np.float32)
        return np.asarray(np.add.reduceat(columns, self.first[:-1]), np.float32)


def normalised(log_w: Floats) -> Floats:
    """Weights that sum to one, of their logarithms."""
    w = np.exp(log_w - log_w.max())
    return np.asarray(w / w.sum(), np.float32)


def _match(same: Any, levels: int) -> Any:
    """Log likelihood of a level that is, or is not, the expected one."""
    return np.log((1 - _RANDOM) * same + _RANDOM / levels)


def _neg_entropy(p: Floats) -> Floats:
    """P log p elementwise, 0 at 0."""
    return np.asarray(p * np.log(np.maximum(p, _TINY)), np.float32)


class Types:
    """Customer types of a disclosed world: at most `MAX_TYPES` train personas, drawn by hash.

    In unseen categories a type's scores are predicted by a ridge regression on facet values and
    text vectors, fitted on its scores in the seen ones. A missing score of a seen category is the
    mean of the other types'. Raises ConfigError if no train persona has scores in a seen category.
    """

    def __init__(
        self, world: DialogueWorld, model: AnswerModel, *, seed: int = 0, most: int = MAX_TYPES
    ) -> None:
        seen = [s for s in world.sets if s.seen]
        scored = np.zeros(len(world.persona_ids), np.bool_)
        for shelf in seen:
            scored |= ~np.isnan(shelf.y).all(axis=1)
        scored &= world.splits == 0
        if not scored.any():
            raise ConfigError(
                "no train persona has scores in a seen category",
                where=world.reference or "world",
                hint="a belief over types needs them; score more personas",
            )
        rows = np.flatnonzero(scored)
        keys = uniform(seed, _TYPES, world.persona_hashes[rows])
        self.rows: Ints = np.sort(rows[np.argsort(keys, kind="stable")[:most]])
        self.model = model
        self.world = world
        #: Tables of a choice set, by its number in the world.
        self.tables = lru_cache(maxsize=_SETS)(
            lambda number: SetBelief.of(world.sets[number], self.scores(number), model)
        )

    def __len__(self) -> int:
        return len(self.rows)

    def scores(self, number: int) -> Floats:
        """Scores of the types in a choice set, of shape (types, products), without gaps."""
        shelf = self.world.sets[number]
        if not shelf.seen:
            weights, mean, features = self._regression
            predicted = np.clip(features(shelf) @ weights + mean, 0, 100).T
            return np.asarray(predicted, np.float32)
        y = shelf.y[self.rows]
        missing = np.isnan(y)
        if not missing.any():
            return np.asarray(y, np.float32)
        counted = np.maximum((~missing).sum(axis=0), 1)
        centre = np.where(missing, 0, y).sum(axis=0) / counted
        centre[missing.all(axis=0)] = np.nanmean(y) if not missing.all() else 50.0
        return np.where(missing, centre, y).astype(np.float32)

    @cached_property
    def _regression(self) -> tuple[Any, Any, Any]:
        """Weights (features, types), means (types,), and the function that gives features."""
        features = Features(self.world)
        numbers = [n for n, s in enumerate(self.world.sets) if s.seen]
        x = np.concatenate([features(self.world.sets[n]) for n in numbers])
        y = np.concatenate([self.scores(n).T for n in numbers]).astype(np.float64)
        mean = y.mean(axis=0)
        gram = x.T @ x + _RIDGE * np.eye(x.shape[1])
        return np.linalg.solve(gram, x.T @ (y - mean)), mean, features


class Features:
    """Features of products that categories share: facet values, by kind and text, and vectors.

    At most ``most`` facet values (count) of the world's seen choice sets, those of most sets first.
    """

    def __init__(self, world: DialogueWorld, most: int = 512) -> None:
        count: dict[tuple[str, str], int] = {}
        for shelf in world.sets:
            for name in set(shelf.value_names):
                count[name] = count.get(name, 0) + shelf.seen
        ranked = sorted(count, key=lambda name: (-count[name], name))[:most]
        self.column = {name: n for n, name in enumerate(ranked)}
        self.dimensions = max((s.vectors.shape[1] for s in world.sets), default=0)

    def __len__(self) -> int:
        return len(self.column) + self.dimensions

    def columns(self, shelf: ChoiceSet) -> Ints:
        """Feature of each column of ``shelf.members``, -1 for none."""
        return np.array([self.column.get(name, -1) for name in shelf.value_names], np.int64)

    def __call__(self, shelf: ChoiceSet) -> Any:
        """Features centred within the set, float64 of shape (products, features)."""
        features = np.zeros((len(shelf), len(self)))
        columns = self.columns(shelf)
        features[:, columns[columns >= 0]] = shelf.members[:, columns >= 0]
        features[:, len(self.column) : len(self.column) + shelf.vectors.shape[1]] = shelf.vectors
        return features - features.mean(axis=0)
