"""Scales and conversion, worked by hand; randomness that belongs to rows."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.scales import SCALES, rescale, scale_named, to_answers
from pipelines.seeding import combine, hash_ids, hash_text, uniform

STARS, ONE_FIVE, ONE_TEN, ZERO_NINE = (SCALES[n] for n in ("0.5-5", "1-5", "1-10", "0-9"))
names = st.sampled_from(sorted(SCALES))


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (0.5, STARS, ONE_TEN, 1.0),
        (4.5, STARS, ONE_TEN, 9.0),
        (5.0, STARS, ZERO_NINE, 9.0),
        (3.0, STARS, ZERO_NINE, 5.0),
        (4.0, STARS, ONE_FIVE, 1 + 3.5 / 4.5 * 4),
        (3.0, ONE_FIVE, STARS, 2.75),
        (7.0, ONE_TEN, ONE_TEN, 7.0),
    ],
)
def test_conversion_takes_ends_to_ends(value, source, target, expected):
    assert rescale(value, source, target) == pytest.approx(expected)


@given(a=names, b=names, where=st.floats(0, 1))
def test_conversion_there_and_back_changes_nothing(a, b, where):
    source, target = SCALES[a], SCALES[b]
    value = source.low + where * (source.high - source.low)
    assert rescale(rescale(value, source, target), target, source) == pytest.approx(value)
    assert target.low - 1e-9 <= rescale(value, source, target) <= target.high + 1e-9


def test_half_stars_become_answers_of_five_with_ties_up():
    stars = np.arange(0.5, 5.5, 0.5)
    # (x - 0.5) / 4.5 * 4 + 1: 1, 1.44, 1.89, 2.33, 2.78, 3.22, 3.67, 4.11, 4.56, 5
    assert to_answers(stars, STARS, ONE_FIVE).tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert to_answers(stars, STARS, ONE_TEN).tolist() == list(range(1, 11))
    assert to_answers([2.5], ONE_FIVE, ONE_FIVE).tolist() == [3.0]


def test_ratings_beyond_the_scale_are_taken_to_its_ends():
    assert to_answers([-3, 99], STARS, ZERO_NINE).tolist() == [0, 9]


def test_arrays_numbers_and_polars_expressions_convert_alike():
    values = [0.5, 2.0, 5.0]
    by_array = rescale(np.array(values), STARS, ONE_TEN)
    frame = pl.DataFrame({"x": values}).select(rescale(pl.col("x"), STARS, ONE_TEN))
    assert frame["x"].to_list() == by_array.tolist() == [1.0, 4.0, 10.0]


def test_answers_are_listed_ascending():
    assert STARS.answers.tolist() == [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]
    assert len(ONE_TEN) == len(ZERO_NINE) == 10
    assert ZERO_NINE.covers([-0.1, 0, 9, 9.1]).tolist() == [False, True, True, False]


def test_an_unknown_scale_names_the_known_ones():
    with pytest.raises(ConfigError, match="1-10"):
        scale_named("1-100")


def test_hashes_are_what_they_were():
    # Stored samples depend on these numbers: a change needs new code versions.
    assert hash_text("ml:862") == int(hash_ids(["ml:862"])[0]) == 16231152942638314169
    assert int(combine(1, 2)) == 15671754871817308195
    assert int(combine(2, 1)) != int(combine(1, 2))


@given(seed=st.integers(0, 2**63), n=st.integers(1, 50))
def test_draws_lie_in_the_unit_interval_and_broadcast(seed, n):
    grid = uniform(seed, np.arange(n)[:, None], np.arange(3))
    assert grid.shape == (n, 3)
    assert ((grid >= 0) & (grid < 1)).all()
    assert grid[n - 1, 2] == uniform(seed, n - 1, 2)


def test_draws_are_spread_evenly():
    draws = uniform(3, np.arange(100_000))
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    # Chi-square with 19 degrees of freedom: 43.8 is exceeded once in a thousand.
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.015
