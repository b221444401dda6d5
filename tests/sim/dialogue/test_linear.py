"""Regression agent: its observations, and learning without any score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.dialogue import Book, Lifetimes, open_agent, open_customer, play
from sim.dialogue._metrics import values_of
from sim.dialogue.agents.linear import LinearAgent, _observe
from sim.dialogue.testing import sample_views


def test_an_observation_moves_weight_and_variance_by_the_kalman_gain() -> None:
    # Prior N(0, I), one observation 1 of the first weight with noise 0.5: gain 1 / 1.25.
    mean, cov = _observe(np.zeros(2), np.eye(2), np.array([[1.0, 0.0]]), np.array([1.0]), 0.5)
    np.testing.assert_allclose(mean, [0.8, 0])
    np.testing.assert_allclose(cov, [[0.2, 0], [0, 1]])


def test_marginals_are_those_of_the_full_posterior() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    mean, cov, seen = rng.normal(size=6), root @ root.T, np.array([1, 4, 1])
    targets = np.array([1.0, 0.0, 1.0])
    full = _observe(mean, cov, np.eye(6)[seen], targets, 0.5)
    found = LinearAgent()._marginals(mean, cov, seen, targets)
    np.testing.assert_allclose(found[0], full[0])
    np.testing.assert_allclose(found[1], full[1].diagonal())


def test_scores_are_never_read(book: Book) -> None:
    other = replace(book, sets=tuple(replace(s, y=100 - s.y) for s in book.sets))
    views, found = sample_views(book, turn=2), []
    for known in (book, other):
        agent = open_agent("linear")
        agent.open(known.disclosed(), 0)
        found.append(agent.act(views))
    assert (found[0].facet == found[1].facet).all()
    assert (found[0].product == found[1].product).all()


@pytest.mark.parametrize("questions", [None, 3])
def test_answers_close_part_of_the_gap_to_random(book: Book, questions: int | None) -> None:
    life = Lifetimes.draw(book, range(30), episodes=5)
    agent = open_agent("linear", questions=questions)
    found = play(book, life, agent, open_customer("statistical"))
    assert values_of(found.episodes, "normalised_regret").overall().high < 0.8
