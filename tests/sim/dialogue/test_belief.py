"""Answer model, belief and the value of asking: worked examples and laws."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from sim.dialogue import (
    NO_PREFERENCE,
    UNMATCHED,
    Action,
    Answer,
    ChoiceSet,
    Dialogue,
    Facet,
    Outcome,
    Turn,
    open_agent,
)
from sim.dialogue._answers import AnswerModel, columns_of
from sim.dialogue._belief import Features, SetBelief, Types
from sim.dialogue._feedback import TONES, stars_of, tone_of, tone_of_text
from sim.dialogue.agents.belief import BaseAgent
from sim.dialogue.testing import sample_world


def shelf(*of: list[int], y: object = ((80.0, 40.0),)) -> ChoiceSet:
    """A set with one facet per list of value numbers."""
    n = len(of[0])
    facets = tuple(
        Facet(f"f{i}", "kind", "?", tuple("abcdef"[: max(v) + 1]), np.array(v, np.int8))
        for i, v in enumerate(of)
    )
    names = tuple(f"p{i}" for i in range(n))
    unknown = np.full(n, np.nan, np.float32)
    empty = np.zeros((n, 0), np.float32)
    scores = np.array(y, np.float32)
    return ChoiceSet("C", "c", "c", names, names, names, unknown, unknown, empty, facets, scores)


def two_types() -> SetBelief:
    """The issue's example: one facet with two values and no *no preference*."""
    y = np.array([[90, 10], [20, 80]], np.float32)
    p = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    return SetBelief(y, p, np.array([0, 2]))


UNIFORM = np.array([0.5, 0.5], np.float32)
AFTER_FIRST = np.array([0.9 / 1.1, 0.2 / 1.1], np.float32)


def test_answers_of_two_means_have_the_worked_probabilities() -> None:
    p = AnswerModel().probabilities(shelf([0, 1]), np.array([[80, 40]], np.float32))
    np.testing.assert_allclose(p, [[0.806, 0.015, 0.180]], atol=6e-4)


def test_zero_temperature_takes_the_most_probable_answer() -> None:
    y = np.array([[80, 40], [50, 50], [44, 56]], np.float32)
    p = AnswerModel(tau=0).probabilities(shelf([0, 1]), y)
    assert p.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_unfaithful_answers_are_the_others_alike() -> None:
    p = AnswerModel(tau=0, unfaithful=0.3).probabilities(
        shelf([0, 1]), np.array([[80, 40]], np.float32)
    )
    np.testing.assert_allclose(p, [[0.7, 0.15, 0.15]], atol=1e-6)


def test_products_without_a_value_or_score_leave_means_alone() -> None:
    found = AnswerModel().probabilities(
        shelf([0, 0, 1, -1]), np.array([[80, np.nan, 40, 7]], np.float32)
    )
    np.testing.assert_allclose(found, [[0.806, 0.015, 0.180]], atol=6e-4)


def test_columns_follow_the_values_of_each_facet() -> None:
    products = shelf([0, 1], [0, 1])
    answers = [(0, 1), (1, NO_PREFERENCE), (0, UNMATCHED), (-1, UNMATCHED), (0, 1)]
    turns = [Turn(Action(), Answer(facet=f, value=v), ("", "")) for f, v in answers]
    assert columns_of(products, turns) == [1, 5]


def test_worked_example_of_asking_and_selling() -> None:
    table = two_types()
    assert table.answered(UNIFORM)[0] == pytest.approx(55)
    assert table.evi(UNIFORM)[0] == pytest.approx(20, abs=1e-4)
    assert table.information_gain(UNIFORM)[0] == pytest.approx(0.2754, abs=5e-5)
    w = table.posterior(np.log(UNIFORM), [0])
    np.testing.assert_allclose(w, [0.8182, 0.1818], atol=5e-5)
    assert table.expected(w, 0)[0] == pytest.approx(10.91, abs=5e-3)


def test_worked_example_carried_to_another_set() -> None:
    other = SetBelief(np.array([[80, 40], [10, 60]], "f4"), two_types().p, np.array([0, 2]))
    np.testing.assert_allclose(other.scores(AFTER_FIRST), [67.3, 43.6], atol=0.05)
    np.testing.assert_allclose(other.scores(UNIFORM), [45, 50])


