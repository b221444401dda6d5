"""The statistics and the finite-sample bounds behind the checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.quality._stats import (
    ALPHA,
    concentration_bound,
    gini,
    share_allowance,
    total_variation,
    tv_allowance,
)

COUNTS = st.lists(st.integers(0, 10_000), min_size=1, max_size=50)
HISTOGRAM = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 1000), min_size=1)


def test_gini_of_a_hand_worked_list() -> None:
    # 1, 2, 3, 4: 2 * (1 + 4 + 9 + 16) / (4 * 10) - 5 / 4 = 0.25
    assert gini([3, 1, 4, 2]) == pytest.approx(0.25)
    assert gini([]) == gini([0, 0]) == 0.0


@settings(deadline=None)
@given(COUNTS, st.integers(1, 100))
def test_gini_is_a_share_and_knows_no_unit(counts: list[int], factor: int) -> None:
    value = gini(counts)
    assert -1e-9 <= value < 1
    assert gini([c * factor for c in counts]) == pytest.approx(value, abs=1e-9)
    assert gini(counts[::-1]) == pytest.approx(value, abs=1e-9)


@settings(deadline=None)
@given(HISTOGRAM, HISTOGRAM, HISTOGRAM)
def test_total_variation_is_a_distance(
    a: dict[str, int], b: dict[str, int], c: dict[str, int]
) -> None:
    assert total_variation(a, a) == 0
    assert 0 <= total_variation(a, b) <= 1 + 1e-12
    assert total_variation(a, b) == pytest.approx(total_variation(b, a))
    assert total_variation(a, c) <= total_variation(a, b) + total_variation(b, c) + 1e-12
    assert total_variation({k: 3 * v for k, v in a.items()}, a) == pytest.approx(0, abs=1e-12)


def test_total_variation_of_disjoint_and_empty_histograms() -> None:
    assert total_variation({"a": 1}, {"b": 5}) == 1
    assert total_variation({}, {"b": 5}) == 1
    assert total_variation({}, {}) == 0


def test_allowance_is_what_the_formula_says() -> None:
    shares, n = [0.5, 0.3, 0.2], 400
    expected = 0.5 * sum(math.sqrt(p * (1 - p) / n) for p in shares)
    assert tv_allowance(shares, n) == pytest.approx(
        expected + math.sqrt(math.log(1 / ALPHA) / (2 * n))
    )
    assert tv_allowance(shares, 0) == 1


@pytest.mark.parametrize("n", [20, 200, 2000])
def test_correct_samples_stay_within_the_allowances(n: int) -> None:
    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.ones(13))
    draws = rng.multinomial(n, shares, size=1000)
    distance = 0.5 * np.abs(draws / n - shares).sum(axis=1)
    assert (distance > tv_allowance(list(shares), n)).sum() == 0
    names = rng.multinomial(n, np.full(100, 0.01), size=1000).max(axis=1) / n
    assert (names > concentration_bound(n, 0.01)).sum() == 0
    off = np.abs(draws / n - shares).max(axis=1)
    assert (off > share_allowance(n, 13)).sum() == 0


def test_allowances_shrink_towards_nothing() -> None:
    bounds = [tv_allowance([0.5, 0.5], n) for n in (10, 100, 1000, 10**6)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 0.003
    assert concentration_bound(10**7, 0.01) == pytest.approx(0.01, rel=0.02)


def test_suber_s_johns_are_refused_at_its_size() -> None:
    # 134 of 600 personas.
    assert concentration_bound(600, 0.01) < 134 / 600
    assert concentration_bound(600, 0.01) < 0.05
