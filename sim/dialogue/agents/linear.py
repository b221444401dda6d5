"""Bayesian linear regression on facet values and text vectors, without any score table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.dialogue._belief import Features
from sim.dialogue._feedback import tone_of_text
from sim.dialogue._protocol import NO_PREFERENCE, Action, Dialogue, Outcome
from sim.dialogue._world import DialogueWorld

__all__ = ["LinearAgent"]

Doubles: TypeAlias = npt.NDArray[np.float64]

#: Satisfaction from 0 to 1 that each tone stands for: regret 0, 5, 20 and 40 of 60 points.
_TONES = (1.0, 0.92, 0.67, 0.33)
#: Regret that stands for no satisfaction at all (points).
_WORST = 60.0
#: Satisfaction with a product that fits no taste.
_CENTRE = 0.5
#: Entry of a dialogue's memory.
_MEMORY = "linear"


@dataclass
class Weights:
    """Posterior of a lifetime's last customer, and the sum of the means of all of them.

    The covariance is I - RᵀR, with a row of R per observation: there are fewer observations than
    weights.
    """

    customer: int
    customers: int
    mean: Doubles
    root: Doubles
    total: Doubles


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

    def open(self, world: DialogueWorld, seed: int) -> None:  # noqa: ARG002
        """Lay the features out; scores are not read."""
        self._sets = world.sets
        self._features = features = Features(world, self._most)
        self._products = cache(lambda number: features(world.sets[number]))
        self._columns = cache(lambda number: features.columns(world.sets[number]))

    def metadata(self) -> dict[str, Any]:
        """Name, noise, variance, questions and features."""
        return {
            "name": self.name,
            "noise": self._noise,
            "certain": self._certain,
            "questions": self._questions,
            "features": self._most,
        }

    async def act(self, dialogue: Dialogue) -> Action:
        """Ask about the facet with the most uncertain value, or sell the highest mean."""
        mean, root = self._posterior(dialogue)
        product = int(np.round(self._products(dialogue.set) @ mean, 6).argmax())
        facet, columns = -1, self._columns(dialogue.set)
        if len(columns) and dialogue.may_ask(self._questions):
            # A value that is no feature has nothing to be learned of.
            spread = np.where(columns >= 0, 1.0 - (root[:, columns] ** 2).sum(axis=0), 0.0)
            worst = np.round(np.maximum.reduceat(spread, self._sets[dialogue.set].starts), 6)
            worst[list(dialogue.asked)] = -1.0
            if dialogue.forced or worst.max() > self._certain:
                facet = int(worst.argmax())
        return Action(ask=facet >= 0, facet=facet, product=dialogue.number(product))

    def learn(self, outcome: Outcome) -> None:
        """Keep the posterior after answers and feedback."""
        dialogue = outcome.dialogue
        mean, root = self._posterior(dialogue)
        score = satisfaction(outcome)
        if score is not None:
            x = self._products(dialogue.set)[outcome.product][None]
            mean, root = observed(mean, root, x, np.array([score - _CENTRE]), self._noise / 2)
        last: Weights | None = dialogue.memory.get(_MEMORY)
        customers, total = 1, mean
        if last is not None and last.customer == dialogue.customer:
            customers, total = last.customers, last.total - last.mean + mean
        elif last is not None:
            customers, total = last.customers + 1, last.total + mean
        dialogue.memory[_MEMORY] = Weights(dialogue.customer, customers, mean, root, total)

    def _posterior(self, dialogue: Dialogue) -> tuple[Doubles, Doubles]:
        """Mean, of shape (weights,), and R, of shape (observations, weights).

        Another customer's mean is that of the past ones, with the covariance of the prior.
        """
        width = len(self._features)
        mean, root = np.zeros(width), np.zeros((0, width))
        last: Weights | None = dialogue.memory.get(_MEMORY)
        if last is not None and last.customer == dialogue.customer:
            mean, root = last.mean, last.root
        elif last is not None:
            mean = last.total / (last.customers + 1)
        features, targets = self._observations(dialogue)
        if not features:
            return mean, root
        x = np.zeros((len(features), width))
        x[np.arange(len(features)), features] = 1.0
        return observed(mean, root, x, np.array(targets), self._noise)

    def _observations(self, dialogue: Dialogue) -> tuple[list[int], list[float]]:
        """Features that the answers observe, and the weights that they state.

        The last answer to a facet counts: its value has weight 1; without a preference all values
        have weight 0.
        """
        shelf, columns = self._sets[dialogue.set], self._columns(dialogue.set)
        last = {turn.answer.facet: turn.answer.value for turn in dialogue.turns}
        features: list[int] = []
        targets: list[float] = []
        for facet in sorted(last.keys() - {-1}):
            start, answer = shelf.starts[facet], last[facet]
            for value, column in enumerate(columns[start : start + shelf.widths[facet]].tolist()):
                if column >= 0 and answer in (value, NO_PREFERENCE):
                    features.append(column)
                    targets.append(float(answer == value))
        return features, targets


def observed(
    mean: Doubles, root: Doubles, x: Doubles, target: Doubles, noise: float
) -> tuple[Doubles, Doubles]:
    """Mean and R after observations x·w = target + N(0, noise²), where w ~ N(mean, I - RᵀR).

    ``mean`` is of shape (weights,), ``root`` of (rows, weights), ``x`` of (observations, weights).
    """
    across = x - (x @ root.T) @ root
    lower = np.linalg.cholesky(across @ x.T + noise**2 * np.eye(len(x)))
    fresh = np.linalg.solve(lower, across)
    missed = np.linalg.solve(lower, target - x @ mean)
    return mean + missed @ fresh, np.concatenate([root, fresh])


def satisfaction(outcome: Outcome) -> float | None:
    """Satisfaction from 0 to 1 by the feedback, None without one."""
    if outcome.regret is not None:
        return 1 - outcome.regret / _WORST
    if outcome.stars is not None:
        return outcome.stars / 5.0
    tone = tone_of_text(outcome.text)
    return _TONES[tone] if tone >= 0 else None