def belief_after(customer: int, carry: float = 1.0) -> np.ndarray:
    """Weights of two types after an episode with customer 0 that left `AFTER_FIRST`."""
    agent = BaseAgent(carry=carry)
    agent._world = SimpleNamespace(sets=[shelf([0, 1])])  # type: ignore[assignment]
    agent._types = MagicMock(**{"__len__.return_value": 2, "tables.return_value": two_types()})
    first = Dialogue(0, 0, np.arange(2))
    first.turns = [Turn(Action(), Answer(facet=0, value=0), ("", ""))]
    agent.learn(Outcome(first, 0))
    return agent._belief(Dialogue(0, customer, np.arange(2), memory=first.memory))[1]


def test_next_customers_prior_counts_past_customers() -> None:
    np.testing.assert_allclose(belief_after(customer=0), AFTER_FIRST, atol=1e-6)
    np.testing.assert_allclose(belief_after(customer=1), [0.606, 0.394], atol=5e-4)


def test_kept_weights_are_raised_to_the_exponent() -> None:
    # (√0.8182, √0.1818) / sum = (0.9045, 0.4264) / 1.3309
    for carry, expected in ((0.5, [0.6796, 0.3204]), (0.0, UNIFORM), (1.0, AFTER_FIRST)):
        np.testing.assert_allclose(belief_after(0, carry), expected, atol=5e-5)
    with pytest.raises(ConfigError, match=r"carry must be from 0 to 1: agent dp, carry = 1\.5"):
        open_agent("dp", carry=1.5)


def test_equality_of_two_traits_is_worth_asking_only_in_pairs() -> None:
    traits = np.array([(a, b) for a in (0, 1) for b in (0, 1)])
    equal = (traits[:, 0] == traits[:, 1])[:, None]
    y = np.where(np.hstack([equal, ~equal]), 100.0, 0.0).astype(np.float32)
    p = np.hstack([traits == 0, traits == 1])[:, [0, 2, 1, 3]].astype(np.float32)
    table, w = SetBelief(y, p, np.array([0, 2, 4])), np.full(4, 0.25, np.float32)
    free = np.ones(2, np.bool_)
    np.testing.assert_allclose(table.gain(w, cost=0, depth=1, free=free), 0, atol=1e-4)
    np.testing.assert_allclose(table.gain(w, cost=0, depth=2, free=free), 50, atol=1e-4)
    np.testing.assert_allclose(table.gain(w, cost=0.5, depth=2, free=free), 49, atol=1e-4)


def test_six_confidences_count_ties_and_levels() -> None:
    y = np.array([[100, 100, 92, 85, 75, 60, 10]], np.float32)
    table = SetBelief(y, np.ones((1, 1), np.float32), np.array([0, 1]))
    found = np.stack([table.expected(np.ones(1, np.float32), product) for product in range(7)])
    assert found[:, 0].tolist() == [0, 0, 8, 15, 25, 40, 90]
    assert found[:, 1].tolist() == [1, 1, 0, 0, 0, 0, 0]  # top 1
    assert found[:, 2].tolist() == [1, 1, 1, 1, 1, 0, 0]  # top 5
    assert found[:, 3].tolist() == [1, 1, 0, 0, 0, 0, 0]  # regret within 5
    assert found[:, 6].tolist() == [1, 1, 1, 1, 1, 0, 0]  # regret within 30


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_information_is_never_worth_less_than_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = SetBelief(
        rng.uniform(0, 100, (9, 5)).astype("f4"),
        np.hstack([rng.dirichlet(np.ones(w), 9) for w in (3, 2, 4)]).astype("f4"),
        np.array([0, 3, 5, 9]),
    )
    w = rng.dirichlet(np.full(9, 0.3)).astype("f4")
    free = np.ones(3, np.bool_)
    now, after = table.answered(w)
    raw = after - now
    assert (raw > -1e-3).all()
    assert (table.information_gain(w) >= 0).all()
    assert (table.gain(w, cost=0, depth=2, free=free) >= table.evi(w) - 1e-3).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_gain_equals_an_enumeration_of_answers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.uniform(0, 100, (6, 4))
    p = np.hstack([rng.dirichlet(np.ones(w), 6) for w in (3, 2)])
    w = rng.dirichlet(np.ones(6))
    table = SetBelief(y.astype("f4"), p.astype("f4"), np.array([0, 3, 5]))
    won = np.eye(4)[y.argmax(axis=1)]

    def entropy(q: np.ndarray) -> float:
        q = q[q > 0] / q.sum()
        return float(-(q * np.log(q)).sum())

    for facet, columns in enumerate([range(3), range(3, 5)]):
        parts = [w * p[:, c] for c in columns]
        value = sum((part @ y).max() for part in parts) - (w @ y).max()
        gain = entropy(w @ won) - sum(part.sum() * entropy(part @ won) for part in parts)
        belief = w.astype("f4")
        assert table.evi(belief)[facet] == pytest.approx(value, abs=1e-3)
        assert table.information_gain(belief)[facet] == pytest.approx(gain, abs=1e-4)


