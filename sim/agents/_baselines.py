"""Brains that know nothing of the agent: what others must beat."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from pipelines.seeding import uniform
from sim.agents._assumed import ASSUMED_FILE, assumed
from sim.agents._protocol import (
    EMOTIONS,
    EXIT,
    NEXT,
    Bools,
    Classifications,
    ClassifyRequests,
    DecideRequests,
    Decisions,
    Floats,
    InterviewRequests,
    Interviews,
    Ints,
    Judgements,
    JudgeRequests,
    Reflections,
    ReflectRequests,
    Replies,
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

    def judge(self, requests: JudgeRequests) -> Judgements:
        """Watch with the assumed share; rate by the histogram."""
        draws = _draws(requests.seeds, requests.items.shape[1], 2)
        watched = requests.asked & (requests.experienced | (draws[..., 0] < self._set["watch"]))
        ratings = 1.0 + np.searchsorted(self._below, draws[..., 1], side="right")
        return _judgements(watched, ratings)

    def decide(self, requests: DecideRequests) -> Decisions:
        """EXIT with the assumed chance, else NEXT."""
        leaves = uniform(requests.seeds, 0) < self._set["exit"]
        return _decisions(np.where(leaves, EXIT, NEXT))

    def reflect(self, requests: ReflectRequests) -> Reflections:
        """Return empty reflections."""
        return no_reflections(len(requests))

    def interview(self, requests: InterviewRequests) -> Interviews:
        """Draw one of the ten scores."""
        n = len(requests)
        scores = 1 + (uniform(requests.seeds, 0) * 10).astype(np.int64)
        return Interviews(scores=scores, reasons=np.full(n, None, object), **Replies.fine(n))

    def classify(self, requests: ClassifyRequests) -> Classifications:
        """Draw probabilities."""
        chance = _draws(requests.seeds, requests.items.shape[1], 1)[..., 0]
        chance = np.where(requests.items >= 0, chance, np.nan)
        return Classifications(probabilities=chance, **Replies.fine(len(requests)))

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

    def judge(self, requests: JudgeRequests) -> Judgements:
        """Watch all of it."""
        return _judgements(requests.asked.copy(), np.full(requests.items.shape, self._rating))

    def decide(self, requests: DecideRequests) -> Decisions:
        """Return NEXT."""
        return _decisions(np.full(len(requests), NEXT))

    def reflect(self, requests: ReflectRequests) -> Reflections:
        """Return empty reflections."""
        return no_reflections(len(requests))

    def interview(self, requests: InterviewRequests) -> Interviews:
        """Return the best score."""
        n = len(requests)
        reasons = np.full(n, None, object)
        return Interviews(scores=np.full(n, 10), reasons=reasons, **Replies.fine(n))

    def classify(self, requests: ClassifyRequests) -> Classifications:
        """Return 1 for every item."""
        sure = np.where(requests.items >= 0, 1.0, np.nan)
        return Classifications(probabilities=sure, **Replies.fine(len(requests)))

    def metadata(self) -> dict[str, Any]:
        """The rating that it gives."""
        return {"rating": self._rating}


def no_reflections(n: int) -> Reflections:
    """Reflections of `n` agents that don't reflect."""
    nothing = np.empty((n, 0), object)
    evidence = np.empty((n, 0, 0), np.int64)
    return Reflections(questions=nothing, insights=nothing, evidence=evidence, **Replies.fine(n))


def _draws(seeds: Any, width: int, each: int) -> Floats:
    """Uniform numbers of shape (n, width, each)."""
    places = np.arange(width * each).reshape(width, each)
    return uniform(seeds[:, None, None], places)


def _judgements(watched: Bools, ratings: Any) -> Judgements:
    nothing = np.full(watched.shape, None, object)
    return Judgements(
        watched=watched,
        ratings=np.where(watched, ratings, np.nan),
        expected=np.full(watched.shape, np.nan),
        valence=np.zeros(watched.shape, np.int64),
        feelings=nothing,
        reasons=nothing,
        **Replies.fine(len(watched)),
    )


def _decisions(actions: Ints) -> Decisions:
    n = len(actions)
    return Decisions(
        actions=actions.astype(np.int64),
        targets=np.full(n, -1),
        moods=np.ones(n, np.int64),
        fatigue=np.zeros(n, np.int64),
        emotions=np.full(n, EMOTIONS.index("NEUTRAL")),
        satisfaction=np.full(n, np.nan),
        reasons=np.full(n, None, object),
        **Replies.fine(n),
    )
