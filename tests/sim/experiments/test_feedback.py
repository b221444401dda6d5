"""Controls of feedback: as many items, of nobody's own choice."""

from __future__ import annotations

import numpy as np

from sim.experiments._data import drawn, shuffled


def test_as_many_are_drawn_as_counted() -> None:
    candidates = np.random.default_rng(0).uniform(size=(6, 40)) < 0.5
    counts = np.array([0, 1, 5, 10, 3, 40])
    found = drawn(candidates, counts, seed=1)
    assert not (found & ~candidates).any()
    assert found.sum(axis=1).tolist() == np.minimum(counts, candidates.sum(axis=1)).tolist()


def test_every_candidate_is_equally_likely() -> None:
    candidates = np.tile(np.array([True, False, True, True, True]), (4_000, 1))
    shares = drawn(candidates, np.full(4_000, 2), seed=2).mean(axis=0)
    assert shares[1] == 0
    assert np.abs(shares[[0, 2, 3, 4]] - 0.5).max() < 0.03


def test_shuffled_feedback_is_everybody_elses() -> None:
    own = np.eye(7, dtype=np.bool_)
    moved = shuffled(own, [f"persona:{n}" for n in range(7)], seed=3)
    assert not (moved & own).any()
    assert moved.sum(axis=0).tolist() == [1] * 7
    assert moved.sum(axis=1).tolist() == [1] * 7
