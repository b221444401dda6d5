"""Bayesian linear regression on facet values and text vectors, without any score table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.dialogue._belief import Features
from sim.dialogue._book import Book, Ints, groups
from sim.dialogue._feedback import tone_of_text
from sim.dialogue._protocol import NO_PREFERENCE, UNMATCHED, Actions, Outcomes, Views

__all__ = ["LinearAgent"]

Doubles: TypeAlias = npt.NDArray[np.float64]

#: Satisfaction from 0 to 1 that each tone stands for: regret 0, 5, 20 and 40 of 60 points.
_TONES = np.array([1.0, 0.92, 0.67, 0.33])
#: Regret that stands for no satisfaction at all (points).
_WORST = 60.0
#: Satisfaction with a product that fits no taste.
_CENTRE = 0.5


class LinearAgent:
    """Weights of features that products of all categories share, learned in each lifetime.

    Its prior is N(0, I) for each customer: it reads no scores and learns from its own episodes
    alone, as a language model does. An answer is one observation: the named value has weight 1,
    *no preference* gives the facet's values weight 0. Feedback is an observation of the sold
    product's features. It asks about the facet of the greatest posterior variance of a value,
    while that exceeds ``certain``. Another customer starts from the mean over past customers.

    Parameters
    ----------
    noise
        Standard deviation of an observation.
    certain
        Variance up to which a facet is not asked about (the prior's is 1).
    questions
        Questions of an episode at most; None: as many as are allowed.
    features
        Facet values at most (count).
    """

    name = "linear"
    privileged = False

    def __init__(
        self,
        noise: float = 0.5,
        certain: float = 0.5,
        questions: int | None = None,
        features: int = 128,
    ) -> None:
        self._noise, self._certain = noise, certain
        self._questions, self._most = questions, features

    def open(self, book: Book, seed: int) -> None:  # noqa: ARG002
        """Lay the features out; scores are not read."""
        self._book = book
        self._features = Features(book, self._most)
        self._states = _States(len(self._features))
        self._sets: dict[int, tuple[Any, Ints]] = {}

    def metadata(self) -> dict[str, Any]:
        """Name, noise, variance, questions and features."""
        return {
            "name": self.name,
            "noise": self._noise,
            "certain": self._certain,
            "questions": self._questions,
            "features": self._most,
        }

    def act(self, views: Views) -> Actions:
        """Ask about the facet with the most uncertain value, or sell the highest mean."""
        n = len(views)
        ask, facet = np.zeros(n, np.bool_), np.full(n, -1)
        product = np.zeros(n, np.int64)
        mean, values = np.empty((n, len(self._features))), len(self._features.column)
        spread = np.empty((n, values))
        for rows, seen, targets in self._answered(views):
            mean[rows], root = self._states.read(views.lifetime[rows], views.customer[rows])
            spread[rows] = 1.0 - (root[:, :, :values] ** 2).sum(axis=1)
            if seen.shape[1]:
                mean[rows], fresh = _observed(mean[rows], root, seen, targets, self._noise)
                spread[rows] -= (fresh[:, :, :values] ** 2).sum(axis=1)
        more = views.questions_left > 0
        if self._questions is not None:
            more &= views.must_ask | (views.turn < self._questions)
        for number, rows in groups(views.set):
            x, columns = self._of(number)
            product[rows] = np.round(mean[rows] @ x.T, 6).argmax(axis=1)
            if not len(columns):
                continue
            used = np.zeros((len(rows), len(self._book.sets[number].facets) + 1), np.bool_)
            used[np.arange(len(rows))[:, None], views.facets[rows]] = True
            # A value that is no feature has nothing to be learned of.
            value_spread = np.where(columns >= 0, spread[rows][:, columns], 0.0)
            worst = np.maximum.reduceat(value_spread, self._book.sets[number].starts, axis=1)
            worst = np.where(used[:, :-1], -1.0, np.round(worst, 6))
            go = more[rows] & (views.must_ask[rows] | (worst.max(axis=1) > self._certain))
            ask[rows], facet[rows] = go, np.where(go, worst.argmax(axis=1), -1)
        return Actions(ask=ask, facet=facet, product=views.placed(product))

    def learn(self, outcomes: Outcomes) -> None:
        """Keep the posterior after answers and feedback."""
        views = outcomes.views
        score = _satisfaction(outcomes)
        for rows, seen, targets in self._answered(views):
            lifetimes, customers = views.lifetime[rows], views.customer[rows]
            mean, root = self._states.read(lifetimes, customers)
            if seen.shape[1]:
                mean, fresh = _observed(mean, root, seen, targets, self._noise)
                root = np.concatenate([root, fresh], axis=1)
            has_feedback = ~np.isnan(score[rows])
            x = np.zeros((len(rows), 1, mean.shape[1]))
            for number, places in groups(views.set[rows]):
                x[places, 0] = self._of(number)[0][outcomes.product[rows[places]]]
            target = np.where(has_feedback, score[rows] - _CENTRE, 0.0)[:, None]
            after, fresh = _observed(mean, root, x, target, self._noise / 2)
            mean = np.where(has_feedback[:, None], after, mean)
            root = np.concatenate([root, np.where(has_feedback[:, None, None], fresh, 0.0)], axis=1)
            self._states.write(lifetimes, customers, mean, root)

    def wipe(self, lifetimes: Ints) -> None:
        """Forget these lifetimes."""
        self._states.wipe(lifetimes)

    def _of(self, number: int) -> tuple[Any, Ints]:
        """Features of a set's products, and the feature of each of its facet values."""
        if number not in self._sets:
            shelf = self._book.sets[number]
            self._sets[number] = self._features(shelf), self._features.columns(shelf)
        return self._sets[number]

    def _answered(self, views: Views) -> Iterator[tuple[Ints, Ints, Any]]:
        """Rows with as many observations, the features observed, and the targets.

        The last answer to a facet counts: its value has weight 1; without a preference all values
        have weight 0.
        """
        n = len(views)
        width = max(len(self._of(number)[1]) for number in set(views.set.tolist()))
        feature, target = np.full((n, width), -1), np.zeros((n, width))
        for number, rows in groups(views.set):
            shelf, (_, columns) = self._book.sets[number], self._of(number)
            last = np.full((len(rows), len(shelf.facets) + 1), UNMATCHED)
            for turn in range(int(views.turn[rows].max(initial=0))):
                last[np.arange(len(rows)), views.facets[rows, turn]] = views.answers[rows, turn]
            answer = np.repeat(last[:, :-1], shelf.widths, axis=1)
            value = np.arange(len(columns)) - np.repeat(shelf.starts, shelf.widths)
            observed = (columns >= 0) & ((answer == value) | (answer == NO_PREFERENCE))
            feature[rows, : len(columns)] = np.where(observed, columns, -1)
            target[rows, : len(columns)] = answer == value
        count = (feature >= 0).sum(axis=1)
        order = np.argsort(feature < 0, axis=1, kind="stable")
        for many, rows in groups(count):
            places = order[rows, :many]
            yield rows, feature[rows[:, None], places], target[rows[:, None], places]


@dataclass
class _State:
    """Posterior of a lifetime's last customer, and the sum of the means of all of them.

    The covariance is I - RᵀR, with a row of R per observation: there are fewer observations than
    weights.
    """

    customer: int
    customers: int
    mean: Doubles
    root: Doubles
    total: Doubles


class _States:
    """Weights of lifetimes at the start of an episode."""

    def __init__(self, width: int) -> None:
        self._of: dict[int, _State] = {}
        self._width = width

    def read(self, lifetimes: Ints, customers: Ints) -> tuple[Doubles, Doubles]:
        """Means of shape (n, weights), and R of shape (n, most observations, weights).

        Another customer's mean is that of the past ones, with the covariance of the prior.
        """
        states = [self._of.get(n) for n in lifetimes.tolist()]
        same = [s is not None and s.customer == c for s, c in zip(states, customers, strict=True)]
        ranks = [len(s.root) for s, current in zip(states, same, strict=True) if s and current]
        mean = np.zeros((len(states), self._width))
        root = np.zeros((len(states), max(ranks, default=0), self._width))
        for row, (state, current) in enumerate(zip(states, same, strict=True)):
            if state is not None:
                mean[row] = state.mean if current else state.total / (state.customers + 1)
            if state is not None and current:
                root[row, : len(state.root)] = state.root
        return mean, root

    def write(self, lifetimes: Ints, customers: Ints, mean: Doubles, root: Doubles) -> None:
        """Store the weights at the end of an episode."""
        for row, (n, customer) in enumerate(
            zip(lifetimes.tolist(), customers.tolist(), strict=True)
        ):
            filled = root[row][root[row].any(axis=1)]
            state = self._of.get(n)
            if state is None:
                self._of[n] = _State(customer, 1, mean[row], filled, mean[row].copy())
                continue
            if customer == state.customer:
                state.total -= state.mean
            else:
                state.customers += 1
            state.total += mean[row]
            state.customer, state.mean, state.root = customer, mean[row], filled

    def wipe(self, lifetimes: Ints) -> None:
        """Forget lifetimes."""
        for n in lifetimes.tolist():
            self._of.pop(n, None)


def _observed(
    mean: Doubles, root: Doubles, x: Any, target: Doubles, noise: float
) -> tuple[Doubles, Doubles]:
    """Means after observations x·w = target + N(0, noise²), and the rows that they add to R.

    ``mean`` and ``root`` are of shapes (n, weights) and (n, rows, weights): w ~ N(mean, I - RᵀR).
    ``x`` has features of shape (n, observations, weights), or numbers of single weights, of shape
    (n, observations), as is ``target``. ``noise`` is a standard deviation.
    """
    if x.ndim == 2:
        here = np.arange(len(x))[:, None]
        across = -np.take_along_axis(root, x[:, None, :], axis=2).swapaxes(1, 2) @ root
        across[here, np.arange(x.shape[1]), x] += 1.0
        covariance, expected = np.take_along_axis(across, x[:, None, :], axis=2), mean[here, x]
    else:
        across = x - (x @ root.swapaxes(1, 2)) @ root
        covariance, expected = across @ x.swapaxes(1, 2), (x @ mean[:, :, None])[:, :, 0]
    lower = np.linalg.cholesky(covariance + noise**2 * np.eye(x.shape[1]))
    fresh = np.linalg.solve(lower, across)
    missed = np.linalg.solve(lower, (target - expected)[:, :, None])
    return mean + (missed.swapaxes(1, 2) @ fresh)[:, 0], fresh


def _satisfaction(outcomes: Outcomes) -> Any:
    """Satisfaction from 0 to 1 by the feedback, NaN without one."""
    satisfaction = np.full(len(outcomes.views), np.nan)
    if outcomes.regret is not None:
        satisfaction = 1 - np.asarray(outcomes.regret, np.float64) / _WORST
    if outcomes.stars is not None:
        satisfaction = np.where(outcomes.stars >= 0, outcomes.stars / 5.0, np.nan)
    if outcomes.text is not None:
        tones = np.array([tone_of_text(t) for t in outcomes.text.tolist()], np.int64)
        satisfaction = np.where(tones >= 0, _TONES[tones], np.nan)
    return satisfaction
