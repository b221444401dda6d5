"""Distributions are calibrated by what fits held-out ratings best, and left alone if right."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.errors import ContractError
from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.report.calibration import Calibration, fit_calibration

PEOPLE = np.arange(4_000) % 80


def _world(seed: int = 3) -> tuple[Floats, Ints]:
    """True distributions over five answers, and an answer drawn from each."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 1.5), size=len(PEOPLE))
    answers = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    return p, answers


def test_right_distributions_are_left_as_they_are() -> None:
    p, y = _world()
    kept = fit_calibration(p, y, PEOPLE)
    assert kept.kind in ("none", "temperature")
    assert kept.temperature == pytest.approx(1.0, abs=0.1)
    assert kept.nll["none"] - kept.nll[kept.kind] < 0.002
    np.testing.assert_allclose(Calibration("none")(p), p)


def test_overconfidence_is_taken_back_by_its_temperature() -> None:
    p, y = _world()
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    kept = fit_calibration(sharp, y, PEOPLE)
    assert kept.kind == "temperature"
    assert kept.temperature == pytest.approx(3.0, rel=0.1)
    np.testing.assert_allclose(kept(sharp), p, atol=0.05)
    assert kept.nll["temperature"] < kept.nll["none"] - 0.1


def test_ratings_said_too_high_are_taken_back_by_the_isotonic_map() -> None:
    p, y = _world()
    # P(rating <= k) is said as its square: all ratings too high, at every threshold.
    high = np.diff(p.cumsum(axis=1) ** 2, prepend=0.0, axis=1)
    kept = fit_calibration(high, y, PEOPLE)
    assert kept.kind == "isotonic"
    assert kept.nll["isotonic"] < min(kept.nll["none"], kept.nll["temperature"]) - 0.02
    out = kept(high)
    np.testing.assert_allclose(out.sum(axis=1), 1.0)
    assert out.min() > 0
    answers = np.arange(1, 6)
    assert (out @ answers).mean() == pytest.approx((y + 1).mean(), abs=0.02)
    assert (high @ answers).mean() > (y + 1).mean() + 0.3


def test_folds_are_whole_users() -> None:
    p, y = _world()
    with pytest.raises(ContractError, match="ratings of 5 users at least: 4 users"):
        fit_calibration(p, y, PEOPLE % 4)


def test_a_rater_that_knows_nothing_leaves_the_word_to_the_baseline() -> None:
    rng = np.random.default_rng(5)
    known = rng.normal(size=len(PEOPLE))
    y = np.clip(np.rint(2 + known + rng.normal(scale=0.6, size=len(PEOPLE))), 0, 4).astype(int)
    p = rng.dirichlet(np.full(5, 1.5), size=len(PEOPLE))
    kept = fit_calibration(p, y, PEOPLE, known)
    assert kept.kind == "baseline"
    assert kept.metadata()["weights"][0] == pytest.approx(0.0, abs=0.1)
    error = (kept(p, known) @ np.arange(5) - y).std()
    assert error < 0.7 < y.std()
    assert fit_calibration(p, y, PEOPLE).kind != "baseline"
