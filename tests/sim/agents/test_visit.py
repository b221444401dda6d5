"""A visit: every way through its pages, unusable replies, and the laws of independence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError, EngineError
from sim.agents import (
    TABLES,
    AgentWorld,
    Brain,
    Decision,
    ItemDisplays,
    Judgement,
    Opinion,
    Question,
    Reflection,
    open_brain,
    page_lists,
    visits_of,
)
from sim.agents._baselines import AlwaysBrain, RandomBrain
from sim.agents._log import frames_of
from sim.recommenders import open_recommender

NEXT, PREVIOUS, EXIT = (Decision(action=name) for name in ("NEXT", "PREVIOUS", "EXIT"))


def click(target: int) -> Decision:
    return Decision(action="CLICK", target=target)


class Scripted(AlwaysBrain):
    """Watches the given positions of a page and does what the script says, view by view."""

    name = "scripted"
    reads = True

    def __init__(
        self, actions: list[Decision], watch: Callable[[Question, int], bool] | None = None
    ) -> None:
        self.actions, self.watch = actions, watch
        self.seen: list[Question] = []

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        self.seen += questions
        return [
            Judgement(opinions=tuple(
                Opinion(True, 4) if self.watch and self.watch(q, p) else Opinion(False)
                for p in q.positions
            ))
            for q in questions
        ]  # fmt: skip

    def decide(self, questions: Sequence[Question]) -> list[Decision]:
        self.seen += questions
        return [self.actions[len(q.visit.views) - 1] for q in questions]

    def of(self, kind: str) -> list[Question]:
        return [question for question in self.seen if question.kind == kind]


def visit(
    world: AgentWorld, brain: Brain, agents: Any = (0,), seed: int = 0, recommender: str = "random"
) -> dict[str, pl.DataFrame]:
    """Tables of the visits of some agents; agent n plays person n."""
    fitted = open_recommender(recommender).fit(world.release)
    who = np.array(agents, np.int64)
    people = who % len(world)
    lists = page_lists(world, fitted, people)
    visits = visits_of(world, brain.open(world), lists, agents=who, people=people, seed=seed)
    return frames_of(visits, world, brain=brain.name, recommender=recommender)


@pytest.fixture(scope="module")
def short(matched: Any) -> AgentWorld:
    """Pages of two items, three pages."""
    return AgentWorld.open(matched, per_page=2, pages=3)


def column(frame: pl.DataFrame, *names: str) -> list[Any]:
    return frame.select(names).rows() if len(names) > 1 else frame[names[0]].to_list()


def test_agent_leaves_when_it_decides_to(short: AgentWorld) -> None:
    tables = visit(short, Scripted([NEXT, EXIT]))
    agent = tables["agents"].row(0, named=True)
    assert (agent["exit_page"], agent["views"], agent["exit_reason"]) == (2, 2, "chosen")
    assert agent["interview"] == 10
    assert column(tables["pages"], "view", "page", "action") == [(1, 1, "NEXT"), (2, 2, "EXIT")]
    assert column(tables["views"], "view", "position") == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_next_on_the_last_page_is_the_limit(short: AgentWorld) -> None:
    agent = visit(short, Scripted([NEXT] * 3))["agents"].row(0, named=True)
    assert (agent["exit_page"], agent["exit_reason"], agent["interview"]) == (3, "limit", 10)


def test_page_seen_again_asks_about_unwatched_items_alone(short: AgentWorld) -> None:
    brain = Scripted([NEXT, PREVIOUS, NEXT, EXIT], lambda q, p: p == (len(q.visit.views) > 2))
    tables = visit(short, brain)
    # View 1 watches position 0 of page 1; view 2 shows page 2; view 3 is page 1 again, of which
    # position 1 is left; view 4 is page 2 again, of which position 1 is left too.
    rows = column(tables["views"], "view", "page", "position", "watched")
    assert rows == [
        (1, 1, 0, True), (1, 1, 1, False), (2, 2, 0, True), (2, 2, 1, False),
        (3, 1, 1, True), (4, 2, 1, True),
    ]  # fmt: skip
    assert tables["agents"]["exit_page"].to_list() == [2]


def test_click_judges_one_item_again_by_its_long_description(short: AgentWorld) -> None:
    brain = Scripted([click(1), click(0), EXIT], lambda q, _: q.detailed)
    tables = visit(short, brain)
    rows = column(tables["views"], "view", "position", "clicked", "watched")
    assert rows == [
        (1, 0, False, False), (1, 1, False, False), (2, 1, True, True), (3, 0, True, True)
    ]  # fmt: skip
    decided = column(tables["pages"], "view", "page", "action", "target")
    assert decided == [(1, 1, "CLICK", 1), (2, 1, "CLICK", 0), (3, 1, "EXIT", None)]
    # Clicked items are watched; two clicks are all there is.
    assert [q.clickable for q in brain.of("decide")] == [(0, 1), (0,), ()]
    assert [q.detailed for q in brain.of("judge")] == [False, True, True]


def test_visit_of_endless_going_back_ends(short: AgentWorld) -> None:
    agent = visit(short, Scripted([NEXT, PREVIOUS] * 9))["agents"].row(0, named=True)
    # Three pages are shown at most six times.
    assert (agent["views"], agent["exit_reason"]) == (6, "limit")


def test_actions_that_are_impossible_are_asked_again(short: AgentWorld) -> None:
    class Learns(Scripted):
        def decide(self, questions):
            made = super().decide(questions)
            return [EXIT if q.fault else m for q, m in zip(questions, made, strict=True)]

    brain = Learns([PREVIOUS])
    tables = visit(short, brain)
    assert tables["agents"]["exit_reason"].to_list() == ["chosen"]
    first, second = brain.of("decide")
    assert (first.fault, second.fault) == (None, "this action is not possible now")
    assert first.key != second.key


def test_two_unusable_replies_end_the_visit_as_failed(short: AgentWorld) -> None:
    class Mute(Scripted):
        def judge(self, questions):
            return [
                replace(reply, status="truncated") if len(q.visit.views) == 2 else reply
                for q, reply in zip(questions, super().judge(questions), strict=True)
            ]

    tables = visit(short, Mute([NEXT, NEXT], lambda *_: True))
    agent = tables["agents"].row(0, named=True)
    assert (agent["exit_reason"], agent["exit_page"]) == ("failed", 2)
    assert (agent["interview"], agent["satisfaction"]) == (None, None)
    last = tables["views"].filter(view=2)
    assert last["status"].to_list() == ["truncated"] * 2
    assert last["rating"].null_count() == 2
    assert not last["watched"].any()
    assert tables["pages"].filter(view=2).select("action", "status").rows() == [(None, "truncated")]


def test_evidence_that_does_not_exist_is_no_reply(short: AgentWorld) -> None:
    class Cites(Scripted):
        def reflect(self, questions):
            self.seen += questions
            (question,) = questions
            cited = question.visit.memory - 1 if question.fault else 99
            return [Reflection(insights=(("It was good.", (cited,)),) * 3)]

    brain = Cites([EXIT], lambda *_: True)
    tables = visit(short, brain)
    first, second = brain.of("reflect")
    assert first.fault is None
    assert "does not exist" in second.fault
    entries = int(short.history.lengths[0]) + 2
    found = tables["memories"].filter(kind="reflection")
    assert found["evidence"].to_list() == [[entries - 1]] * 3
    assert found["entry"].to_list() == [entries, entries + 1, entries + 2]
    assert tables["agents"]["exit_reason"].to_list() == ["chosen"]


def test_watched_items_become_entries_after_the_history(short: AgentWorld) -> None:
    brain = Scripted([NEXT, EXIT], lambda _, p: p == 0)
    tables = visit(short, brain)
    history = int(short.history.lengths[0])
    assert tables["memories"]["entry"].to_list() == [history, history + 1]
    texts = [entry.text for entry in brain.seen[-1].visit.entries]
    assert texts == tables["memories"]["text"].to_list()
    assert texts[0].endswith(": watched, rated 4 of 5.")


def test_graph_memory_grows_with_an_agents_own_ratings(short: AgentWorld) -> None:
    seen: list[dict[str, Any]] = []

    class Reads(Scripted):
        def judge(self, questions):
            for question in questions:
                ((*cards,),) = ItemDisplays(short).of(
                    [question.items], [[False] * len(question.items)],
                    users=[question.visit.user], memories=[question.visit.graph],
                )  # fmt: skip
                seen.append(dict(pair for card in cards for pair in card.similar))
            return super().judge(questions)

    watched = visit(short, Reads([NEXT, EXIT], lambda _, p: p == 0), agents=(0, 30))["memories"]
    user = short.graph_users[0]
    first = watched.filter(agent=0)["item_id"][0]
    # Both agents play person 0: each remembers its own rating, and neither is in the shared graph.
    for own in seen[2:]:
        assert own.get(f"Film {first[3:]}", 4.0) == 4.0
    assert not short.memory._added
    assert short.memory.retrieve(user, first)


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([Judgement()], "0 opinions on 2 items"),
        ([], "0 replies to 1 questions"),
        ([Decision()], "a reply is a Decision"),
    ],
)
def test_replies_of_another_shape_name_the_brain(
    short: AgentWorld, replies: list[Any], message: str
) -> None:
    class Wrong(Scripted):
        def judge(self, questions):
            return replies

    with pytest.raises(ContractError, match=message + ".*brain scripted"):
        visit(short, Wrong([EXIT]))


def test_brain_that_raises_is_named(short: AgentWorld) -> None:
    class Breaks(Scripted):
        def interview(self, questions):
            raise ZeroDivisionError("oh")

    with pytest.raises(ContractError, match=r"interview raised ZeroDivisionError: oh: brain scri"):
        visit(short, Breaks([EXIT]))


def test_dead_engine_is_a_fault_of_the_run(short: AgentWorld) -> None:
    class Dies(Scripted):
        def decide(self, questions):
            raise EngineError("the engine is dead", where="wave 2")

    with pytest.raises(EngineError, match="the engine is dead"):
        visit(short, Dies([EXIT]))


def test_questions_of_all_agents_are_asked_in_one_batch(short: AgentWorld) -> None:
    sizes: list[tuple[str, int]] = []

    class Counts(Scripted):
        def judge(self, questions):
            sizes.append(("judge", len(questions)))
            return super().judge(questions)

        def decide(self, questions):
            sizes.append(("decide", len(questions)))
            return [EXIT if q.visit.agent % 2 else NEXT for q in questions]

    visit(short, Counts([]), agents=range(10))
    assert sizes == [
        ("judge", 10), ("decide", 10), ("judge", 5), ("decide", 5), ("judge", 5), ("decide", 5)
    ]  # fmt: skip


def test_tables_meet_their_contracts(world: AgentWorld) -> None:
    tables = visit(world, open_brain("random"), agents=range(60))
    for name in TABLES:
        CONTRACTS[f"simulations.{name}"].validate(tables[name])
    views = tables["views"]
    assert views.filter("watched")["rating"].null_count() == 0
    assert (
        views.filter(~pl.col("watched"))["rating"].null_count()
        == views.filter(~pl.col("watched")).height
    )


def test_persons_second_agent_lives_another_visit(world: AgentWorld) -> None:
    tables = visit(world, RandomBrain(), agents=(3, 33))
    assert tables["agents"]["persona_id"].n_unique() == 1
    first, second = tables["views"].partition_by("agent", include_key=False)
    assert not first.equals(second)


@pytest.mark.pipeline
@given(
    parts=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_agents_are_the_same_in_any_company(world: AgentWorld, parts: list[int], seed: int) -> None:
    """However twelve agents are parted into shards, their rows are the same."""
    whole = visit(world, RandomBrain(), agents=range(12), seed=seed)
    groups = [[n for n in range(12) if parts[n] == g] for g in range(4)]
    shards = [visit(world, RandomBrain(), agents=g, seed=seed) for g in groups if g]
    for name in TABLES:
        keys = CONTRACTS[f"simulations.{name}"].key
        joined = pl.concat([shard[name] for shard in shards]).sort(keys)
        assert joined.equals(whole[name]), name
