"""DirectLiNGAM on known graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sim.experiments import ExperimentContext
from sim.experiments._causal import (
    diagnose,
    discover,
    edges,
    item_values,
)
from tests.sim.experiments.scripted import Studies


def test_items_have_the_values_of_the_visits(context: ExperimentContext) -> None:
    world, run = context.world(), context.visits("always", "random")
    values = item_values(world, run, 1)
    # The brain watches whatever it is shown and rates it with one rating.
    views = run.table("views").select("agent", "item_id").unique().collect()
    assert values[:, 2].sum() * 30 == pytest.approx(views.height)
    assert (values[:, 2] == values[:, 3]).all()
    assert np.ptp(values[:, 4]) == 0
    rated = world.item_histograms.sum(axis=1)
    assert np.isin(values[:, 1], np.log1p(rated)).all()


def test_random_ratings_have_no_claimed_cause(studies: Studies) -> None:
    found = studies("causal")
    into = [r for r in found.rows if r.labels["edge"].endswith("-> rating")]
    random = [r for r in into if r.labels["brain"] == "random"]
    assert not any(r.figures["claimed"] for r in random)


def chain(noise: Callable[..., Any], n: int = 1_000) -> Any:
    """x, y = 2x + e and z = -1.5y + 0.5x + e."""
    x, e, f = noise(size=n), noise(size=n), noise(size=n)
    y = 2 * x + e
    return np.stack([x, y, -1.5 * y + 0.5 * x + f], axis=1)


def test_uniform_noise_gives_order_and_weights() -> None:
    graph = discover(chain(np.random.default_rng(0).uniform))
    assert graph.order == (0, 1, 2)
    assert graph.weights == pytest.approx(np.array([[0, 0, 0], [2, 0, 0], [0.5, -1.5, 0]]), abs=0.1)


def test_uniform_noise_claims_all_three_edges() -> None:
    _, found, diagnosis = edges(chain(np.random.default_rng(1).uniform), resamples=40)
    assert diagnosis.identified
    assert diagnosis.dependent > 0.05
    claimed = found.filter("claimed")
    assert set(claimed.select("source", "target").rows()) == {(0, 1), (0, 2), (1, 2)}
    assert claimed["weight"].is_between(claimed["low"], claimed["high"]).all()


@pytest.mark.parametrize("seed", range(3))
def test_normal_noise_claims_no_direction(seed: int) -> None:
    _, found, diagnosis = edges(chain(np.random.default_rng(seed).normal), resamples=20)
    assert not diagnosis.identified
    assert found.height
    assert not found["claimed"].any()


def test_one_normal_residual_still_identifies() -> None:
    rng = np.random.default_rng(2)
    x, e, f = rng.uniform(size=1_000), rng.uniform(size=1_000), rng.normal(size=1_000)
    values = np.stack([x, x + e, x + f], axis=1)
    assert diagnose(values, discover(values)).identified


def test_dependent_residuals_claim_no_direction() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, size=600)
    values = np.stack([x, x**2 + 0.1 * rng.uniform(size=600), rng.uniform(size=600)], axis=1)
    tested = diagnose(values, discover(values))
    assert tested.dependent < 0.01
    assert tested.identified
    assert not tested.holds
