"""Conformance tests for brains: inherit, and return yours, opened, from ``make``.

The world must hold at least three people and 24 items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any

import numpy as np
import orjson

from pipelines.seeding import combine
from pipelines.statuses import STATUSES
from sim.agents._pages import Cards
from sim.agents._protocol import (
    ACTIONS,
    EMOTIONS,
    FATIGUE,
    MAX_CLICKS,
    MOODS,
    OK,
    PREVIOUS,
    Brain,
    ClassifyRequests,
    DecideRequests,
    InterviewRequests,
    Ints,
    JudgeRequests,
    Past,
    ReflectRequests,
    Replies,
)
from sim.agents._world import AgentWorld

__all__ = ["BrainContract", "sample_requests"]


def sample_requests(
    world: AgentWorld, people: Ints, *, seed: int = 0, attempt: int = 0
) -> dict[str, Any]:
    """A batch of every kind of request: the first page and what follows it.

    All agents are shown the first items of the catalogue; at the decision the first of them is
    watched and rated 4. ``people`` are rows of ``world.people``; the agent's number is its place in
    the cast. ``attempt`` is 0 or 1.
    """
    n, size = len(people), world.per_page
    items = np.tile(np.arange(size), (n, 1))
    everything = np.ones((n, size), np.bool_)
    first = np.zeros((n, size), np.bool_)
    first[:, 0] = True

    def common(phase: int, done: bool) -> dict[str, Any]:
        past = Past(
            pages=np.ones((n, 1), np.int64),
            clicked=np.zeros((n, 1), np.bool_),
            items=items[:, None],
            judged=np.full((n, 1, size), done),
            watched=(first & done)[:, None],
            ratings=np.where(first & done, 4.0, np.nan)[:, None],
            entries=lambda _: [],
        )
        return {
            "world": world,
            "agents": people,
            "people": people,
            "views": np.ones(n, np.int64),
            "pages": np.ones(n, np.int64),
            "seeds": combine(seed, people, 1, phase, attempt),
            "attempts": np.full(n, attempt),
            "faults": np.full(n, "give a whole number" if attempt else None, object),
            "memory": world.history.lengths[people] + int(done),
            "past": past,
        }

    texts, users = Cards(world), world.graph_users
    memory = world.memory if world.graph and "graph_triples" in world.release else None

    def cards(row: int) -> Any:
        own = None if memory is None else [memory]
        return texts.of(items[:1], ~everything[:1], users=[users[people[row]]], memories=own)[0]

    allowed = np.ones((n, len(ACTIONS)), np.bool_)
    allowed[:, PREVIOUS] = False
    return {
        "judge": JudgeRequests(
            **common(0, done=False),
            items=items,
            asked=everything,
            detailed=np.zeros((n, size), np.bool_),
            cards=cards,
        ),
        "decide": DecideRequests(**common(1, done=True), allowed=allowed, clickable=~first),
        "reflect": ReflectRequests(**common(2, done=True)),
        "interview": InterviewRequests(**common(3, done=True)),
        "classify": ClassifyRequests(**common(4, done=False), items=items, cards=cards),
    }


class BrainContract(ABC):
    """Behaviour required of every :class:`sim.agents.Brain`."""

    #: People that are asked (count).
    people = 3

    @abstractmethod
    def make(self, world: AgentWorld) -> Brain:
        """The brain under test, opened on the world."""

    def replies(self, world: AgentWorld, kind: str, people: Ints | None = None) -> Any:
        """Replies of a fresh brain to the sample requests of one kind."""
        who = np.arange(self.people) if people is None else people
        return getattr(self.make(world), kind)(sample_requests(world, who)[kind])

    def test_it_says_what_it_is(self, world: AgentWorld) -> None:
        """A name for tables, a sentence for people, and facts that can be stored."""
        made = self.make(world)
        assert isinstance(made, Brain)
        assert made.name
        assert made.note.endswith(".")
        assert isinstance(made.reads, bool)
        assert orjson.dumps(made.metadata(), option=orjson.OPT_SERIALIZE_NUMPY)

    def test_replies_have_a_status_each(self, world: AgentWorld) -> None:
        """Every request has an allowed status, and the tokens that it took."""
        for kind in ("judge", "decide", "reflect", "interview", "classify"):
            found: Replies = self.replies(world, kind)
            assert len(found.status) == self.people, kind
            assert set(found.status) <= set(STATUSES), kind
            assert (found.tokens >= 0).all(), kind
            assert len(found.answer_keys) == len(found.faults) == self.people, kind

    def test_ratings_belong_to_watched_items(self, world: AgentWorld) -> None:
        """A whole number from 1 to 5 where an item is watched, and nothing elsewhere."""
        found = self.replies(world, "judge")
        ok = found.status == OK
        shape = (self.people, world.per_page)
        assert found.watched.shape == found.ratings.shape == found.expected.shape == shape
        assert found.valence.shape == found.feelings.shape == found.reasons.shape == shape
        watched, ratings = found.watched[ok], found.ratings[ok]
        assert np.isin(ratings[watched], [1.0, 2.0, 3.0, 4.0, 5.0]).all()
        assert np.isnan(ratings[~watched]).all()
        assert all(text is None for text in found.feelings[ok][~watched])
        assert (found.valence[ok][~watched] == 0).all()
        expected = found.expected[ok]
        known = expected[~np.isnan(expected)]
        assert ((known >= 1) & (known <= 5)).all()

    def test_nothing_is_watched_where_nothing_is_asked(self, world: AgentWorld) -> None:
        """After a click one position is judged, and no other."""
        requests = sample_requests(world, np.arange(self.people))["judge"]
        one = np.zeros_like(requests.asked)
        one[:, 2] = True
        rows = {f.name: getattr(requests, f.name) for f in fields(requests)}
        found = self.make(world).judge(JudgeRequests(**{**rows, "asked": one, "detailed": one}))
        ok = found.status == OK
        assert not found.watched[ok][~one[ok]].any()

    def test_experienced_items_are_all_rated(self, world: AgentWorld) -> None:
        """Items that were watched already have a rating each."""
        requests = sample_requests(world, np.arange(self.people))["judge"]
        found = self.make(world).judge(replace(requests, experienced=True))
        ok = found.status == OK
        assert found.watched[ok].all()
        assert np.isin(found.ratings[ok], [1.0, 2.0, 3.0, 4.0, 5.0]).all()

    def test_decisions_are_possible_ones(self, world: AgentWorld) -> None:
        """An allowed action; a clickable target for CLICK and none for any other."""
        requests = sample_requests(world, np.arange(self.people))["decide"]
        found = self.make(world).decide(requests)
        for n in np.flatnonzero(found.status == OK):
            action = int(found.actions[n])
            assert requests.allowed[n, action]
            if ACTIONS[action] == "CLICK":
                assert requests.clickable[n, found.targets[n]]
            else:
                assert found.targets[n] == -1
            assert 0 <= found.moods[n] < len(MOODS)
            assert 0 <= found.fatigue[n] < len(FATIGUE)
            assert 0 <= found.emotions[n] < len(EMOTIONS)
        assert MAX_CLICKS == 2

    def test_insights_rest_on_entries_that_exist(self, world: AgentWorld) -> None:
        """Three questions and three insights, or none; evidence below the number of entries."""
        requests = sample_requests(world, np.arange(self.people))["reflect"]
        found = self.make(world).reflect(requests)
        width = found.insights.shape[1]
        assert width in (0, 3)
        assert found.questions.shape == found.insights.shape == (self.people, width)
        assert found.evidence.shape[:2] == (self.people, width)
        ok = found.status == OK
        there = (found.evidence >= -1) & (found.evidence < requests.memory[:, None, None])
        assert there[ok].all()

    def test_interviews_are_scored_from_one_to_ten(self, world: AgentWorld) -> None:
        """Whole numbers."""
        found = self.replies(world, "interview")
        scores = found.scores[found.status == OK]
        assert np.issubdtype(scores.dtype, np.integer)
        assert ((scores >= 1) & (scores <= 10)).all()

    def test_classifications_are_probabilities(self, world: AgentWorld) -> None:
        """Every item has a number from 0 to 1."""
        found = self.replies(world, "classify")
        chance = found.probabilities[found.status == OK]
        assert chance.shape[1] == world.per_page
        assert ((chance >= 0) & (chance <= 1)).all()

    def test_judgements_don_t_depend_on_the_batch(self, world: AgentWorld) -> None:
        """A page alone gets what it gets among others, in any order."""
        self._alone_as_in_a_batch(world, "judge")
        self._alone_as_in_a_batch(world, "classify")

    def test_decisions_and_texts_don_t_depend_on_the_batch(self, world: AgentWorld) -> None:
        """A question after a page alone gets what it gets among others, in any order."""
        for kind in ("decide", "reflect", "interview"):
            self._alone_as_in_a_batch(world, kind)

    def _alone_as_in_a_batch(self, world: AgentWorld, kind: str) -> None:
        people = np.arange(self.people)
        whole = self.replies(world, kind, people)
        back = self.replies(world, kind, people[::-1].copy())
        alone = self.replies(world, kind, people[:1])
        for name in (f.name for f in fields(whole)):
            values, turned = getattr(whole, name), getattr(back, name)
            single = getattr(alone, name)
            assert _plain(values) == _plain(turned)[::-1], f"{kind}.{name}"
            assert _plain(values)[:1] == _plain(single), f"{kind}.{name}"


def _plain(values: Any) -> list[str]:
    """Rows as texts: not a number equals itself."""
    return [] if values is None else [repr(row) for row in values.tolist()]
