"""Held-out items told from unseen ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pipelines.errors import ConfigError
from pipelines.llm.engines import Answer, Request
from sim import Release
from sim.agents import AgentWorld
from sim.environment import split_rows
from sim.experiments import ExperimentContext, paper_rows
from sim.experiments._believability import (
    NEGATIVES,
    auc_of,
    best,
    draw_tasks,
    outcome_frame,
    outcomes,
)
from tests.sim.agents.test_model_brain import by_question, yes
from tests.sim.experiments.scripted import Prepared, Studies

SMALL = {"items": 4, "nearest": 3}


@pytest.fixture(scope="module")
def world(matched: Release) -> AgentWorld:
    return AgentWorld.open(matched)


def test_hand_worked_confusion_gives_the_figures() -> None:
    """Seven of ten positive items are accepted, and two of ten others."""
    positive = np.arange(20) < 10
    accepted = np.isin(np.arange(20), [*range(7), 10, 11])
    figures = outcomes(accepted[None], positive[None])
    assert list(figures) == ["accuracy", "precision", "recall", "f1"]
    assert np.concatenate(list(figures.values())).round(4).tolist() == [0.75, 0.7778, 0.7, 0.7368]


def test_precision_of_nothing_accepted_is_zero() -> None:
    figures = outcomes(np.zeros((1, 11), bool), np.arange(11)[None] < 3)
    assert [figures[name][0] for name in ("precision", "recall", "f1")] == [0.0, 0.0, 0.0]


def test_best_accepts_as_many_as_are_positive() -> None:
    scores = np.array([[0.1, 0.4, 0.3, 0.2], [1.0, 1.0, 1.0, 1.0]])
    found = best(scores, np.array([2, 3]))
    assert found[0].tolist() == [False, True, True, False]
    assert found[1].sum() == 3


def test_equal_scores_have_the_auc_of_chance() -> None:
    scores = np.zeros((2, 4))
    positive = np.array([[True, False, False, False], [True, True, False, False]])
    assert auc_of(scores, positive).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_items_are_held_out_and_negatives_unseen(world: AgentWorld, negatives: str) -> None:
    tasks = draw_tasks(world, 30, 1, negatives, **SMALL)
    assert len(tasks.people) == 30
    ids = np.array(world.catalogue.ids)
    users = world.people["user_id"].to_list()
    test = set(split_rows(world.release, ("test",)).select("user_id", "item_id").iter_rows())
    seen = set(world.release["interactions"].polars(["user_id", "item_id"]).iter_rows())
    for person, items, positive in zip(tasks.people, tasks.items, tasks.positive, strict=True):
        assert len(set(items.tolist())) == 4
        pairs = [(users[person], i) for i in ids[items]]
        assert [p in test for p in pairs] == positive.tolist()
        assert sum(p in seen for p in pairs) == positive.sum() == 1
    # Positives stand anywhere: the place of an item tells nothing.
    assert set(tasks.positive.argmax(axis=1).tolist()) == {0, 1, 2, 3}


def test_matched_negatives_are_the_nearest_in_rank(world: AgentWorld) -> None:
    # With one candidate each, negatives are the three unseen items nearest in training rank.
    tasks = draw_tasks(world, 30, 1, "popularity-matched", items=4, nearest=1)
    trained = world.item_histograms.sum(axis=1)
    rank = np.empty(24, int)
    rank[sorted(range(24), key=lambda i: (-trained[i], i))] = range(24)
    seen = set(world.release["interactions"].polars(["user_id", "item_id"]).iter_rows())
    users, ids = world.people["user_id"].to_list(), world.catalogue.ids
    for person, items, positive in zip(tasks.people, tasks.items, tasks.positive, strict=True):
        free = [i for i in range(24) if (users[person], ids[i]) not in seen]
        centre = rank[items[positive][0]]
        nearest = sorted(free, key=lambda i: (abs(rank[i] - centre), rank[i] > centre))[:3]
        assert sorted(items[~positive].tolist()) == sorted(nearest)


def test_items_of_a_person_don_t_depend_on_others(world: AgentWorld) -> None:
    whole = draw_tasks(world, 30, 1, "popularity-matched", **SMALL, seed=4)
    few = draw_tasks(world, 7, 1, "popularity-matched", **SMALL, seed=4)
    assert few.items.tolist() == whole.items[:7].tolist()
    other = draw_tasks(world, 30, 1, "popularity-matched", **SMALL, seed=5)
    assert other.items.tolist() != whole.items.tolist()


def test_person_without_an_answer_is_in_no_figure(world: AgentWorld) -> None:
    tasks = draw_tasks(world, 5, 1, "uniform", **SMALL)
    scores = np.full((5, 4), 0.7)
    scores[2, 1] = np.nan
    frame = outcome_frame(world, tasks, scores).filter(rule="p from 0.5 on")
    assert frame.height == 4
    assert frame["recall"].to_list() == [1.0] * 4
    assert frame["accuracy"].to_list() == [0.25] * 4


def test_always_accepts_everything(studies: Studies) -> None:
    rows = [r for r in studies("believability").rows if r.labels["classifier"] == "always"]
    assert len(rows) == 2
    for row in rows:
        assert row.figures["recall"].value == 1.0
        assert row.figures["precision"].value == row.figures["accuracy"].value == 0.25
        assert row.figures["auc"].value == 0.5


def test_ratios_without_a_negative_are_refused(
    context: ExperimentContext, prepared: Prepared
) -> None:
    with pytest.raises(ConfigError, match="positives"):
        prepared("believability", positives=(4,)).run(context)


def test_rows_of_the_papers_are_those_of_table_1() -> None:
    rows = {(r.labels["paper"], r.labels["classifier"], r.labels["ratio"]): r.figures
            for r in paper_rows("believability")}  # fmt: skip
    assert rows["Agent4Rec, Table 1", "Agent4Rec", "1:1"]["accuracy"] == 0.6912
    assert rows["SimUSER, Table 1", "SimUSER", "1:9"]["f1"] == 0.4794


def test_probabilities_of_a_model_are_classified(
    scripted: Callable[..., ExperimentContext], prepared: Prepared
) -> None:
    made = scripted(by_question(like=yes(0.75)))
    found = prepared("believability").run(made)
    rows = [r for r in found.rows if r.labels["classifier"] == "model"]
    assert {(r.source, r.n) for r in rows} == {("model", 6)}
    accepted = [r for r in rows if r.labels["rule"] == "p from 0.5 on"]
    # Every item has the assumed share: none is accepted, and none is ahead of another.
    assert [r.figures["recall"].value for r in accepted] == [0.0, 0.0]
    assert [r.figures["auc"].value for r in accepted] == [0.5, 0.5]


def test_failed_answers_are_counted_and_in_no_figure(
    scripted: Callable[..., ExperimentContext], prepared: Prepared
) -> None:
    refused = Answer(Request(), "refused", detail="no")
    found = prepared("believability").run(scripted(by_question(like=refused)))
    (row, *_) = [r for r in found.rows if r.labels["classifier"] == "model"]
    assert row.n == 0
    assert set(row.figures.values()) == {None}
    assert found.counts["failed, model, uniform, 1"] == 6
