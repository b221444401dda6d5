"""Agents with a belief over customer types: exact yardsticks that read the train scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.errors import ConfigError
from pipelines.seeding import combine, uniform
from sim.dialogue._answers import AnswerModel, columns_of
from sim.dialogue._belief import MAX_TYPES, Priors, SetBelief, Types, learned
from sim.dialogue._book import Book, Floats, Ints, groups
from sim.dialogue._feedback import FeedbackModel
from sim.dialogue._protocol import Actions, Bools, Outcomes, Views

__all__ = ["BaseAgent", "BeliefAgent", "GreedyAgent", "PlanningAgent", "ThompsonAgent"]

_FACET, _TYPE, _BELIEF = 131, 132, 133


class BeliefAgent:
    """Posterior over types from the answers, carried from episode to episode.

    Dialogues of a choice set with equal priors and answers share a belief.

    Parameters
    ----------
    tau, delta
        Of the answer model that it assumes.
    questions
        Questions of an episode at most; None: as many as are allowed.
    types
        Types at most (count).
    carry
        Exponent of the weights that a returning customer's next episode starts from (0-1). At 1
        all past answers count as those of this episode do, as if the customer were one of the
        types; less keeps the belief from being sure of one.
    """

    name = ""
    privileged = False
    #: Score that a facet must exceed to be asked about.
    threshold = 0.0

    def __init__(
        self,
        tau: float = 10.0,
        delta: float = 5.0,
        questions: int | None = None,
        types: int = MAX_TYPES,
        carry: float = 1.0,
    ) -> None:
        if not 0 <= carry <= 1:
            raise ConfigError(
                "carry must be from 0 to 1", where=f"agent {self.name}, carry = {carry:g}"
            )
        self._model = AnswerModel(tau, delta)
        self._feedback = FeedbackModel()
        self._questions = questions
        self._most = types
        self._carry = carry

    def open(self, book: Book, seed: int) -> None:
        """Draw the types and start from a uniform prior."""
        self._types = Types(book, self._model, seed=seed, most=self._most)
        self._priors = Priors(len(self._types), self._carry)
        self._book = book
        width = max(int(s.widths.sum()) + 2 * len(s.facets) for s in book.sets)
        self._hashes = combine(seed, _BELIEF, np.arange(width))

    def metadata(self) -> dict[str, Any]:
        """Name, answer model, questions, types and exponent."""
        return {
            "name": self.name,
            "tau": self._model.tau,
            "delta": self._model.delta,
            "questions": self._questions,
            "types": self._most,
            "carry": self._carry,
        }

    def act(self, views: Views) -> Actions:
        """Ask about the facet of the highest score above the threshold, or sell."""
        n = len(views)
        facet, product = np.full(n, -1), np.zeros(n, np.int64)
        expected = np.full((n, 7), np.nan, np.float32)
        ask = np.zeros(n, np.bool_)
        for _, rows, table, w, unique, free in self._beliefs(views):
            first, inverse = unique
            sold = self.sell(table, w, views.seeds[rows], inverse)
            product[rows] = sold
            expected[rows] = _of(table, w, inverse, sold)
            left = views.questions_left[rows] > 0
            more = left & (views.must_ask[rows] | self._goes_on(views.turn[rows]))
            if table.facets and more.any():
                scores = self.scores(table, w, free[first], views, rows, inverse)
                scores = np.where(free, np.round(scores, 3), -np.inf)
                ask[rows] = more & (views.must_ask[rows] | (scores.max(axis=1) > self.threshold))
                facet[rows] = np.where(ask[rows], scores.argmax(axis=1), -1)
        return Actions(
            ask=ask,
            facet=facet,
            product=views.placed(product),
            expected_regret=expected[:, 0],
            confidences=expected[:, 1:],
        )

    def learn(self, outcomes: Outcomes) -> None:
        """Carry the weights after answers and feedback to the next episode."""
        views = outcomes.views
        for _, rows, table, w, (_, inverse), _ in self._beliefs(views):
            after = learned(w[inverse], table, outcomes, rows, self._feedback)
            self._priors.write(views.lifetime[rows], views.customer[rows], after)

    def wipe(self, lifetimes: Ints) -> None:
        """Start these lifetimes from a uniform prior."""
        self._priors.wipe(lifetimes)

    def scores(
        self,
        table: SetBelief,
        w: Floats,  # noqa: ARG002
        free: Bools,  # noqa: ARG002
        views: Views,  # noqa: ARG002
        rows: Ints,
        inverse: Ints,  # noqa: ARG002
    ) -> Floats:
        """Worth of asking each facet, of shape (rows, facets); nothing by default.

        ``w`` are distinct beliefs, of shape (beliefs, K), ``free`` the facets that were not asked
        yet, of shape (beliefs, facets), ``inverse`` the belief of each of the ``rows`` of this set.
        """
        return np.zeros((len(rows), table.facets), np.float32)

    def sell(self, table: SetBelief, w: Floats, seeds: Any, inverse: Ints) -> Ints:  # noqa: ARG002
        """Products with the highest expected score, one per row, as numbers of the choice set."""
        return np.asarray(np.round(table.scores(w), 3).argmax(axis=1)[inverse], np.int64)

    def _goes_on(self, turn: Ints) -> Bools:
        if self._questions is None:
            return np.ones(len(turn), np.bool_)
        return np.asarray(turn < self._questions)

    def _beliefs(self, views: Views) -> Any:
        """Distinct beliefs by choice set.

        Yields number, rows, tables, beliefs of shape (beliefs, K), the first row of each belief and
        the belief of each row, and the facets that a row has not asked about.
        """
        log_prior, keys = self._priors.read(views.lifetime, views.customer)
        for number, rows in groups(views.set):
            table = self._types[number]
            shelf = self._book.sets[number]
            columns = columns_of(shelf, views.facets[rows], views.answers[rows])
            counts = np.zeros((len(rows), table.p.shape[1] + 1), np.float32)
            counts[np.arange(len(rows))[:, None], columns] = 1.0  # a repeated answer counts once
            used = self._asked(views, rows)
            history = np.concatenate([counts[:, :-1], used], axis=1).astype(np.uint64)
            key = keys[rows] + history @ self._hashes[: history.shape[1]]
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            w = table.posterior(log_prior[rows[first]], counts[first, :-1])
            yield number, rows, table, w, (first, inverse), ~used

    def _asked(self, views: Views, rows: Ints) -> Bools:
        """Facets that were asked about, of shape (rows, facets of the set)."""
        width = len(self._book.sets[int(views.set[rows[0]])].facets)
        used = np.zeros((len(rows), width + 1), np.bool_)
        used[np.arange(len(rows))[:, None], views.facets[rows]] = True
        return used[:, :-1]


class BaseAgent(BeliefAgent):
    """Random facets, then the best product by the posterior (No Strategy, figure 12).

    It asks ``questions`` per episode (the paper's number is unknown); options as
    :class:`BeliefAgent`.
    """

    name = "base"

    def __init__(self, questions: int = 10, **options: Any) -> None:
        super().__init__(questions=questions, **options)

    def act(self, views: Views) -> Actions:
        """Ask about a facet by hash of the turn; the belief is computed for sales alone."""
        n, place = len(views), np.arange(self._widths.max(initial=1))
        drawn = uniform(views.seeds[:, None], _FACET, place)
        used = np.zeros((n, len(place) + 1), np.bool_)
        used[np.arange(n)[:, None], views.facets] = True
        drawn[used[:, :-1]] = -1.0
        drawn[place >= self._widths[views.set][:, None]] = -2.0
        best = drawn.max(axis=1)
        ask = (views.questions_left > 0) & (best > -2)
        ask &= views.must_ask | (self._goes_on(views.turn) & (best >= 0))
        sale = np.flatnonzero(~ask)
        actions = super().act(views.take(sale))
        assert actions.expected_regret is not None
        assert actions.confidences is not None
        product, belief = np.full(n, -1), np.full((n, 7), np.nan, np.float32)
        product[sale] = actions.product
        belief[sale] = np.column_stack([actions.expected_regret, actions.confidences])
        return Actions(
            ask=ask,
            facet=np.where(ask, drawn.argmax(axis=1), -1),
            product=product,
            expected_regret=belief[:, 0],
            confidences=belief[:, 1:],
        )

    def open(self, book: Book, seed: int) -> None:
        """Draw the types; count the facets."""
        super().open(book, seed)
        self._widths = np.array([len(s.facets) for s in book.sets])


class GreedyAgent(BeliefAgent):
    """Largest information gain about the best product (figure 15).

    It sells below an information gain of ``min_gain`` (nats); options as :class:`BeliefAgent`.
    """

    name = "greedy"

    def __init__(self, min_gain: float = 0.01, **options: Any) -> None:
        super().__init__(**options)
        self.threshold = min_gain

    def metadata(self) -> dict[str, Any]:
        """Name, answer model, questions, types and least gain."""
        return super().metadata() | {"min_gain": self.threshold}

    def scores(
        self,
        table: SetBelief,
        w: Floats,
        free: Bools,  # noqa: ARG002
        views: Views,  # noqa: ARG002
        rows: Ints,  # noqa: ARG002
        inverse: Ints,
    ) -> Floats:
        """Information gain (nats)."""
        return np.asarray(table.information_gain(w)[inverse], np.float32)


class PlanningAgent(BeliefAgent):
    """Exact expected value of information (DP, figure 16): asks while it exceeds the cost.

    A question has the cost ``question_cost`` (points) and is valued alone (``depth`` 1) or together
    with the best next one (2); options as :class:`BeliefAgent`.
    """

    name = "dp"

    def __init__(self, question_cost: float = 0.5, depth: int = 1, **options: Any) -> None:
        super().__init__(**options)
        if depth not in (1, 2):
            raise ConfigError("depth must be 1 or 2", where=f"agent dp, depth = {depth}")
        self._cost, self._depth = question_cost, depth

    def metadata(self) -> dict[str, Any]:
        """Name, answer model, questions, types, cost and depth."""
        return super().metadata() | {"question_cost": self._cost, "depth": self._depth}

    def scores(
        self, table: SetBelief, w: Floats, free: Bools, views: Views, rows: Ints, inverse: Ints
    ) -> Floats:
        """Expected value of information less the cost (points)."""
        gains = table.gain(w, cost=self._cost, depth=self._depth, free=free)[inverse]
        last = views.questions_left[rows] == 1
        if self._depth == 2 and last.any():
            nearest = table.gain(w, cost=self._cost, depth=1, free=free)[inverse]
            gains = np.where(last[:, None], nearest, gains)
        return np.asarray(gains, np.float32)


class ThompsonAgent(BeliefAgent):
    """A type drawn from the belief, and its best product; asks nothing."""

    name = "thompson"

    def __init__(self, **options: Any) -> None:
        super().__init__(questions=0, **options)

    def sell(self, table: SetBelief, w: Floats, seeds: Any, inverse: Ints) -> Ints:
        """The best product of a type by hash of the turn's seed."""
        total = np.cumsum(w, axis=1, dtype=np.float64)[inverse]
        drawn = uniform(seeds, _TYPE)[:, None] * total[:, -1:]
        return np.asarray(table.best[(total <= drawn).sum(axis=1)], np.int64)


def _of(table: SetBelief, w: Floats, inverse: Ints, products: Ints) -> Floats:
    """Expected regret and confidences of each row's product, of shape (rows, 7)."""
    pairs, back = np.unique(inverse * table.y.shape[1] + products, return_inverse=True)
    which, what = np.divmod(pairs, table.y.shape[1])
    return table.expected(w[which], what)[back]
