"""Answer model: probabilities of answers to facet questions, given a persona's scores.

Customers draw from it, and the belief of agents uses it as the likelihood. The answers to the
facets of a choice set are laid out as columns: for each facet its values, then *no preference*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.errors import ConfigError
from sim.dialogue._protocol import UNMATCHED, Turn
from sim.dialogue._world import ChoiceSet, Floats


def columns_of(shelf: ChoiceSet, turns: Sequence[Turn]) -> list[int]:
    """Distinct columns of the answers in a dialogue; none of an answer without a facet or value."""
    columns = []
    for answer in (turn.answer for turn in turns):
        if answer.facet >= 0 and answer.value != UNMATCHED:
            value = answer.value if answer.value >= 0 else shelf.widths[answer.facet]
            columns.append(int(shelf.answer_starts[answer.facet] + value))
    return list(dict.fromkeys(columns))


def value_means(shelf: ChoiceSet, y: Floats) -> Floats:
    """Mean score of the products with each facet value, of shape (people, values of all facets).

    Missing scores are left out; NaN where a value has no product with a score.
    """
    given = ~np.isnan(y)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (np.where(given, y, 0) @ shelf.members) / (given.astype(np.float32) @ shelf.members)
    return np.asarray(means, np.float32)


@dataclass(frozen=True, slots=True)
class AnswerModel:
    """Softmax over the mean scores of a facet's values.

    For a facet with means m_v of the scores of the products with value v,
    P(v) ∝ exp(m_v / tau) and P(no preference) ∝ exp((mean_v m_v + delta) / tau).
    """

    #: Temperature (points); 0 takes the most probable answer, the first of equal ones.
    tau: float = 10.0
    #: Advantage over the mean that a value needs to be preferred (points).
    delta: float = 5.0
    #: Probability of another answer than the drawn one, all others alike (BIEL, appendix D).
    unfaithful: float = 0.0

    def __post_init__(self) -> None:
        if self.tau < 0 or not 0 <= self.unfaithful <= 1:
            raise ConfigError(
                "tau must be 0 or more and unfaithful from 0 to 1",
                where=f"answer model, tau = {self.tau}, unfaithful = {self.unfaithful}",
            )

    def probabilities(self, shelf: ChoiceSet, y: Floats) -> Floats:
        """Probabilities of all answers, of shape (people, columns).

        ``y`` are scores of shape (people, products); a value without a score has probability 0.
        """
        means = value_means(shelf, y)
        first = shelf.answer_starts
        shares = np.zeros((len(y), int(first[-1])), np.float32)
        for n, (start, width) in enumerate(zip(shelf.starts, shelf.widths, strict=True)):
            m = means[:, start : start + width].astype(np.float64)
            scored = ~np.isnan(m)
            centre = np.where(scored, m, 0).sum(axis=1) / np.maximum(scored.sum(axis=1), 1)
            logits = np.column_stack([np.where(scored, m, -np.inf), centre + self.delta])
            if self.tau:
                logits = np.exp((logits - logits.max(axis=1, keepdims=True)) / self.tau)
            else:
                logits = np.arange(width + 1) == logits.argmax(axis=1)[:, None]
            p = logits / logits.sum(axis=1, keepdims=True)
            shares[:, first[n] : first[n + 1]] = (1 - self.unfaithful) * p + self.unfaithful * (
                (1 - p) / width
            )
        return shares
