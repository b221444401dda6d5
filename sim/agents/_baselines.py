"""Brains that know nothing of the agent: what others must beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from pipelines.seeding import uniform
from sim.agents._assumed import ASSUMED_FILE, assumed
from sim.agents._protocol import (
    EXIT,
    NEXT,
    Classification,
    Decision,
    Interview,
    Judgement,
    Opinion,
    Question,
    Reflection,
    seeds_of,
)
from sim.agents._world import AgentWorld


class RandomBrain:
    """Watches at random and rates from the histogram of all ratings.

    Watches with 0.3, rates from the histogram of all training ratings, leaves after a page with
    0.25, and gives any score in the interview.
    """

    name = "random"
    note = "Watches, rates and leaves at random; knows nothing of the agent."
    reads = False

    def open(self, world: AgentWorld) -> Self:
        """Take the histogram of training ratings."""
        self._below = np.cumsum(world.histogram)[:-1]
        self._set: dict[str, Any] = assumed()["random"]
        return self

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        """Watch with the assumed share; rate by the histogram."""
        out = []
        for question, seed in zip(questions, seeds_of(questions), strict=True):
            places = 2 * np.array(question.positions, np.int64)
            watched = uniform(seed, places) < self._set["watch"]
            ratings = 1 + np.searchsorted(self._below, uniform(seed, places + 1), side="right")
            opinions = (
                Opinion(True, rating) if seen or question.experienced else Opinion(False)
                for seen, rating in zip(watched.tolist(), ratings.tolist(), strict=True)
            )
            out.append(Judgement(opinions=tuple(opinions)))
        return out

    def decide(self, questions: Sequence[Question]) -> list[Decision]:
        """EXIT with the assumed chance, else NEXT."""
        leaves = uniform(seeds_of(questions), 0) < self._set["exit"]
        return [Decision(action=EXIT if left else NEXT) for left in leaves]

    def reflect(self, questions: Sequence[Question]) -> list[Reflection]:
        """Return no insights."""
        return [Reflection() for _ in questions]

    def interview(self, questions: Sequence[Question]) -> list[Interview]:
        """Draw one of the ten scores."""
        scores = 1 + (uniform(seeds_of(questions), 0) * 10).astype(int)
        return [Interview(score=score) for score in scores.tolist()]

    def classify(self, questions: Sequence[Question]) -> list[Classification]:
        """Draw probabilities."""
        return [
            Classification(probabilities=tuple(uniform(seed, np.arange(len(q.items))).tolist()))
            for q, seed in zip(questions, seeds_of(questions), strict=True)
        ]

    def metadata(self) -> dict[str, Any]:
        """Assumptions."""
        return {"assumed": dict(self._set), "file": ASSUMED_FILE}


class AlwaysBrain:
    """Watches everything, rates it with the commonest rating, never leaves, is always content."""

    name = "always"
    note = "Watches everything on every page; knows nothing of the agent."
    reads = False

    def open(self, world: AgentWorld) -> Self:
        """Take the commonest training rating."""
        self._rating = 1 + int(np.argmax(world.histogram))
        return self

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        """Watch all of it."""
        seen = Opinion(True, self._rating)
        return [Judgement(opinions=(seen,) * len(q.items)) for q in questions]

    def decide(self, questions: Sequence[Question]) -> list[Decision]:
        """Return NEXT."""
        return [Decision() for _ in questions]

    def reflect(self, questions: Sequence[Question]) -> list[Reflection]:
        """Return no insights."""
        return [Reflection() for _ in questions]

    def interview(self, questions: Sequence[Question]) -> list[Interview]:
        """Return the best score."""
        return [Interview(score=10) for _ in questions]

    def classify(self, questions: Sequence[Question]) -> list[Classification]:
        """Return 1 for every item."""
        return [Classification(probabilities=(1.0,) * len(q.items)) for q in questions]

    def metadata(self) -> dict[str, Any]:
        """The rating that it gives."""
        return {"rating": self._rating}
