"""Figures of a population, by hand on small arrays."""

import numpy as np
import pytest

from pipelines.raters.report.population import (
    Lists,
    headroom_by_person,
    ks_distance,
    liked_gap,
    moments,
    split_half,
    taste_shares,
    variance_shares,
)
from pipelines.raters.statistical.tastes import other_means


def test_variance_shares_of_a_table_by_hand():
    # Persons 0 and 2 apart, items 1 and -1 apart, an interaction of half a point.
    table = np.array([[5.5, 2.5], [6.5, 5.5]])
    found = variance_shares(table, np.full((2, 2), 2.75))
    assert found == pytest.approx(np.array([1.0, 1.0, 0.25, 2.75]) / 5.0)


def test_shuffling_persons_takes_the_interaction_away():
    rng = np.random.default_rng(0)
    table = rng.normal(0, 1, (80, 60))
    mixed = np.take_along_axis(table, np.argsort(rng.random((80, 60)), axis=0), axis=0)
    one = variance_shares(table, np.zeros_like(table))[2]
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
    lists = Lists.of(
        np.repeat(np.arange(20), 3), np.tile([0, 1, 2], 20), np.tile([8.0, 4.0, 1.0], 20)
    )
    likes, dislikes = (np.tile(row, (20, 1)) for row in ([1, 0], [0, 1]))
    usual = np.tile([7.0, 5.0, 1.0], 20)
    usual[:3] = np.nan
    gap, items = liked_gap(lists, likes, dislikes, genres, usual)
    assert (gap.value, items.value) == (4.0, 2.0)
    nobody = liked_gap(lists, np.zeros((20, 2)), np.zeros((20, 2)), genres, usual)[0]
    assert np.isnan(nobody.value)
    assert "0 lists with items of a liked and of a disliked genre" in nobody.missing


def test_means_leave_the_rating_out():
    found = other_means(np.array([0, 0, 0, 0, 0, 1]), np.array([1.0, 2.0, 3.0, 4.0, 10.0, 7.0]))
    np.testing.assert_allclose(found, [4.75, 4.5, 4.25, 4.0, 2.5, np.nan])


def test_split_half_covariance_finds_planted_tastes():
    rng = np.random.default_rng(1)
    genres = np.eye(2)[np.arange(60) % 2]
    taste = rng.normal(0, 1, 900)
    user = np.repeat(np.arange(900), 40)
    item = rng.integers(0, 60, len(user))
    signs = np.where(genres[item, 0] > 0, 1.0, -1.0)
    rating = 6 + taste[user] * signs + rng.normal(0, 1, len(user))
    # A genre's deviation is plus or minus the taste: variance 1.
    found, _ = split_half(Lists.of(user, item, rating), genres)
    assert found.value == pytest.approx(1.0, abs=0.2)


def test_shuffled_control_takes_off_the_cost_of_a_users_mean():
    rng = np.random.default_rng(2)
    user = np.repeat(np.arange(3000), 20)
    lists = Lists.of(user, rng.integers(0, 60, len(user)), rng.normal(0, 1, len(user)))
    found, control = split_half(lists, np.eye(2)[np.arange(60) % 2])
    # A user's mean of 20 ratings costs a twentieth of their variance.
    assert control.value == pytest.approx(-1 / 20, abs=0.01)
    assert abs(found.value) < 0.01
    assert found.interval[0] < 0.0 < found.interval[1]


def test_short_lists_give_a_reason_and_no_figure():
    rng = np.random.default_rng(3)
    user = np.repeat(np.arange(500), 7)
    lists = Lists.of(user, rng.integers(0, 60, len(user)), rng.normal(0, 1, len(user)))
    genres = np.eye(2)[np.arange(60) % 2]
    shares = taste_shares(lists, np.column_stack([np.ones(60), genres]), [np.array([1, 2])])
    for found in (*split_half(lists, genres), *shares.values(), *moments(lists)["mean"][1:]):
        assert np.isnan(found.value)
        assert found.missing.startswith("0 lists with ")
        assert found.missing.endswith("; at least 10 are needed")
        assert all(np.isnan(found.over(found)))


def test_user_moments_and_distance_by_hand():
    user = np.repeat(np.arange(11), [12] * 10 + [3])
    rating = np.array([1.0, 3.0] * 60 + [5.0, 5.0, 5.0])
    found = moments(Lists.of(user, np.arange(123), rating))
    assert found["mean"][0].tolist() == [2.0] * 10
    assert found["spread"][0].tolist() == pytest.approx([np.sqrt(12 / 11)] * 10)
    assert [drawn.value for drawn in found["mean"][1:]] == [2.0, 0.0]
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
    assert found[2] == pytest.approx(whole[2], abs=0.02)
    assert found[0] == pytest.approx(whole[0], abs=0.04)


def test_lists_of_an_incomplete_table_hold_what_there_is():
    nan = np.nan
    found = headroom_by_person(np.array([[9.0, 1.0, nan], [nan, 3.0, 5.0]]), size=1)
    # Surpluses over the persons' means: 4, -2.5, 1; person 1 has no item 0.
    assert found.tolist() == [[9.0, 9.0, 5.0], [5.0, 5.0, 4.0]]
