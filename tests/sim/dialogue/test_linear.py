"""Regression agent: its observations, and learning without any score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.dialogue import Book, Lifetimes, open_agent, open_customer, play
from sim.dialogue._metrics import values_of
from sim.dialogue._protocol import NO_PREFERENCE, Actions, Outcomes, Views
from sim.dialogue.agents.linear import LinearAgent, _observed, _satisfaction
from sim.dialogue.testing import sample_views


def test_an_observation_moves_weight_and_variance_by_the_kalman_gain() -> None:
    # Prior N(0, I), one observation 1 of the first weight with noise 0.5: gain 1 / 1.25.
    seen, target = np.array([[0]]), np.array([[1.0]])
    mean, root = _observed(np.zeros((1, 2)), np.zeros((1, 0, 2)), seen, target, 0.5)
    np.testing.assert_allclose(mean, [[0.8, 0]])
    np.testing.assert_allclose(np.eye(2) - root[0].T @ root[0], [[0.2, 0], [0, 1]])


def test_observations_in_turn_are_those_at_once() -> None:
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(1, 3, 6)), rng.normal(size=(1, 3))
    whole, root = _observed(np.zeros((1, 6)), np.zeros((1, 0, 6)), x, target, 0.5)
    mean, parts = np.zeros((1, 6)), np.zeros((1, 0, 6))
    for n in range(3):
        mean, fresh = _observed(mean, parts, x[:, [n]], target[:, [n]], 0.5)
        parts = np.concatenate([parts, fresh], axis=1)
    np.testing.assert_allclose(mean, whole)
    np.testing.assert_allclose(parts[0].T @ parts[0], root[0].T @ root[0])
    # By the textbook: (I + XᵀX/σ²)⁻¹ and its product with Xᵀy/σ².
    cov = np.linalg.inv(np.eye(6) + 4 * x[0].T @ x[0])
    np.testing.assert_allclose(np.eye(6) - root[0].T @ root[0], cov)
    np.testing.assert_allclose(whole[0], cov @ (4 * x[0].T @ target[0]))


class OneByOne(LinearAgent):
    """The same agent with a full covariance per lifetime, one dialogue after the other."""

    def open(self, book: Book, seed: int) -> None:
        super().open(book, seed)
        self.kept: dict[int, dict[int, tuple[Any, Any]]] = {}

    def act(self, views: Views) -> Actions:
        found = [self.chosen(views, row) for row in range(len(views))]
        ask, facet, product = (np.array(column) for column in zip(*found, strict=True))
        return Actions(ask=ask, facet=facet, product=views.placed(product))

    def chosen(self, views: Views, row: int) -> tuple[bool, int, int]:
        shelf, (x, columns) = self._book.sets[views.set[row]], self._of(int(views.set[row]))
        mean, cov = self.posterior(views, row)
        product = int(np.round(x @ mean, 6).argmax())
        worst = []
        for n, start in enumerate(shelf.starts):
            own = columns[start : start + shelf.widths[n]]
            variance = max((cov[c, c] for c in own if c >= 0), default=0.0)
            worst.append(-1.0 if n in views.facets[row] else round(variance, 6))
        if views.questions_left[row] == 0 or max(worst) <= self._certain:
            return False, -1, product
        return True, int(np.argmax(worst)), product

    def posterior(self, views: Views, row: int) -> tuple[Any, Any]:
        shelf, (_, columns) = self._book.sets[views.set[row]], self._of(int(views.set[row]))
        mean, cov = self.before(int(views.lifetime[row]), int(views.customer[row]))
        for facet, answer in zip(views.facets[row], views.answers[row], strict=True):
            for value in range(shelf.widths[facet]) if facet >= 0 else ():
                column = columns[shelf.starts[facet] + value]
                if column >= 0 and answer in (value, NO_PREFERENCE):
                    mean, cov = moved(mean, cov, np.eye(len(mean))[column], answer == value, 0.5)
        return mean, cov

    def before(self, lifetime: int, customer: int) -> tuple[Any, Any]:
        width, past = len(self._features), self.kept.get(lifetime, {})
        total = sum((mean for mean, _ in past.values()), np.zeros(width))
        return past.get(customer, (total / (len(past) + 1), np.eye(width)))

    def learn(self, outcomes: Outcomes) -> None:
        views = outcomes.views
        for row, lifetime in enumerate(views.lifetime.tolist()):
            mean, cov = self.posterior(views, row)
            score = _satisfaction(outcomes)[row]
            if not np.isnan(score):
                x = self._of(int(views.set[row]))[0][outcomes.product[row]]
                mean, cov = moved(mean, cov, x, score - 0.5, 0.25)
            self.kept.setdefault(lifetime, {})[int(views.customer[row])] = mean, cov

    def wipe(self, lifetimes: Any) -> None:
        for n in lifetimes.tolist():
            self.kept.pop(n, None)


def moved(mean: Any, cov: Any, x: Any, target: float, noise: float) -> tuple[Any, Any]:
    gain = cov @ x / (x @ cov @ x + noise**2)
    return mean + gain * (target - x @ mean), cov - np.outer(gain, x @ cov)


@pytest.mark.parametrize("setting", ["customer", "both"])
@pytest.mark.parametrize("memory", [True, False])
def test_batches_play_what_single_dialogues_do(book: Book, setting: str, memory: bool) -> None:
    life = Lifetimes.draw(book, range(8), setting=setting, episodes=4)  # type: ignore[arg-type]
    agents = (LinearAgent(), OneByOne())
    batch, single = (
        play(book, life, agent, open_customer("statistical"), memory=memory, feedback="stars")
        for agent in agents
    )
    assert batch.turns is not None
    assert single.turns is not None
    assert batch.turns.drop("run").equals(single.turns.drop("run"))


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
