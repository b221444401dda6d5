"""Figures of a population, by hand on small arrays."""

import numpy as np
import pytest

from pipelines.raters.report import (
    Lists,
    headroom_by_person,
    ks_distance,
    liked_gap,
    moments,
    split_half,
    taste_shares,
    variance_shares,
)


def test_variance_shares_of_a_table_by_hand():
    # Persons 0 and 2 apart, items 1 and -1 apart, an interaction of half a point.
    table = np.array([[5.5, 2.5], [6.5, 5.5]])
    found = variance_shares(table, np.full((2, 2), 2.75))
    assert (found.person, found.item, found.interaction, found.noise) == pytest.approx(
        np.array([1.0, 1.0, 0.25, 2.75]) / 5.0
    )


def test_shuffling_persons_takes_the_interaction_away():
    rng = np.random.default_rng(0)
    table = rng.normal(0, 1, (80, 60))
    mixed = np.take_along_axis(table, np.argsort(rng.random((80, 60)), axis=0), axis=0)
    one = variance_shares(table, np.zeros_like(table)).interaction
    assert one > 0.95
    # Two raters' tables of the same persons share their interaction, shuffled ones do not.
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    other = mixed - mixed.mean(0) - mixed.mean(1, keepdims=True) + mixed.mean()
    assert abs((rest * other).mean()) < 0.05 < (rest * rest).mean()


def test_headroom_by_hand():
    found = headroom_by_person(np.array([[9.0, 1.0, 5.0], [1.0, 9.0, 6.0]]), size=1)
    assert found.mean(axis=0) == pytest.approx([9.0, 5.5, 31 / 6])


def test_gap_leaves_items_of_both_out():
    genres = np.array([[1, 0], [0, 1], [1, 1]])
    rating = np.array([8.0, 4.0, 1.0, 6.0, 6.0, 1.0])
    lists = Lists.of(np.repeat([0, 1], 3), np.tile([0, 1, 2], 2), rating)
    gap, items = liked_gap(lists, np.array([[1, 0], [0, 0]]), np.array([[0, 1], [0, 0]]), genres)
    assert (gap.value, items.value) == (4.0, 2.0)
    assert np.isnan(liked_gap(lists, np.zeros((2, 2)), np.zeros((2, 2)), genres)[0].value)


def test_split_half_covariance_finds_planted_tastes():
    rng = np.random.default_rng(1)
    genres = np.eye(2)[np.arange(60) % 2]
    taste = rng.normal(0, 1, 900)
    user = np.repeat(np.arange(900), 40)
    item = rng.integers(0, 60, len(user))
    signs = np.where(genres[item, 0] > 0, 1.0, -1.0)
    rating = 6 + taste[user] * signs + rng.normal(0, 1, len(user))
    # A genre's deviation is plus or minus the taste: variance 1.
    found = split_half(Lists.of(user, item, rating), genres)
    assert found.value == pytest.approx(1.0, abs=0.2)
    nothing = split_half(Lists.of(user, item, rng.normal(0, 1, len(user))), genres)
    # Taking off a user's own mean of 40 ratings costs a fortieth of their variance.
    assert abs(nothing.value) < 0.05


def test_user_moments_and_distance_by_hand():
    user = np.repeat([0, 1], [12, 3])
    rating = np.array([1.0, 3.0] * 6 + [5.0, 5.0, 5.0])
    found = moments(Lists.of(user, np.arange(15), rating, draws=0))
    assert found["mean"][0].tolist() == [2.0]
    assert found["spread"][0].tolist() == pytest.approx([np.sqrt(12 / 11)])
    assert ks_distance(np.array([1.0, 3.0]), np.array([2.0, 4.0])) == 0.5


def planted_lists(share: float, people: int = 400, seed: int = 5) -> tuple[Lists, np.ndarray]:
    """Lists of 50 of 120 items whose taste is `share` of the variance of ratings."""
    rng = np.random.default_rng(seed)
    features = np.column_stack([np.ones(120), rng.normal(0, 1, (120, 3))])
    taste = rng.normal(0, np.sqrt(share / 3), (people, 4))
    taste[:, 0] = rng.normal(0, np.sqrt(0.2), people)
    user = np.repeat(np.arange(people), 50)
    item = np.concatenate([rng.choice(120, 50, replace=False) for _ in range(people)])
    quality = rng.normal(0, np.sqrt(0.1), 120)
    noise = rng.normal(0, np.sqrt(0.7 - share), len(user))
    rating = 6 + quality[item] + (features[item] * taste[user]).sum(axis=1) + noise
    return Lists.of(user, item, rating), features


@pytest.mark.parametrize("share", [0.0, 0.15])
def test_shares_of_planted_tastes_are_in_their_intervals(share):
    lists, features = planted_lists(share)
    found = taste_shares(lists, features, [np.array([1, 2, 3])])
    for name, truth in {"taste": share, "leniency": 0.2, "item": 0.1, "rest": 0.7 - share}.items():
        low, high = found[name].interval
        assert low - 0.02 < truth < high + 0.02, name
        assert high - low < 0.12


def test_shuffling_personas_takes_their_taste_to_chance():
    lists, features = planted_lists(0.15)
    mixed = lists.shuffled()
    np.testing.assert_allclose(
        np.bincount(mixed.item, mixed.rating), np.bincount(lists.item, lists.rating)
    )
    found = taste_shares(mixed, features, [np.array([1, 2, 3])])
    assert abs(found["taste"].value) < 0.01
    assert abs(found["leniency"].value) < 0.01


def test_bootstrap_draws_whole_raters():
    # Eight lists of two raters: two groups are drawn, not eight.
    user = np.repeat(np.arange(8), 10)
    lists = Lists.of(user, np.tile(np.arange(10), 8), np.ones(80), np.arange(8) % 2)
    assert lists.weights.shape[1] == 2
    assert lists.weights.sum(axis=1).tolist() == [2.0] * len(lists.weights)


def test_incomplete_table_has_the_shares_of_the_whole():
    rng = np.random.default_rng(2)
    table = rng.normal(0, 1, (60, 1)) + rng.normal(0, 1, (1, 200)) + rng.normal(0, 0.7, (60, 200))
    within = np.full(table.shape, 0.5)
    whole = variance_shares(table, within)
    part = np.where(rng.random(table.shape) < 0.4, table, np.nan)
    found = variance_shares(part, within)
    assert found.interaction == pytest.approx(whole.interaction, abs=0.02)
    assert found.person == pytest.approx(whole.person, abs=0.04)


def test_lists_of_an_incomplete_table_hold_what_there_is():
    nan = np.nan
    found = headroom_by_person(np.array([[9.0, 1.0, nan], [nan, 3.0, 5.0]]), size=1)
    # Surpluses over the persons' means: 4, -2.5, 1; person 1 has no item 0.
    assert found.tolist() == [[9.0, 9.0, 5.0], [5.0, 5.0, 4.0]]
