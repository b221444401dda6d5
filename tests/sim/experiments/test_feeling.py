"""Ratings beside the sentiment of what agents say."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from sim.experiments import ExperimentContext
from sim.experiments._feeling import _shares, feeling, rank_correlation, valence_of
from sim.experiments.testing import fresh
from tests.sim.experiments.scripted import Studies, asking_a_model


def test_a_brain_without_words_has_no_correlation(studies: Studies) -> None:
    (row,) = [r for r in studies("feeling").rows if r.title == "random"]
    assert set(row.figures.values()) == {None}
    assert row.n == 0


def test_valence_is_vaders_compound_score() -> None:
    texts = pl.Series(["I loved it.", "I hated it.", "It is a film.", "I loved it."])
    good, bad, flat, again = valence_of(texts)
    assert good == again > 0.5
    assert bad < -0.5
    assert flat == 0.0


def test_ranks_of_ties_are_means() -> None:
    left = np.array([1.0, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0])
    right = np.array([0.2, -0.1, 0.2, 0.0, 0.9, 0.9, 0.4])
    found = rank_correlation(left, right, np.arange(7))
    assert found is not None
    assert found.value == pytest.approx(spearmanr(left, right).statistic)


def test_intervals_draw_whole_people() -> None:
    """Two people: one rises, one falls; drawn alone the correlation is 1 or -1."""
    left = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    right = np.array([0.1, 0.2, 0.3, 0.3, 0.2, 0.1])
    found = rank_correlation(left, right, np.array([0, 0, 0, 1, 1, 1]))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.0, -1.0, 1.0))


def test_texts_that_never_change_have_no_correlation() -> None:
    assert rank_correlation(np.array([1.0, 2.0]), np.array([0.5, 0.5]), np.arange(2)) is None


def test_a_model_that_always_says_the_same_has_none(context: ExperimentContext) -> None:
    modelled = asking_a_model(fresh(context), rating=2, feeling="I hated it.")
    found = feeling.configure(min_people=2).run(modelled)
    (row,) = [r for r in found.rows if r.title == "model"]
    assert row.source == "model"
    assert row.figures["rho"] is None
    assert row.figures["liked"] is None
    # "I did not like it because I hated it."
    assert row.figures["disliked"].value == pytest.approx(-0.7438)


def test_people_share_the_correlation() -> None:
    left, right = np.array([1.0, 2.0, 2.0, 5.0]), np.array([0.3, 0.1, 0.4, 0.4])
    found = _shares(left, right, np.array([4, 4, 7, 7]))
    assert found.shape == (2,)
    assert found.sum() == pytest.approx(spearmanr(left, right).statistic)
