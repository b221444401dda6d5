"""Bayesian linear regression on facet values and text vectors, without any score table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sim.dialogue._belief import Features
from sim.dialogue._book import Book, Ints, groups
from sim.dialogue._feedback import tone_of_text
from sim.dialogue._protocol import NO_PREFERENCE, UNMATCHED, Actions, Outcomes, Views

__all__ = ["LinearAgent"]

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
        self._prior = np.eye(len(self._features))
        self._states: dict[int, _State] = {}
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
        for number, rows in groups(views.set):
            x, columns = self._of(number)
            shelf = self._book.sets[number]
            width = len(shelf.facets)
            asked = np.zeros((len(rows), width + 1), np.bool_)
            asked[np.arange(len(rows))[:, None], views.facets[rows]] = True
            for at, row in enumerate(rows.tolist()):
                mean, spread = self._marginals(*self._answered(views, row, columns))
                product[row] = int(np.round(x @ mean, 6).argmax())
                more = views.questions_left[row] > 0 and (
                    views.must_ask[row]
                    or self._questions is None
                    or views.turn[row] < self._questions
                )
                if not (width and more):
                    continue
                worst = np.maximum.reduceat(np.append(spread, 0.0)[columns], shelf.starts)
                worst = np.where(asked[at, :-1], -1.0, np.round(worst, 6))
                if views.must_ask[row] or worst.max() > self._certain:
                    ask[row], facet[row] = True, int(worst.argmax())
        return Actions(ask=ask, facet=facet, product=views.placed(product))

    def learn(self, outcomes: Outcomes) -> None:
        """Keep the posterior after answers and feedback."""
        views = outcomes.views
        score = _satisfaction(outcomes)
        for row, lifetime in enumerate(views.lifetime.tolist()):
            x, columns = self._of(int(views.set[row]))
            mean, cov, seen, targets = self._answered(views, row, columns)
            if len(seen):
                features = np.eye(len(mean))[seen]
                mean, cov = _observe(mean, cov, features, targets, self._noise)
            if not np.isnan(score[row]):
                features = x[outcomes.product[row]][None]
                target = np.array([score[row] - _CENTRE])
                mean, cov = _observe(mean, cov, features, target, self._noise / 2)
            state = self._states.setdefault(lifetime, _State(len(self._features)))
            state.keep(int(views.customer[row]), mean, cov)

    def wipe(self, lifetimes: Ints) -> None:
        """Forget these lifetimes."""
        for lifetime in lifetimes.tolist():
            self._states.pop(lifetime, None)

    def _of(self, number: int) -> tuple[Any, Ints]:
        """Features of a set's products, and the feature of each of its facet values."""
        if number not in self._sets:
            shelf = self._book.sets[number]
            self._sets[number] = self._features(shelf), self._features.columns(shelf)
        return self._sets[number]

    def _answered(self, views: Views, row: int, columns: Ints) -> tuple[Any, Any, Ints, Any]:
        """Prior mean and covariance of a dialogue, its observed features and their targets."""
        width = len(self._features)
        state = self._states.get(int(views.lifetime[row]))
        if state is None:
            mean, cov = np.zeros(width), self._prior
        else:
            mean, cov = state.prior(int(views.customer[row]))
        shelf = self._book.sets[int(views.set[row])]
        seen, targets = [], []
        for facet, answer in dict(
            zip(views.facets[row].tolist(), views.answers[row].tolist(), strict=True)
        ).items():
            if facet < 0 or answer == UNMATCHED:
                continue
            start, values = shelf.starts[facet], shelf.widths[facet]
            if answer == NO_PREFERENCE:
                own = columns[start : start + values]
                targets += [0.0] * int((own >= 0).sum())
                seen += own[own >= 0].tolist()
            elif columns[start + answer] >= 0:
                seen.append(int(columns[start + answer]))
                targets.append(1.0)
        return mean, cov, np.array(seen, np.int64), np.array(targets)

    def _marginals(self, mean: Any, cov: Any, seen: Ints, targets: Any) -> tuple[Any, Any]:
        """Posterior mean and variance of each weight."""
        if not len(seen):
            return mean, cov.diagonal()
        across = cov[:, seen]
        gain = np.linalg.solve(across[seen] + self._noise**2 * np.eye(len(seen)), across.T).T
        spread = cov.diagonal() - np.einsum("ij,ij->i", gain, across)
        return mean + gain @ (targets - mean[seen]), spread


class _State:
    """Posterior of the last customer of a lifetime, and the mean over all of them."""

    def __init__(self, width: int) -> None:
        self.customer, self.customers = -1, 0
        self.mean, self.cov = np.zeros(width), np.eye(width)
        self.total = np.zeros(width)

    def prior(self, customer: int) -> tuple[Any, Any]:
        """Weights at the start of an episode with a customer."""
        if customer == self.customer:
            return self.mean, self.cov
        return self.total / (self.customers + 1), np.eye(len(self.mean))

    def keep(self, customer: int, mean: Any, cov: Any) -> None:
        """Store the weights at the end of an episode."""
        if customer == self.customer:
            self.total -= self.mean
        else:
            self.customers += 1
        self.total = self.total + mean
        self.customer, self.mean, self.cov = customer, mean, cov


def _observe(
    mean: Any, cov: Any, x: npt.NDArray[np.float64], target: Any, noise: float
) -> tuple[Any, Any]:
    """Mean and covariance after observations x·w = target + N(0, noise²)."""
    across = cov @ x.T
    gain = np.linalg.solve(x @ across + noise**2 * np.eye(len(x)), across.T).T
    return mean + gain @ (target - x @ mean), cov - gain @ across.T


def _satisfaction(outcomes: Outcomes) -> Any:
    """Satisfaction from 0 to 1 by the feedback, NaN without one."""
    found = np.full(len(outcomes.views), np.nan)
    if outcomes.regret is not None:
        found = 1 - np.asarray(outcomes.regret, np.float64) / _WORST
    if outcomes.stars is not None:
        found = np.where(outcomes.stars >= 0, outcomes.stars / 5.0, np.nan)
    if outcomes.text is not None:
        tones = np.array([tone_of_text(t) for t in outcomes.text.tolist()], np.int64)
        found = np.where(tones >= 0, _TONES[tones], np.nan)
    return found
