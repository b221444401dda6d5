"""Played lifetimes: tables, limits, memory, blocks and resumption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError
from sim.dialogue import (
    FAILED,
    FEEDBACK,
    LEAKED,
    SETTINGS,
    Action,
    Comment,
    DialogueWorld,
    Lifetimes,
    open_agent,
    open_customer,
    play,
)
from sim.dialogue.agents.baselines import RandomAgent
from sim.dialogue.customers.statistical import StatisticalCustomer


def run(world: DialogueWorld, agent: Any = "dp", customer: Any = None, **options: Any) -> Any:
    given = {"lifetimes": 10, "setting": "customer", "episodes": 4} | options
    life = Lifetimes.draw(
        world,
        range(given.pop("lifetimes")),
        setting=given.pop("setting"),
        episodes=given.pop("episodes"),
    )
    agent = open_agent(agent) if isinstance(agent, str) else agent
    return play(world, life, agent, customer or open_customer("statistical"), **given)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("feedback", FEEDBACK)
def test_tables_keep_their_contracts(world: DialogueWorld, setting: str, feedback: str) -> None:
    found = run(world, setting=setting, feedback=feedback, probes=(1, 4))
    for name in ("episodes", "turns"):
        frame = getattr(found, name)
        contract = CONTRACTS[f"dialogue.{name}"]
        contract.validate(frame)
        assert frame.equals(frame.sort(contract.key))
    assert found.episodes.height == 40
    kinds = dict(found.turns.group_by("kind").len().iter_rows())
    questions = found.episodes["questions"].sum()
    probed = found.episodes.filter(pl.col("episode").is_in([1, 4]))["questions"].sum()
    assert kinds["ask"] == kinds["answer"] == questions
    assert kinds["recommend"] == 40
    assert kinds["probe"] == probed
    assert kinds.get("feedback", 0) == (0 if feedback == "none" else 40)


def test_figures_of_an_episode_follow_from_the_scores(world: DialogueWorld) -> None:
    for row in run(world, "random").episodes.iter_rows(named=True):
        shelf = next(s for s in world.sets if s.category_id == row["category_id"])
        y = shelf.y[world.persona_ids.index(row["persona_id"])].astype(float)
        score = y[shelf.item_ids.index(row["item_id"])]
        assert row["score"] == pytest.approx(score, abs=1e-4)
        assert row["best"] == pytest.approx(y.max(), abs=1e-4)
        assert row["regret"] == pytest.approx(y.max() - score, abs=1e-4)
        assert row["random_regret"] == pytest.approx(y.max() - y.mean(), abs=1e-3)
        assert row["rank"] == 1 + (y > score).sum()
        assert row["stars"] == int(5 * score / y.max() + 0.5)


def test_mean_regret_of_random_meets_its_exact_value(world: DialogueWorld) -> None:
    found = run(world, "random", lifetimes=400, feedback="none").episodes
    error = found["regret"].std() / np.sqrt(found.height)
    assert abs(found["regret"].mean() - found["random_regret"].mean()) < 4 * error


def test_best_has_no_regret(world: DialogueWorld) -> None:
    assert run(world, "best").episodes["regret"].to_list() == [0.0] * 40


def test_rows_are_ordered_by_their_keys_whatever_the_order_of_seeds(world: DialogueWorld) -> None:
    life = Lifetimes.draw(world, [5, 3, 9], episodes=3)
    found = play(world, life, open_agent("dp"), open_customer("statistical"))
    straight = Lifetimes.draw(world, [3, 5, 9], episodes=3)
    other = play(world, straight, open_agent("dp"), open_customer("statistical"))
    assert_frame_equal(found.episodes, other.episodes)
    assert_frame_equal(found.turns, other.turns)


@pytest.mark.parametrize("agent", ["random", "base", "dp", "thompson", "linear"])
def test_a_lifetime_alone_is_what_it_is_among_others(world: DialogueWorld, agent: str) -> None:
    life = Lifetimes.draw(world, range(10), episodes=4)
    alone = Lifetimes.draw(world, [7], episodes=4)
    both = [
        play(world, found, open_agent(agent), open_customer("statistical"))
        for found in (life, alone)
    ]
    for name in ("episodes", "turns"):
        assert_frame_equal(getattr(both[0], name).filter(seed=7), getattr(both[1], name))


class Watches(RandomAgent):
    """An agent that notes what it is shown of past episodes and of feedback."""

    def __init__(self) -> None:
        self.past: list[int] = []
        self.learned: list[Any] = []

    async def act(self, dialogue: Any) -> Action:
        self.past.append(len(dialogue.past))
        assert dialogue.persona is None
        return await super().act(dialogue)

    def learn(self, outcome: Any) -> None:
        self.learned.append(outcome)


def test_memory_off_shows_and_teaches_nothing(world: DialogueWorld) -> None:
    on, off = Watches(), Watches()
    run(world, on, lifetimes=1)
    run(world, off, lifetimes=1, memory=False)
    assert (on.past, len(on.learned)) == ([0, 1, 2, 3], 4)
    assert (off.past, len(off.learned)) == ([0, 0, 0, 0], 0)


@pytest.mark.parametrize("feedback", FEEDBACK)
def test_agents_learn_from_the_form_of_feedback_alone(world: DialogueWorld, feedback: str) -> None:
    agent = Watches()
    run(world, agent, feedback=feedback)
    assert agent.learned
    for outcome in agent.learned:
        shown = {f for f in ("regret", "stars", "text") if getattr(outcome, f) is not None}
        assert shown == ({feedback} - {"none"})


class Loops(RandomAgent):
    """An agent that asks the same question for ever."""

    def __init__(self, text: str | None = None, facet: int = 0) -> None:
        self.text, self.facet = text, facet

    async def act(self, dialogue: Any) -> Action:
        asks = dialogue.questions_left > 0
        return Action(ask=asks, facet=self.facet, text=self.text, product=0)


def test_questions_end_at_the_limit_and_repeats_are_counted(world: DialogueWorld) -> None:
    for agent in (Loops(), Loops("Which price do you prefer?", -1)):
        found = run(world, agent).episodes
        assert found["questions"].to_list() == [20] * 40
        assert found["repeated"].to_list() == [19] * 40
        assert found["unmatched"].to_list() == [0] * 40
    found = run(world, Loops("Qwerty?", -1), max_questions=3).episodes
    assert found["repeated"].to_list() == [2] * 40
    assert found["unmatched"].to_list() == [3] * 40


@pytest.mark.parametrize(("facet", "product"), [(99, 0), (-1, 0), (None, 99), (None, -1)])
def test_impossible_actions_fail_without_a_regret(
    world: DialogueWorld, facet: int | None, product: int
) -> None:
    class Wrong(RandomAgent):
        async def act(self, dialogue: Any) -> Action:
            return Action(ask=facet is not None, facet=facet or 0, product=product)

    found = run(world, Wrong())
    assert set(found.episodes["status"]) == {"failed"}
    for name in ("item_id", "rank", "score", "regret", "stars"):
        assert found.episodes[name].null_count() == 40
    assert found.turns["kind"].to_list() == ["recommend"] * 40
    assert set(found.turns["status"]) == {"failed"}


def test_leaked_answers_end_the_episode_without_a_regret(world: DialogueWorld) -> None:
    class Leaks(StatisticalCustomer):
        async def answer(self, question: Any) -> Any:
            status = LEAKED if question.dialogue.lifetime == 2 else "ok"
            return replace(await super().answer(question), status=status)

        async def feedback(self, sale: Any) -> Comment:
            status = FAILED if sale.dialogue.lifetime == 3 else "ok"
            return replace(await super().feedback(sale), status=status)

    found = run(world, "base", Leaks())
    by = found.episodes.group_by("seed", "status").len().sort("seed")
    assert by.filter(pl.col("seed") == 2)["status"].to_list() == ["leaked"]
    assert by.filter(pl.col("seed") == 3)["status"].to_list() == ["failed"]
    assert by.filter(~pl.col("seed").is_in([2, 3]))["status"].unique().to_list() == ["ok"]
    assert found.episodes.filter(pl.col("status") != "ok")["regret"].null_count() == 8
    turns = found.turns.filter(pl.col("seed") == 2)
    assert turns["kind"].to_list() == ["ask", "answer"] * 4
    assert turns["status"].to_list() == ["ok", "leaked"] * 4


def test_forced_questions_are_probed_and_enter_no_history(world: DialogueWorld) -> None:
    plain = run(world, "greedy", must_ask=3)
    probed = run(world, "greedy", must_ask=3, probes=(1, 2))
    assert (plain.episodes["questions"] >= 3).all()
    rest = probed.turns.filter(pl.col("kind") != "probe").drop("run")
    assert_frame_equal(rest, plain.turns.drop("run"))
    probes = probed.turns.filter(pl.col("kind") == "probe")
    assert set(probes["episode"]) == {1, 2}
    assert probes["regret"].null_count() == 0
    assert probes["top_1"].null_count() == 0


def test_impossible_settings_are_refused(world: DialogueWorld) -> None:
    with pytest.raises(ConfigError, match=r"unknown feedback: 'star' .*stars"):
        run(world, feedback="star")
    with pytest.raises(ConfigError, match="forced ones no more than allowed"):
        run(world, must_ask=21)
