"""Agents with a belief over customer types: exact yardsticks that read the train scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.errors import ConfigError
from pipelines.seeding import uniform
from sim.dialogue._answers import AnswerModel, columns_of
from sim.dialogue._belief import MAX_TYPES, SetBelief, Types
from sim.dialogue._protocol import Action, Dialogue, Outcome
from sim.dialogue._world import DialogueWorld, Floats

__all__ = ["BaseAgent", "BeliefAgent", "GreedyAgent", "PlanningAgent", "ThompsonAgent"]

_FACET, _TYPE = 131, 132
#: Entry of a dialogue's memory, and least weight whose logarithm is taken.
_MEMORY, _TINY = "belief", 1e-30


@dataclass
class Prior:
    """Belief of a lifetime at the start of an episode."""

    #: Label of the last customer, and the log weights after the episode with it.
    customer: int
    log_w: Floats
    #: Parameters of the Dirichlet of which another customer's prior is the mean: 1 plus the
    #: weights at the end of each episode.
    alpha: Floats


class BeliefAgent:
    """Posterior over types from the answers, carried from episode to episode.

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
        self._questions = questions
        self._most = types
        self._carry = carry

    def open(self, world: DialogueWorld, seed: int) -> None:
        """Draw the types."""
        self._types = Types(world, self._model, seed=seed, most=self._most)
        self._world = world

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

    async def act(self, dialogue: Dialogue) -> Action:
        """Ask about the facet of the highest score above the threshold, or sell."""
        table, w = self._belief(dialogue)
        product = self.sell(table, w, dialogue)
        expected_regret, *confidences = table.expected(w, product).tolist()
        facet = -1
        if table.facets and dialogue.may_ask(self._questions):
            free = np.ones(table.facets, np.bool_)
            free[list(dialogue.asked)] = False
            scores = np.round(self.scores(table, w, free, dialogue), 3)
            scores = np.where(free, scores, -np.inf)
            if dialogue.forced or scores.max() > self.threshold:
                facet = int(scores.argmax())
        return Action(
            ask=facet >= 0,
            facet=facet,
            product=dialogue.number(product),
            expected_regret=expected_regret,
            confidences=confidences,
        )

    def learn(self, outcome: Outcome) -> None:
        """Carry the weights after answers and feedback to the next episode."""
        dialogue = outcome.dialogue
        table, w = self._belief(dialogue)
        after = table.learned(w, outcome)
        prior: Prior | None = dialogue.memory.get(_MEMORY)
        alpha = np.ones(len(after), np.float32) if prior is None else prior.alpha
        log_w = np.log(np.maximum(after, _TINY))
        dialogue.memory[_MEMORY] = Prior(dialogue.customer, log_w, alpha + after)

    def scores(self, table: SetBelief, w: Floats, free: Any, dialogue: Dialogue) -> Floats:  # noqa: ARG002
        """Worth of asking each facet, of shape (facets,); nothing by default.

        ``free`` marks the facets that were not asked yet.
        """
        return np.zeros(table.facets, np.float32)

    def sell(self, table: SetBelief, w: Floats, dialogue: Dialogue) -> int:  # noqa: ARG002
        """The product with the highest expected score, as a number of the choice set."""
        return int(np.round(table.scores(w), 3).argmax())

    def _belief(self, dialogue: Dialogue) -> tuple[SetBelief, Floats]:
        """Tables of the choice set, and the weights after the answers."""
        table = self._types.tables(dialogue.set)
        prior: Prior | None = dialogue.memory.get(_MEMORY)
        if prior is None:
            log_prior = np.full(len(self._types), -np.log(len(self._types)), np.float32)
        elif prior.customer == dialogue.customer:
            log_prior = self._carry * prior.log_w
        else:
            log_prior = np.log(prior.alpha / prior.alpha.sum())
        columns = columns_of(self._world.sets[dialogue.set], dialogue.turns)
        return table, table.posterior(log_prior, columns)


class BaseAgent(BeliefAgent):
    """Random facets, then the best product by the posterior (No Strategy, figure 12).

    It asks ``questions`` per episode (the paper's number is unknown); options as
    :class:`BeliefAgent`.
    """

    name = "base"

    def __init__(self, questions: int = 10, **options: Any) -> None:
        super().__init__(questions=questions, **options)

    async def act(self, dialogue: Dialogue) -> Action:
        """Ask about a facet by hash of the turn; the belief is computed for sales alone."""
        facets = len(self._world.sets[dialogue.set].facets)
        if facets and dialogue.may_ask(self._questions):
            drawn = uniform(dialogue.seed(), _FACET, np.arange(facets))
            drawn[list(dialogue.asked)] = -1.0
            facet = int(drawn.argmax())
            if dialogue.forced or drawn[facet] >= 0:
                return Action(ask=True, facet=facet)
        return await super().act(dialogue)


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

    def scores(self, table: SetBelief, w: Floats, free: Any, dialogue: Dialogue) -> Floats:  # noqa: ARG002
        """Information gain (nats)."""
        return table.information_gain(w)


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

    def scores(self, table: SetBelief, w: Floats, free: Any, dialogue: Dialogue) -> Floats:
        """Expected value of information less the cost (points)."""
        depth = min(self._depth, dialogue.questions_left)
        return table.gain(w, cost=self._cost, depth=depth, free=free)


class ThompsonAgent(BeliefAgent):
    """A type drawn from the belief, and its best product; asks nothing."""

    name = "thompson"

    def __init__(self, **options: Any) -> None:
        super().__init__(questions=0, **options)

    def sell(self, table: SetBelief, w: Floats, dialogue: Dialogue) -> int:
        """The best product of a type by hash of the turn's seed."""
        total = np.cumsum(w, dtype=np.float64)
        drawn = uniform(dialogue.seed(), _TYPE) * total[-1]
        return int(table.best[(total <= drawn).sum()])
