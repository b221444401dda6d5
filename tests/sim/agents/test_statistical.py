"""The statistical brain: formulas worked by hand, fits on known truths, and nothing of the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from pipelines.errors import ConfigError
from pipelines.raters import bind, persona_rows
from sim import Release, open_release
from sim.agents import AgentWorld, open_brain, visit
from sim.agents._choice import HeldOut, Neighbours, logistic
from sim.agents._statistical import StatisticalBrain, _weight
from sim.agents._world import History, training_history
from sim.agents.testing import sample_questions
from sim.recommenders import open_recommender


@pytest.fixture(scope="module")
def brain(world: AgentWorld) -> StatisticalBrain:
    return open_brain("statistical").open(world)


def test_weights_are_those_of_a_library() -> None:
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(4_000), rng.normal(size=(4_000, 3))])
    truth = np.array([-0.5, 1.0, -2.0, 0.0])
    y = (rng.random(4_000) < expit(x @ truth)).astype(float)
    weights, errors = logistic(x, y)
    # C is the reciprocal of the ridge, and the intercept is not penalised there either.
    library = LogisticRegression(C=1.0, tol=1e-10, max_iter=1_000).fit(x[:, 1:], y)
    np.testing.assert_allclose(weights[1:], library.coef_[0], atol=1e-5)
    assert weights[0] == pytest.approx(library.intercept_[0], abs=1e-5)
    assert (np.abs(weights - truth) < 3.5 * errors).all()


def test_weights_stay_finite_where_classes_are_apart() -> None:
    x = np.column_stack([np.ones(20), np.repeat([-1.0, 1.0], 10)])
    weights, errors = logistic(x, np.repeat([0.0, 1.0], 10))
    assert np.isfinite(weights).all()
    assert np.isfinite(errors).all()
    assert weights[1] > 1


def test_negatives_have_no_known_interaction(world: AgentWorld) -> None:
    users = world.people["user_id"].to_list()
    history = training_history(world.release, users, world.catalogue)
    person = np.arange(len(users))
    rows = world.release["splits"].polars().filter(split="validation")
    held = dict(rows.select("user_id", "item_id").iter_rows())
    item = np.array([world.catalogue.row(held[u]) for u in users])
    found = HeldOut.draw(world, person, item, history)
    assert len(found.people) == len(users)
    for kind in (found.uniform, found.matched):
        for n, negative in zip(found.people.tolist(), kind.tolist(), strict=True):
            assert negative not in history.of(n)[0]
            assert negative != item[n]


def test_nearness_of_the_worked_example() -> None:
    # Films a, b, c, d are rated by users 0 1, 0 1, 1 2 and nobody: cos(a, b) = 1, cos(a, c) =
    # cos(b, c) = 1/2. One person has rated a, another nothing.
    users, items = np.array([0, 1, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2])
    history = History(np.array([0, 1, 1]), np.array([0]), np.array([4.0]))
    near = Neighbours(users, items, 4, history, prior=1.0)
    # e: (2 * 1 + 2 / 2) / 6 = 1/2 for a and b, (2 / 2 + 2 / 2) / 6 = 1/3 for c.
    # m of b: (1 + 1/2) / 2 = 3/4; of c: (1/2 + 1/3) / 2 = 5/12; of a, but for itself: 1/4.
    assert near(0) == pytest.approx(np.log([1 / 2, 3 / 2, 5 / 4, 1.0]))
    assert near(1).tolist() == [0.0] * 4


def test_nearness_depends_on_no_order_of_rows(world: AgentWorld) -> None:
    users, items = world.training
    mixed = np.random.default_rng(0).permutation(len(users))
    size = len(world.catalogue)
    one, other = (
        Neighbours(users[rows], items[rows], size, world.history)(3)
        for rows in (np.arange(len(users)), mixed)
    )
    assert one.tolist() == other.tolist()
    assert np.ptp(one) > 0


def test_mean_watch_share_of_unseen_items_is_the_assumed_one(brain: StatisticalBrain) -> None:
    assert brain.metadata()["watched_of_random_unseen_items"] == pytest.approx(0.30, abs=1e-6)


def test_mixture_weight_has_the_best_likelihood() -> None:
    rng = np.random.default_rng(0)
    # Answers are drawn from 0.7 · own + 0.3 · common over two answers.
    own_p, common_p = rng.random(20_000), rng.random(20_000)
    high = rng.random(20_000) < 0.7 * own_p + 0.3 * common_p
    own, common = (np.where(high, p, 1 - p) for p in (own_p, common_p))
    found = _weight(own, common)
    assert found["weight"] == pytest.approx(0.3, abs=0.03)
    assert found["log_loss"] < found["log_loss_of_the_rater_alone"]
    assert _weight(own[:0], common[:0]) == {"weight": 0.0, "ratings": 0}


@pytest.mark.pipeline
def test_ratings_have_the_mixtures_distribution(
    brain: StatisticalBrain, world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brain, "_weight", np.full(len(world), 0.5))
    asked = [q for seed in range(3_000) for q in sample_questions(world, [0], "judge", seed=seed)]
    first = [reply.opinions[0] for reply in brain.judge(asked)]
    stars = np.array([opinion.rating for opinion in first if opinion.watched])
    shares = np.bincount(stars, minlength=6)[1:] / len(stars)
    rater = brain._choices.settled.rate(np.zeros(1, np.int64), np.zeros(1, np.int64)).probabilities[
        0
    ]
    expected = 0.5 * rater + 0.5 * brain._histograms[0]
    assert np.abs(shares - expected).max() < 3.5 * np.sqrt(0.25 / len(stars))


def test_settled_memories_rate_as_the_rater_does(
    brain: StatisticalBrain, world: AgentWorld
) -> None:
    rater, items = brain._rater(world)
    users = world.people["user_id"].to_list()
    live = bind(rater, persona_rows(users, None), items)
    past_items, past_ratings = world.history.of(3)
    pairs = np.full(24, 3), np.arange(24)
    many = np.tile(past_items, (24, 1)), np.tile(past_ratings, (24, 1))
    whole = live.rate(*pairs, *many).probabilities
    settled = brain._choices.settled.rate(*pairs)
    np.testing.assert_allclose(settled.probabilities, whole, atol=1e-12)
    # The largest effect is the one without which the rating would be lowest.
    effects = brain._choices.settled.effects(np.array([3]), np.array([5]))[0]
    explained = live.explain(3, 5, past_items, past_ratings)
    assert list(explained)[effects.argmax()] == max(explained, key=lambda name: explained[name])


def test_nothing_of_the_test_split_is_read(
    small: ModuleType, tmp_path: Path, world: AgentWorld
) -> None:
    """Other test ratings give the same visits, to the last value."""
    tables = small.frames()
    ratings = tables["movies.interactions"]
    test = tables["movies.splits"].filter(split="test").select("user_id", "item_id")
    changed = ratings.join(
        test.with_columns(other=pl.lit(0.5)), on=["user_id", "item_id"], how="left"
    ).select(
        "user_id", "item_id", pl.coalesce("other", "rating").alias("rating"), "scale", "rated_at"
    )
    assert (changed["rating"] != ratings["rating"]).sum() > 20
    users = world.people["user_id"].sort().to_list()
    first = small.matched_frames(users)
    second = {**first, "movies.interactions": changed}
    found = []
    for name, replaced in (("one", first), ("two", second)):
        small.build(tmp_path / name, replace=replaced)
        opened = AgentWorld.open(open_release("movies", home=tmp_path / name))
        brain = open_brain("statistical").open(opened)
        popular = open_recommender("popular").fit(opened.release)
        found.append(visit(opened, brain, popular, np.arange(30)))
    for name, frame in found[0].items():
        assert frame.equals(found[1][name]), name


def test_personas_without_history_are_fitted_on_people(matched: Release) -> None:
    world = AgentWorld.open(matched, cast="personas")
    brain = open_brain("statistical").open(world)
    facts = brain.metadata()
    assert facts["choice"]["users"] == 40
    popular = open_recommender("popular").fit(matched)
    tables = visit(world, brain, popular, np.arange(12))
    assert tables["agents"]["exit_reason"].to_list().count("failed") == 0
    # Their stated likes are their history of genres.
    assert brain._choices.tastes.sum(axis=1).max() > 0


def test_release_without_held_out_ratings_is_refused(small: ModuleType, tmp_path: Path) -> None:
    tables = small.matched_frames(["ml-user:1"])
    splits = small.frames()["movies.splits"].with_columns(split=pl.lit("train"))
    small.build(tmp_path, replace={**tables, "movies.splits": splits}, without=("graph_triples",))
    world = AgentWorld.open(open_release("movies", home=tmp_path), graph=False)
    with pytest.raises(ConfigError, match="no held-out interaction to fit"):
        open_brain("statistical").open(world)


def test_without_the_graph_similarity_is_nothing(matched: Release) -> None:
    world = AgentWorld.open(matched, graph=False)
    brain = open_brain("statistical").open(world)
    assert brain.metadata()["choice"]["weights"]["similarity"][0] == pytest.approx(0.0)


def test_ratings_of_the_visit_are_learned_from_only_if_asked(
    brain: StatisticalBrain, world: AgentWorld
) -> None:
    learning = StatisticalBrain(learns=True).open(world)
    people = np.arange(3)

    def expected(brain: StatisticalBrain, kind: Any) -> np.ndarray:
        asked = sample_questions(world, people, kind)
        items = tuple(range(4))
        again = [replace(q, kind="judge", items=items, positions=items) for q in asked]
        return np.array([[o.expected for o in r.opinions] for r in brain.judge(again)])

    # No ratings so far: expectations are equal.
    start = expected(brain, "judge")
    np.testing.assert_allclose(expected(learning, "judge"), start, atol=1e-12)
    np.testing.assert_array_equal(expected(brain, "decide"), start)
    history = [world.history.of(n) for n in range(3)]
    longer = [(np.append(items, 0), np.append(stars, 4.0)) for items, stars in history]
    settled = learning._choices.settled.rater.settle(longer, people)
    after = settled.rate(np.repeat(people, 4), np.tile(np.arange(4), 3)).expected.reshape(3, 4)
    assert expected(learning, "decide").tolist() == after.tolist()
    assert np.abs(after - start).max() > 1e-3
    assert learning.metadata()["learns"]
    assert "learns" not in brain.metadata()
