"""Played lifetimes: tables, limits, memory, blocks and resumption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, EngineError
from sim._results import ResultCache
from sim.dialogue import (
    FAILED,
    FEEDBACK,
    LEAKED,
    SETTINGS,
    Actions,
    Answers,
    Book,
    Lifetimes,
    Replies,
    open_agent,
    open_customer,
    play,
)
from sim.dialogue.agents.baselines import RandomAgent
from sim.dialogue.customers.statistical import StatisticalCustomer


def run(book: Book, agent: Any = "dp", customer: Any = None, **options: Any) -> Any:
    given = {"lifetimes": 10, "setting": "customer", "episodes": 4} | options
    life = Lifetimes.draw(
        book,
        range(given.pop("lifetimes")),
        setting=given.pop("setting"),
        episodes=given.pop("episodes"),
    )
    agent = open_agent(agent) if isinstance(agent, str) else agent
    return play(book, life, agent, customer or open_customer("statistical"), **given)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("feedback", FEEDBACK)
def test_tables_keep_their_contracts(book: Book, setting: str, feedback: str) -> None:
    found = run(book, setting=setting, feedback=feedback, probes=(1, 4))
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


def test_figures_of_an_episode_follow_from_the_scores(book: Book) -> None:
    for row in run(book, "random").episodes.iter_rows(named=True):
        shelf = next(s for s in book.sets if s.category_id == row["category_id"])
        y = shelf.y[book.persona_ids.index(row["persona_id"])].astype(float)
        score = y[shelf.item_ids.index(row["item_id"])]
        assert row["score"] == pytest.approx(score, abs=1e-4)
        assert row["best"] == pytest.approx(y.max(), abs=1e-4)
        assert row["regret"] == pytest.approx(y.max() - score, abs=1e-4)
        assert row["random_regret"] == pytest.approx(y.max() - y.mean(), abs=1e-3)
        assert row["rank"] == 1 + (y > score).sum()
        assert row["stars"] == int(5 * score / y.max() + 0.5)


def test_mean_regret_of_random_meets_its_exact_value(book: Book) -> None:
    found = run(book, "random", lifetimes=400, feedback="none", keep_turns=False).episodes
    error = found["regret"].std() / np.sqrt(found.height)
    assert abs(found["regret"].mean() - found["random_regret"].mean()) < 4 * error


def test_best_has_no_regret(book: Book) -> None:
    assert run(book, "best").episodes["regret"].to_list() == [0.0] * 40


@pytest.mark.parametrize("agent", ["random", "base", "dp", "thompson", "linear"])
def test_blocks_change_nothing(book: Book, agent: str) -> None:
    whole, small = run(book, agent), run(book, agent, block=3)
    assert whole.run == small.run
    assert_frame_equal(whole.episodes, small.episodes)
    assert_frame_equal(whole.turns, small.turns)


def test_rows_are_ordered_by_their_keys_whatever_the_order_of_seeds(book: Book) -> None:
    life = Lifetimes.draw(book, [5, 3, 9], episodes=3)
    found = play(book, life, open_agent("dp"), open_customer("statistical"), block=2)
    straight = Lifetimes.draw(book, [3, 5, 9], episodes=3)
    other = play(book, straight, open_agent("dp"), open_customer("statistical"))
    assert_frame_equal(found.episodes, other.episodes)
    assert_frame_equal(found.turns, other.turns)


def test_a_lifetime_alone_is_what_it_is_among_others(book: Book) -> None:
    life = Lifetimes.draw(book, range(10), episodes=4)
    alone = Lifetimes.draw(book, [7], episodes=4)
    both = [
        play(book, found, open_agent("dp"), open_customer("statistical")) for found in (life, alone)
    ]
    assert_frame_equal(both[0].episodes.filter(pl.col("seed") == 7), both[1].episodes)


class Dies(RandomAgent):
    """An agent whose engine dies in a block."""

    def __init__(self, lifetime: int) -> None:
        self.lifetime = lifetime
        self.calls = 0

    def act(self, views: Any) -> Actions:
        self.calls += 1
        if self.lifetime in views.lifetime:
            raise EngineError("the server is gone", where="http://localhost")
        return super().act(views)


def test_a_stopped_run_plays_the_missing_blocks_only(book: Book, tmp_path: Path) -> None:
    cache = ResultCache(tmp_path, "dialogue")
    with pytest.raises(EngineError, match="the server is gone"):
        run(book, Dies(8), block=4, cache=cache)
    agent = Dies(99)
    found = run(book, agent, block=4, cache=cache)
    assert found.reused == 2
    assert agent.calls == 4  # one turn per episode of the last block
    again = Dies(0)
    rerun = run(book, again, block=4, cache=cache)
    assert again.calls == 0
    assert_frame_equal(found.turns, rerun.turns)
    assert_frame_equal(
        found.episodes, run(book, "random").episodes.with_columns(run=pl.lit(found.run))
    )


def test_other_settings_reuse_no_block(book: Book, tmp_path: Path) -> None:
    cache = ResultCache(tmp_path, "dialogue")
    run(book, "dp", cache=cache)
    for change in ({"feedback": "stars"}, {"memory": False}, {"seed": 1}, {"must_ask": 1}):
        assert run(book, "dp", cache=cache, **change).reused == 0
    assert run(book, "dp", cache=cache).reused == 1


class Watches(RandomAgent):
    """An agent that notes what it is shown of past episodes and of feedback."""

    def __init__(self) -> None:
        self.past: list[int] = []
        self.learned: list[Any] = []

    def act(self, views: Any) -> Actions:
        self.past += [len(views.past(row)) for row in range(len(views))]
        assert views.persona is None
        return super().act(views)

    def learn(self, outcomes: Any) -> None:
        self.learned.append(outcomes)


def test_memory_off_shows_and_teaches_nothing(book: Book) -> None:
    on, off = Watches(), Watches()
    run(book, on, lifetimes=1)
    run(book, off, lifetimes=1, memory=False)
    assert (on.past, len(on.learned)) == ([0, 1, 2, 3], 4)
    assert (off.past, len(off.learned)) == ([0, 0, 0, 0], 0)


@pytest.mark.parametrize("feedback", FEEDBACK)
def test_agents_learn_from_the_form_of_feedback_alone(book: Book, feedback: str) -> None:
    agent = Watches()
    run(book, agent, feedback=feedback)
    for outcomes in agent.learned:
        shown = {f for f in ("regret", "stars", "text") if getattr(outcomes, f) is not None}
        assert shown == ({feedback} - {"none"})


class Loops(RandomAgent):
    """An agent that asks the same question for ever."""

    def __init__(self, text: str | None = None, facet: int = 0) -> None:
        self.text, self.facet = text, facet

    def act(self, views: Any) -> Actions:
        n = len(views)
        text = None if self.text is None else np.array([self.text] * n, object)
        none = np.zeros(n, np.int64)
        asks = views.questions_left > 0
        return Actions(asks, np.full(n, self.facet), none, text=text)


def test_questions_end_at_the_limit_and_repeats_are_counted(book: Book) -> None:
    for agent in (Loops(), Loops("Which price do you prefer?", -1)):
        found = run(book, agent).episodes
        assert found["questions"].to_list() == [20] * 40
        assert found["repeated"].to_list() == [19] * 40
        assert found["unmatched"].to_list() == [0] * 40
    found = run(book, Loops("Qwerty?", -1), max_questions=3).episodes
    assert found["repeated"].to_list() == [2] * 40
    assert found["unmatched"].to_list() == [3] * 40


@pytest.mark.parametrize(("facet", "product"), [(99, 0), (-1, 0), (None, 99), (None, -1)])
def test_impossible_actions_fail_without_a_regret(
    book: Book, facet: int | None, product: int
) -> None:
    class Wrong(RandomAgent):
        def act(self, views: Any) -> Actions:
            n = len(views)
            asks = np.full(n, facet is not None)
            return Actions(asks, np.full(n, facet or 0), np.full(n, product))

    if facet == -1:
        Wrong.act = Loops(None, -1).act  # type: ignore[method-assign]
    found = run(book, Wrong())
    assert set(found.episodes["status"]) == {"failed"}
    for name in ("item_id", "rank", "score", "regret", "stars"):
        assert found.episodes[name].null_count() == 40
    assert found.turns["kind"].to_list() == ["recommend"] * 40
    assert set(found.turns["status"]) == {"failed"}


def test_leaked_answers_end_the_episode_without_a_regret(book: Book) -> None:
    class Leaks(StatisticalCustomer):
        def answer(self, questions: Any) -> Answers:
            status = np.where(questions.lifetime == 2, LEAKED, 0).astype(np.int8)
            return replace(super().answer(questions), status=status)

        def feedback(self, sales: Any) -> Replies:
            status = np.where(sales.lifetime == 3, FAILED, 0).astype(np.int8)
            return replace(super().feedback(sales), status=status)

    found = run(book, "base", Leaks())
    by = found.episodes.group_by("seed", "status").len().sort("seed")
    assert by.filter(pl.col("seed") == 2)["status"].to_list() == ["leaked"]
    assert by.filter(pl.col("seed") == 3)["status"].to_list() == ["failed"]
    assert by.filter(~pl.col("seed").is_in([2, 3]))["status"].unique().to_list() == ["ok"]
    assert found.episodes.filter(pl.col("status") != "ok")["regret"].null_count() == 8
    turns = found.turns.filter(pl.col("seed") == 2)
    assert turns["kind"].to_list() == ["ask", "answer"] * 4
    assert turns["status"].to_list() == ["ok", "leaked"] * 4


def test_forced_questions_are_probed_and_enter_no_history(book: Book) -> None:
    plain = run(book, "greedy", must_ask=3)
    probed = run(book, "greedy", must_ask=3, probes=(1, 2))
    assert (plain.episodes["questions"] >= 3).all()
    rest = probed.turns.filter(pl.col("kind") != "probe").drop("run")
    assert_frame_equal(rest, plain.turns.drop("run"))
    probes = probed.turns.filter(pl.col("kind") == "probe")
    assert set(probes["episode"]) == {1, 2}
    assert probes["regret"].null_count() == 0
    assert probes["top_1"].null_count() == 0


def test_impossible_settings_are_refused(book: Book) -> None:
    with pytest.raises(ConfigError, match=r"unknown feedback: 'star' .*stars"):
        run(book, feedback="star")
    with pytest.raises(ConfigError, match="forced ones no more than allowed"):
        run(book, must_ask=21)
