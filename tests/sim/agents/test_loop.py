"""The state machine: every transition, unusable replies, and the laws of independence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError, EngineError
from sim.agents import AgentWorld, Brain, open_brain, page_lists
from sim.agents._baselines import AlwaysBrain, RandomBrain
from sim.agents._log import TABLES, frames_of
from sim.agents._loop import Visits
from sim.recommenders import open_recommender

NEXT, PREVIOUS, CLICK, EXIT = range(4)


class Scripted(AlwaysBrain):
    """Watches the given positions of a page and does what the script says, view by view."""

    name = "scripted"
    reads = True

    def __init__(self, actions: list[Any], watch: Callable[[Any], Any] | None = None) -> None:
        self.actions, self.watch = actions, watch
        self.seen: list[tuple[str, Any]] = []

    def judge(self, requests):
        self.seen.append(("judge", requests))
        reply = super().judge(requests)
        watched = requests.asked & (
            np.zeros_like(requests.asked) if self.watch is None else self.watch(requests)
        )
        ratings = np.where(watched, 4.0, np.nan)
        return replace(reply, watched=watched, ratings=ratings)

    def decide(self, requests):
        self.seen.append(("decide", requests))
        chosen = [self.actions[v - 1] for v in requests.views.tolist()]
        pairs = [c if isinstance(c, tuple) else (c, -1) for c in chosen]
        action, target = (np.array(side) for side in zip(*pairs, strict=True))
        return replace(super().decide(requests), actions=action, targets=target)


def visit(
    world: AgentWorld, brain: Brain, agents: Any = (0,), seed: int = 0, recommender: str = "random"
) -> dict[str, pl.DataFrame]:
    """Tables of the visits of some agents; agent n plays person n."""
    fitted = open_recommender(recommender).fit(world.release)
    who = np.array(agents, np.int64)
    people = who % len(world)
    lists = page_lists(world, fitted, people)
    visits = Visits(world, brain.open(world), lists=lists, agents=who, people=people, seed=seed)
    visits.run()
    return frames_of(visits, brain=brain.name, recommender=recommender)


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
    brain = Scripted([NEXT, PREVIOUS, NEXT, EXIT], lambda r: np.arange(2) == (r.views[:, None] > 2))
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
    brain = Scripted([(CLICK, 1), (CLICK, 0), EXIT], lambda r: r.detailed)
    tables = visit(short, brain)
    rows = column(tables["views"], "view", "position", "clicked", "watched")
    assert rows == [
        (1, 0, False, False), (1, 1, False, False), (2, 1, True, True), (3, 0, True, True)
    ]  # fmt: skip
    decided = column(tables["pages"], "view", "page", "action", "target")
    assert decided == [(1, 1, "CLICK", 1), (2, 1, "CLICK", 0), (3, 1, "EXIT", None)]
    offered = [r.clickable[0].tolist() for kind, r in brain.seen if kind == "decide"]
    # Clicked items are watched; two clicks are all there is.
    assert offered == [[True, True], [True, False], [False, False]]
    assert brain.seen[0][1].cards(0)[1].description == "What happens in film " + (
        brain.seen[0][1].cards(0)[1].item_id[3:] + "."
    )


def test_visit_of_endless_going_back_ends(short: AgentWorld) -> None:
    agent = visit(short, Scripted([NEXT, PREVIOUS] * 9))["agents"].row(0, named=True)
    # Three pages are shown at most six times.
    assert (agent["views"], agent["exit_reason"]) == (6, "limit")


def test_actions_that_are_impossible_are_asked_again(short: AgentWorld) -> None:
    class Learns(Scripted):
        def decide(self, requests):
            reply = super().decide(requests)
            if requests.attempts[0]:
                return replace(reply, actions=np.array([EXIT]))
            return reply

    brain = Learns([PREVIOUS])
    tables = visit(short, brain)
    assert tables["agents"]["exit_reason"].to_list() == ["chosen"]
    first, second = (r for kind, r in brain.seen if kind == "decide")
    assert (first.attempts[0], first.faults[0]) == (0, None)
    assert (second.attempts[0], second.faults[0]) == (1, "this action is not possible now")
    assert first.seeds[0] != second.seeds[0]


def test_two_unusable_replies_end_the_visit_as_failed(short: AgentWorld) -> None:
    class Mute(Scripted):
        def judge(self, requests):
            reply = super().judge(requests)
            second = requests.views == 2
            return replace(reply, status=np.where(second, "truncated", reply.status))

    tables = visit(short, Mute([NEXT, NEXT], lambda r: r.asked))
    agent = tables["agents"].row(0, named=True)
    assert (agent["exit_reason"], agent["exit_page"]) == ("failed", 2)
    assert (agent["interview"], agent["satisfaction"]) == (None, None)
    last = tables["views"].filter(view=2)
    assert last["status"].to_list() == ["truncated"] * 2
    assert last["rating"].null_count() == 2
    assert not last["watched"].any()
    assert tables["pages"].filter(view=2).select("action", "status").rows() == [(None, "truncated")]


@pytest.mark.parametrize("number", [99, 16])
def test_evidence_that_does_not_exist_is_no_reply(short: AgentWorld, number: int) -> None:
    class Cites(Scripted):
        def reflect(self, requests):
            reply = super().reflect(requests)
            cited = np.where(requests.attempts, int(requests.memory[0]) - 1, number)
            self.seen.append(("reflect", requests))
            text = np.full((1, 3), "It was good.", object)
            evidence = np.full((1, 3, 2), -1)
            evidence[:, :, 0] = cited[:, None]
            return replace(reply, questions=text, insights=text, evidence=evidence)

    brain = Cites([EXIT], lambda r: r.asked)
    tables = visit(short, brain)
    asked = [r for kind, r in brain.seen if kind == "reflect"]
    entries = int(asked[0].memory[0])
    history = int(short.history.lengths[0])
    assert entries == history + 2
    assert (len(asked), asked[-1].attempts[0]) == (2, 1)
    assert "does not exist" in asked[1].faults[0]
    found = tables["memories"].filter(kind="reflection")
    assert found["evidence"].to_list() == [[entries - 1]] * 3
    assert found["entry"].to_list() == [entries, entries + 1, entries + 2]
    assert tables["agents"]["exit_reason"].to_list() == ["chosen"]


def test_watched_items_become_entries_after_the_history(short: AgentWorld) -> None:
    brain = Scripted([NEXT, EXIT], lambda r: np.arange(2) == 0)
    tables = visit(short, brain)
    history = int(short.history.lengths[0])
    assert tables["memories"]["entry"].to_list() == [history, history + 1]
    asked = [r for kind, r in brain.seen if kind == "decide"]
    texts = [e.text for e in asked[1].past.entries(0)]
    assert texts == tables["memories"]["text"].to_list()
    assert texts[0].endswith(": watched, rated 4 of 5.")


def test_graph_memory_grows_with_an_agents_own_ratings(short: AgentWorld) -> None:
    brain = Scripted([NEXT, EXIT], lambda r: np.arange(2) == 0)
    watched = visit(short, brain, agents=(0, 30))["memories"]
    user = short.graph_users[0]
    first = watched.filter(agent=0)["item_id"][0]
    pages = [r for kind, r in brain.seen if kind == "judge"]
    # Both agents play person 0: each remembers its own rating, and neither is in the shared graph.
    for row in (0, 1):
        cards = pages[1].cards(row)
        own = dict(pair for card in cards for pair in card.similar)
        title = f"Film {first[3:]} ({1970 + 2 * int(first[3:])})"
        assert own.get(title.partition(" (")[0], 4.0) == 4.0
    assert short.memory.edges_added == 0
    assert short.memory.retrieve(user, first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"watched": np.zeros((1, 3), bool)}, r"watched of shape \(1, 3\), not \(1, 2\)"),
        ({"status": np.array(["ok", "ok"], object)}, r"status of shape \(2,\), not \(1,\)"),
    ],
)
def test_replies_of_another_shape_name_the_brain(
    short: AgentWorld, change: dict[str, Any], message: str
) -> None:
    class Wrong(Scripted):
        def judge(self, requests):
            return replace(super().judge(requests), **change)

    with pytest.raises(ContractError, match=message + ".*brain scripted"):
        visit(short, Wrong([EXIT]))


def test_brain_that_raises_is_named(short: AgentWorld) -> None:
    class Breaks(Scripted):
        def interview(self, requests):
            raise ZeroDivisionError("oh")

    with pytest.raises(ContractError, match=r"interview raised ZeroDivisionError: oh: brain scri"):
        visit(short, Breaks([EXIT]))


def test_dead_engine_is_a_fault_of_the_run(short: AgentWorld) -> None:
    class Dies(Scripted):
        def decide(self, requests):
            raise EngineError("the engine is dead", where="wave 2")

    with pytest.raises(EngineError, match="the engine is dead"):
        visit(short, Dies([EXIT]))


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
