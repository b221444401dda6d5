"""Recommenders ranked by held-out items and by agents' likes."""

from __future__ import annotations

import numpy as np
import pytest

from sim.experiments import ExperimentContext
from sim.experiments._offline import agreement, f1, likes_exchanged, taus
from sim.experiments.testing import fresh
from tests.sim.experiments.scripted import Prepared, Studies, asking_a_model

SYSTEMS = ("random", "popular", "mean-rating", "item-knn", "ease")


def test_people_and_likes_rank_every_system(studies: Studies) -> None:
    rows = studies("offline").rows
    by_test = [r for r in rows if r.labels["relevance"] == "test items"]
    assert tuple(r.labels["recommender"] for r in by_test) == SYSTEMS
    taus = [r for r in rows if "tau_ndcg" in r.figures]
    assert [r.labels["relevance"] for r in taus] == [
        "likes of random", "likes of statistical",
        "likes of statistical, exchanged between people",
    ]  # fmt: skip
    assert {r.n for r in taus} == {5}


def test_f1_is_of_the_listed_and_the_relevant() -> None:
    # Two hits in a list of three that ends early; five relevant: 2 * 2 / (3 + 5).
    hits, lists = np.array([[True, True, False, False]]), np.array([[4, 2, 9, -1]])
    assert f1(hits, np.array([5]), lists).tolist() == [0.5]
    assert np.isnan(f1(hits & False, np.array([0]), lists)).all()


def test_tau_counts_pairs_in_the_same_order() -> None:
    values = np.array([1.0, 2.0, 3.0])
    # One of three pairs turned, then one tied.
    others = np.stack([values, -values, [1.0, 3.0, 2.0], [1.0, 2.0, 2.0]])
    assert taus(np.tile(values, (4, 1)), others) == pytest.approx([1.0, -1.0, 1 / 3, 2 / 3])
    # The turned pair alone, then no pair.
    weights = np.array([[0.0, 1.0, 1.0], [3.0, 0.0, 0.0]])
    turned, none = taus(np.tile(values, (2, 1)), np.tile([1.0, 3.0, 2.0], (2, 1)), weights)
    assert turned == -1.0
    assert np.isnan(none)


def test_equal_orders_have_tau_one_in_every_draw() -> None:
    values = np.tile(np.arange(8.0)[None, :, None], (2, 1, 12))
    for found in agreement(values, 2 * values):
        assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)


def test_three_systems_leave_the_order_open() -> None:
    """With one pair turned the interval holds every order; with twelve systems it does not."""
    few = np.array([0.2, 0.3, 0.4])
    turned = np.array([0.2, 0.4, 0.3])
    wide = agreement(*(np.tile(v[None, :, None], (1, 1, 9)) for v in (few, turned)))[0]
    assert (wide.low, wide.high) == (-1.0, 1.0)
    many = np.arange(12.0)
    near = many.copy()
    near[[3, 4]] = near[[4, 3]]
    narrow = agreement(*(np.tile(v[None, :, None], (1, 1, 9)) for v in (many, near)))[0]
    assert narrow.low > 0.7


def test_people_without_likes_weigh_on_neither_side() -> None:
    left = np.array([[[1.0, np.nan, 1.0], [2.0, np.nan, 2.0]]])
    assert agreement(left, left)[0].value == 1.0


def test_nobody_keeps_its_own_likes() -> None:
    likes = np.eye(6, dtype=bool)
    likes[5] = False
    found = likes_exchanged(likes, seed=1)
    assert not (found & likes).any()
    assert found.sum() == likes.sum()
    assert not found[5].any()


@pytest.mark.pipeline
def test_a_model_likes_what_it_rates_high(context: ExperimentContext, prepared: Prepared) -> None:
    for rating, liked in ((4, True), (3, False)):
        modelled = asking_a_model(fresh(context), rating=rating, agents=12)
        found = prepared("offline", min_people=2).run(modelled)
        own = [r for r in found.rows if r.labels["relevance"] == "likes of model"]
        if not liked:
            (row,) = own
            assert set(row.figures.values()) == {None}
            assert "0 people with a relevant item, at least 2 are needed" in row.note
            continue
        rows = [r for r in own if "ndcg" in r.figures]
        assert len(rows) == 5
        # It watches the assumed share of what it would watch alike, and likes all of that.
        assert all(2 <= (r.n or 0) <= 12 for r in rows)
