"""Conformance tests for brains: inherit, and return yours, opened, from ``make``.

The world must hold at least three people and 24 items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import orjson

from pipelines.statuses import STATUSES
from sim.agents._protocol import (
    CLICK,
    EMOTIONS,
    EXIT,
    FATIGUE,
    KINDS,
    MOODS,
    NEXT,
    OK,
    Brain,
    Kind,
    Opinion,
    Question,
)
from sim.agents._visit import View, Visit, judgement_fault
from sim.agents._world import AgentWorld

__all__ = ["BrainContract", "sample_questions"]


def sample_questions(
    world: AgentWorld, people: Iterable[int], kind: Kind, *, seed: int = 0, **more: Any
) -> list[Question]:
    """A question of a kind to each of some people: on the first page, or on what follows it.

    All are shown the first items of the catalogue; at the decision the first of them is watched and
    rated 4. ``people`` are rows of ``world.people``; the agent's number is its place in the cast.
    ``more`` are fields of the questions.
    """
    out, items = [], tuple(range(world.per_page))
    for person in people:
        visit = Visit(world, int(person), int(person))
        fields: dict[str, Any] = {"items": items, "positions": items}
        if kind not in ("judge", "classify"):
            opinions = {place: Opinion(place == 0, 4 if place == 0 else None) for place in items}
            visit.views.append(View(1, items, clicked=False, asked=items, opinions=opinions))
            visit.remember("action", 0, f"{world.titles[0]}: watched, rated 4 of 5.")
            fields = {"actions": (NEXT, CLICK, EXIT), "clickable": items[1:]}
        key = (seed, int(person), 1, KINDS.index(kind), int("fault" in more))
        out.append(Question(kind, visit, key, **{**fields, **more}))
    return out


class BrainContract(ABC):
    """Behaviour required of every :class:`sim.agents.Brain`."""

    #: People that are asked (count).
    people = 3

    @abstractmethod
    def make(self, world: AgentWorld) -> Brain:
        """The brain under test, opened on the world."""

    def replies(self, world: AgentWorld, kind: Kind, people: Any = None, **more: Any) -> list[Any]:
        """Usable replies of a fresh brain to the sample questions of one kind."""
        who = range(self.people) if people is None else people
        questions = sample_questions(world, who, kind, **more)
        replies = list(getattr(self.make(world), kind)(questions))
        assert len(replies) == len(questions)
        return replies

    def test_it_says_what_it_is(self, world: AgentWorld) -> None:
        """A name for tables, a sentence for people, and facts that can be stored."""
        brain = self.make(world)
        assert isinstance(brain, Brain)
        assert brain.name
        assert brain.note.endswith(".")
        assert isinstance(brain.reads, bool)
        assert orjson.dumps(brain.metadata(), option=orjson.OPT_SERIALIZE_NUMPY)

    def test_replies_have_a_status_each(self, world: AgentWorld) -> None:
        """Every question has an allowed status, and the tokens that it took."""
        for kind in KINDS:
            for reply in self.replies(world, kind):
                assert reply.status in STATUSES, kind
                assert reply.tokens >= 0, kind

    def test_ratings_belong_to_watched_items(self, world: AgentWorld) -> None:
        """A whole number from 1 to 5 where an item is watched, and nothing elsewhere."""
        for reply in _ok(self.replies(world, "judge")):
            assert len(reply.opinions) == world.per_page
            assert judgement_fault(reply) is None
            for opinion in reply.opinions:
                assert opinion.watched or (opinion.rating, opinion.feeling) == (None, None)
                assert opinion.expected is None or 1 <= opinion.expected <= 5
                assert opinion.chance is None or 0 <= opinion.chance <= 1

    def test_items_of_a_click_are_judged_alone(self, world: AgentWorld) -> None:
        """After a click one position is judged; where nothing is asked, nothing."""
        more: dict[str, Any] = {"items": (2,), "positions": (2,), "detailed": True}
        assert all(len(r.opinions) == 1 for r in _ok(self.replies(world, "judge", **more)))
        more = {"items": (), "positions": ()}
        assert all(r.opinions == () for r in _ok(self.replies(world, "judge", **more)))

    def test_experienced_items_are_all_rated(self, world: AgentWorld) -> None:
        """Items that were watched already have a rating each."""
        for reply in _ok(self.replies(world, "judge", experienced=True)):
            assert all(opinion.watched for opinion in reply.opinions)
            assert judgement_fault(reply) is None

    def test_decisions_are_possible_ones(self, world: AgentWorld) -> None:
        """A possible action; a clickable target for CLICK and none for any other."""
        asked = sample_questions(world, range(self.people), "decide")
        for question, reply in zip(asked, self.replies(world, "decide"), strict=True):
            if reply.status == OK:
                assert reply.action in question.actions
                assert (reply.target in question.clickable) == (reply.action == CLICK)
                assert reply.mood in MOODS
                assert reply.fatigue in FATIGUE
                assert reply.emotion in EMOTIONS

    def test_insights_rest_on_entries_that_exist(self, world: AgentWorld) -> None:
        """Evidence is below the number of entries."""
        asked = sample_questions(world, range(self.people), "reflect")
        for question, reply in zip(asked, self.replies(world, "reflect"), strict=True):
            for text, evidence in reply.insights:
                assert text
                assert all(0 <= number < question.visit.memory for number in evidence)

    def test_interviews_are_scored_from_one_to_ten(self, world: AgentWorld) -> None:
        """Whole numbers."""
        for reply in _ok(self.replies(world, "interview")):
            assert isinstance(reply.score, int)
            assert 1 <= reply.score <= 10

    def test_classifications_are_probabilities(self, world: AgentWorld) -> None:
        """Every item has a number from 0 to 1."""
        for reply in _ok(self.replies(world, "classify")):
            assert len(reply.probabilities) == world.per_page
            assert all(0 <= chance <= 1 for chance in reply.probabilities)

    def test_judgements_don_t_depend_on_the_batch(self, world: AgentWorld) -> None:
        """A page alone gets what it gets among others, in any order."""
        self._alone_as_in_a_batch(world, "judge")
        self._alone_as_in_a_batch(world, "classify")

    def test_decisions_and_texts_don_t_depend_on_the_batch(self, world: AgentWorld) -> None:
        """A question after a page alone gets what it gets among others, in any order."""
        for kind in ("decide", "reflect", "interview"):
            self._alone_as_in_a_batch(world, kind)

    def _alone_as_in_a_batch(self, world: AgentWorld, kind: Any) -> None:
        together = self.replies(world, kind)
        back = self.replies(world, kind, range(self.people)[::-1])
        alone = self.replies(world, kind, [0])
        assert together == back[::-1], kind
        assert together[:1] == alone, kind


def _ok(replies: list[Any]) -> list[Any]:
    return [reply for reply in replies if reply.status == OK]