def test_answers_that_no_type_gives_leave_a_belief() -> None:
    p = np.array([[1, 0], [1, 0]], np.float32)
    table = SetBelief(two_types().y, p, np.array([0, 2]))
    np.testing.assert_allclose(table.posterior(np.log(UNIFORM), [1]), UNIFORM)


def test_stars_and_tones_of_the_worked_scores() -> None:
    assert stars_of([56, 72, 50, 0], [80, 80, 100, 100]).tolist() == [4, 5, 3, 0]
    assert tone_of([0, 0.1, 5, 20, 20.1]).tolist() == [0, 1, 1, 2, 3]
    assert [tone_of_text(t + " More.") for t in TONES] == [0, 1, 2, 3]
    assert tone_of_text("Fine.") == tone_of_text(None) == -1


def test_feedback_updates_weights_by_its_likelihood() -> None:
    # Regrets of the types are 0 and 60, their stars 5 and ⌊1.25 + 0.5⌋ = 1.
    for shown, ratio in (
        ({"regret": 30.0}, 1.0),
        ({"stars": 5}, (0.9 + 0.1 / 6) / (0.1 / 6)),
        ({"text": TONES[0]}, (0.9 + 0.1 / 4) / (0.1 / 4)),
        ({"text": "Thanks."}, 1.0),
        ({}, 1.0),
    ):
        outcome = Outcome(Dialogue(0, 0, np.arange(2)), 0, **shown)  # type: ignore[arg-type]
        w = two_types().learned(UNIFORM, outcome)
        assert w[0] / w[1] == pytest.approx(ratio, rel=1e-4)


def test_types_are_train_personas_and_their_scores_are_given() -> None:
    world = sample_world()
    types = Types(world.disclosed(), AnswerModel(), most=20)
    assert len(types) == 20
    given_y = world.sets[0].y[np.flatnonzero(world.splits == 0)[types.rows]]
    assert (types.tables(0).y == given_y).all()


def test_scores_of_unseen_categories_are_predicted_from_the_products() -> None:
    world = sample_world(sets=30, personas=40, noise=1.0)
    types = Types(world.disclosed(), AnswerModel())
    truth = world.sets[-1].y[np.flatnonzero(world.splits == 0)[types.rows]]
    found = types.scores(len(world.sets) - 1)
    together = [np.corrcoef(a, b)[0, 1] for a, b in zip(found, truth, strict=True)]
    assert np.mean(together) > 0.6
    assert np.isnan(world.disclosed().sets[-1].y).all()


def test_features_of_a_set_are_centred_and_shared() -> None:
    world = sample_world()
    features = Features(world)
    assert np.abs(features(world.sets[3]).mean(axis=0)).max() < 1e-6
    price = [features.column["price", v] for v in ("low", "medium", "high")]
    assert np.abs(features(world.sets[3])[:, price]).sum() > 0
    assert np.abs(features(world.sets[5])[:, price]).sum() > 0
