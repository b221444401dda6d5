"""Regression agent: its observations, and learning without any score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.dialogue import DialogueWorld, Lifetimes, open_agent, open_customer, play
from sim.dialogue._metrics import values_of
from sim.dialogue.agents.linear import observed
from sim.dialogue.testing import reply_of, sample_dialogue


def test_an_observation_moves_weight_and_variance_by_the_kalman_gain() -> None:
    # Prior N(0, I), one observation 1 of the first weight with noise 0.5: gain 1 / 1.25.
    x, target = np.array([[1.0, 0.0]]), np.array([1.0])
    mean, root = observed(np.zeros(2), np.zeros((0, 2)), x, target, 0.5)
    np.testing.assert_allclose(mean, [0.8, 0])
    np.testing.assert_allclose(np.eye(2) - root.T @ root, [[0.2, 0], [0, 1]])


def test_observations_in_turn_are_those_at_once() -> None:
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(3, 6)), rng.normal(size=3)
    together, root = observed(np.zeros(6), np.zeros((0, 6)), x, target, 0.5)
    mean, parts = np.zeros(6), np.zeros((0, 6))
    for n in range(3):
        mean, parts = observed(mean, parts, x[[n]], target[[n]], 0.5)
    np.testing.assert_allclose(mean, together)
    np.testing.assert_allclose(parts.T @ parts, root.T @ root)
    # By the textbook: (I + XᵀX/σ²)⁻¹ and its product with Xᵀy/σ².
    cov = np.linalg.inv(np.eye(6) + 4 * x.T @ x)
    np.testing.assert_allclose(np.eye(6) - root.T @ root, cov)
    np.testing.assert_allclose(together, cov @ (4 * x.T @ target))


def test_scores_are_never_read(world: DialogueWorld) -> None:
    other = replace(world, sets=tuple(replace(s, y=100 - s.y) for s in world.sets))
    actions = []
    for shown in (world, other):
        agent = open_agent("linear")
        agent.open(shown.disclosed(), 0)
        actions.append(reply_of(agent.act(sample_dialogue(world, turns=2))))
    assert actions[0] == actions[1]


@pytest.mark.parametrize("questions", [None, 3])
def test_answers_close_part_of_the_gap_to_random(
    world: DialogueWorld, questions: int | None
) -> None:
    life = Lifetimes.draw(world, range(30), episodes=5)
    agent = open_agent("linear", questions=questions)
    found = play(world, life, agent, open_customer("statistical"))
    assert values_of(found.episodes, "normalised_regret").overall().high < 0.8
