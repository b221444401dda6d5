"""How agents feel and when they leave: formulas worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from sim.agents import AgentWorld, Opinion, View, VisitRules
from sim.agents._choice import tastes_of
from sim.agents._rules import exit_probability, page_shares, satisfaction
from sim.agents.testing import sample_questions

LIKED, SEEN, SKIPPED = Opinion(True, 4), Opinion(True, 3), Opinion(False)


def views(*each: tuple[int, bool, list[Opinion]]) -> list[View]:
    """Views of an agent: page, whether it was a click, and opinions by position."""
    return [
        View(page, tuple(range(len(cells))), clicked, tuple(range(len(cells))),
             dict(enumerate(cells)))
        for page, clicked, cells in each
    ]  # fmt: skip


def rules(world: AgentWorld, **tiers: str) -> VisitRules:
    made = VisitRules()
    people = world.people.with_columns(**{name: pl.lit(tier) for name, tier in tiers.items()})
    made.set_rules(replace(world, people=people), tastes_of(world))
    return made


def test_shares_of_likes_count_a_page_with_its_clicks() -> None:
    shares = page_shares(
        views(
            (1, False, [LIKED, SEEN, SKIPPED, SKIPPED]),  # 1 of 4
            (1, True, [SKIPPED, SKIPPED, LIKED, SKIPPED]),  # a click: now 2 of 4
            (2, False, [SKIPPED] * 4),  # 0 of 4
            (1, False, [SKIPPED, SKIPPED, SKIPPED, LIKED]),  # back: 3 of 4
        ),
        3,
    )
    assert shares == [0.5, 0.0, 0.75]
    # ((0.5 + 0.5) / 2, then halved with 0, then with 0.75.
    assert satisfaction(shares, 0.5) == (0.25 + 0.75) / 2


@given(st.floats(0, 3), st.floats(0, 3), st.floats(0, 1), st.floats(0, 1))
def test_tired_and_dissatisfied_agents_leave_sooner(
    less: float, more: float, low: float, high: float
) -> None:
    less, more = sorted((less, more))
    low, high = sorted((low, high))
    rested = exit_probability(np.array([less]), np.array([high]))[0]
    worn = exit_probability(np.array([more]), np.array([low]))[0]
    assert 0 < rested <= worn < 1


def test_exit_probability_of_the_worked_example() -> None:
    page = [LIKED, LIKED, SKIPPED, SKIPPED]
    content = satisfaction(page_shares(views((1, False, page), (2, False, page)), 3), 0.5)
    assert content == 0.5
    # B = 4 at page 2: F = 1/2, and -2.5 + 3 / 2 - 3 (0.5 - 0.35) = -1.45.
    chance = exit_probability(np.array([2 / 4]), np.array([content]))
    assert chance == pytest.approx(expit(-1.45))
    assert chance[0] == pytest.approx(0.190, abs=5e-4)


def test_interview_is_near_both_papers_tables() -> None:
    # P_like and S_sat of Agent4Rec, Table 2, and SimUSER, Table 3.
    published = [
        (0.269, 2.93), (0.360, 3.42), (0.462, 3.80), (0.452, 3.75), (0.465, 3.85),
        (0.248, 2.70), (0.379, 3.35), (0.446, 3.67), (0.458, 3.82), (0.451, 3.97),
    ]  # fmt: skip
    assert max(abs(1 + 6 * p - s) for p, s in published) < 0.33


def test_interview_scores_keep_their_mean(world: AgentWorld) -> None:
    made = rules(world)
    asked = [
        question
        for seed in range(200)
        for question in sample_questions(world, range(len(world)), "interview", seed=seed)
    ]
    scores = [reply.score for reply in made.interview(asked)]
    # One of four items was rated 4: 1 + 6 / 4 = 2.5. 6,000 draws: three standard errors are 0.02.
    assert set(scores) == {2, 3}
    assert np.mean(scores) == pytest.approx(2.5, abs=0.02)


def test_habits_shift_watching_by_their_logits(world: AgentWorld) -> None:
    lively = rules(world, activity="high", pickiness="not_picky")
    # +0.7 for high activity and +0.5 for not picky; small_release has everybody medium and
    # extremely picky.
    np.testing.assert_allclose(lively._habits - rules(world)._habits, 0.7 + 1.0)
    assert lively._budget.tolist() == [6] * len(world)
    assert rules(world)._budget.tolist() == [4] * len(world)


def test_active_agents_stay_longer(world: AgentWorld) -> None:
    """The same pages tire an agent of low activity sooner, and it leaves more often."""
    left = {}
    for activity in ("low", "medium", "high"):
        made = rules(world, activity=activity)
        asked = [
            question
            for seed in range(40)
            for question in sample_questions(world, range(30), "decide", seed=seed)
        ]
        left[activity] = np.mean([reply.action == "EXIT" for reply in made.decide(asked)])
    assert left["low"] > left["medium"] > left["high"]


def test_unsure_item_is_clicked(world: AgentWorld) -> None:
    (question,) = sample_questions(world, [0], "decide")
    view = question.visit.views[0]
    view.opinions = {place: Opinion(False, chance=c) for place, c in enumerate((0.5, 0.44, 0.46))}
    decided = rules(world).decide([replace(question, clickable=(1, 2))])[0]
    assert (decided.action, decided.target) == ("CLICK", 2)


def test_agent_goes_back_to_what_it_nearly_watched(world: AgentWorld) -> None:
    """After a page without a like, once, and only for an item with a chance of at least 1/2."""
    made = rules(world)
    for chance, back in ((0.7, True), (0.3, False)):
        (question,) = sample_questions(world, [0], "decide", page=2)
        question.visit.views[:] = views(
            (1, False, [Opinion(False, chance=chance)]), (2, False, [SKIPPED])
        )
        asked = replace(question, actions=("NEXT", "PREVIOUS", "EXIT"), clickable=())
        assert made._returns(asked, 0.0) is back
        assert not made._returns(asked, 0.25)
        question.visit.views += views((1, False, [SKIPPED]), (2, False, [SKIPPED]))
        assert not made._returns(asked, 0.0)


def test_emotions_in_their_order(world: AgentWorld) -> None:
    made = rules(world)
    (asked,) = sample_questions(world, [0], "decide")

    def emotion(x: float, fatigue: float) -> Any:
        return made._emotion(asked, x, fatigue)

    assert emotion(0.0, 1.0) == "OVERWHELMED"
    assert emotion(0.0, 0.9) == "FRUSTRATED"
    assert emotion(0.5, 0.9) == "EXCITED"
    # All agents have seen the genres of the first four films.
    assert emotion(0.25, 0.9) == "NEUTRAL"
    made._unknown = np.ones_like(made._unknown)
    assert emotion(0.25, 0.9) == "CURIOUS"
