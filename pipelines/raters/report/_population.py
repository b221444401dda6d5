"""Differences between simulated users, in figures that are defined for people too.

Every function takes arrays, so that the ratings of people and of personas go through the same
code. Ratings are in units of their own scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.raters.protocol import Floats, Ints

__all__ = [
    "Headroom",
    "VarianceShares",
    "genre_gap",
    "headroom",
    "ks_distance",
    "split_half_covariance",
    "user_moments",
    "variance_shares",
]


@dataclass(frozen=True)
class VarianceShares:
    """Shares of the variance of ratings: persons, items, item x person, and noise; sum to 1."""

    person: float
    item: float
    interaction: float
    noise: float


def variance_shares(expected: Floats, within: Floats) -> VarianceShares:
    """Decompose the variance of ratings drawn from a full table of distributions.

    Parameters
    ----------
    expected
        Expected ratings of every person for every item, of shape (persons, items).
    within
        Variances of the distributions, of that shape.

    Examples
    --------
    >>> table = np.array([[1.0, 3.0], [3.0, 1.0]])
    >>> variance_shares(table, np.zeros((2, 2))).interaction
    1.0
    """
    mean = expected.mean()
    person, item = expected.mean(axis=1) - mean, expected.mean(axis=0) - mean
    rest = expected - mean - person[:, None] - item[None, :]
    parts = np.array([(person**2).mean(), (item**2).mean(), (rest**2).mean(), within.mean()])
    total = float(parts.sum())
    return VarianceShares(*(parts / total if total > 0 else parts).tolist())


def split_half_covariance(
    user: Ints, item: Ints, rating: Floats, genres: Floats, *, seed: int = 0, min_ratings: int = 4
) -> tuple[float, float]:
    """Covariance between halves of users' genre deviations, net of other users'.

    A user's ratings, less each item's mean and the user's mean, are split at random into halves.
    Their mean by genre is compared between the halves: with the same genre's (taste) and, as the
    control, with that of the next user (what all users share).

    Parameters
    ----------
    user, item, rating
        Of each rating, of shape (ratings,).
    genres
        Whether an item has a genre, of shape (items, genres).
    seed
        Of the split.
    min_ratings
        Ratings of a genre that a half needs (count).

    Returns
    -------
    The covariance less the control, in squared rating units, and the control.
    """
    rng = np.random.default_rng(seed)
    people = int(user.max()) + 1 if len(user) else 0
    surplus = rating - _means(item, rating)[item]
    surplus = surplus - _means(user, surplus)[user]
    half = rng.integers(0, 2, len(user))
    sums, counts = [], []
    for side in (0, 1):
        kept = half == side
        has = genres[item[kept]]
        total, count = np.zeros((people, genres.shape[1])), np.zeros((people, genres.shape[1]))
        np.add.at(total, user[kept], has * surplus[kept, None])
        np.add.at(count, user[kept], has)
        sums.append(total)
        counts.append(count)
    first, second = (s / np.maximum(c, 1) for s, c in zip(sums, counts, strict=True))
    there, here = (c >= min_ratings for c in counts)
    own = _covariance(first, second, there & here)
    other = _covariance(first, np.roll(second, 1, axis=0), there & np.roll(here, 1, axis=0))
    return own - other, other


def genre_gap(
    expected: Floats, likes: Floats, dislikes: Floats, genres: Floats
) -> tuple[float, float]:
    """Mean rating of items of liked genres minus that of items of disliked ones.

    Parameters
    ----------
    expected
        Of every person for every item, of shape (persons, items); NaN where there is none.
    likes, dislikes
        Of shape (persons, genres), 0 or 1.
    genres
        Of shape (items, genres), 0 or 1.

    Returns
    -------
    The gap, and how much of it is the items' own means, over persons with both.
    """
    liked, disliked = (likes @ genres.T) > 0, (dislikes @ genres.T) > 0
    only, other = liked & ~disliked, disliked & ~liked
    gaps, items = [], []
    usual = np.nanmean(expected, axis=0)
    for row, a, b in zip(expected, only, other, strict=True):
        a, b = a & ~np.isnan(row), b & ~np.isnan(row)
        if a.any() and b.any():
            gaps.append(row[a].mean() - row[b].mean())
            items.append(usual[a].mean() - usual[b].mean())
    if not gaps:
        return float("nan"), float("nan")
    return float(np.mean(gaps)), float(np.mean(items))


@dataclass(frozen=True)
class Headroom:
    """Mean rating of a person's own best items, of the best list for everybody, and of any item."""

    oracle: float
    common: float
    random: float

    @property
    def gain(self) -> float:
        """Headroom: gain of personal lists over the best common list."""
        return self.oracle - self.common


def headroom(expected: Floats, *, size: int = 10) -> Headroom:
    """What lists of `size` items earn, given every person's expected rating of every item.

    Parameters
    ----------
    expected
        Of shape (persons, items).
    size
        Items of a list (count).

    Examples
    --------
    >>> headroom(np.array([[5.0, 1.0], [1.0, 5.0]]), size=1)
    Headroom(oracle=5.0, common=3.0, random=3.0)
    """
    own = np.partition(expected, -size, axis=1)[:, -size:]
    usual = expected.mean(axis=0)
    common = expected[:, np.argsort(-usual, kind="stable")[:size]]
    return Headroom(float(own.mean()), float(common.mean()), float(expected.mean()))


def user_moments(user: Ints, rating: Floats, *, min_ratings: int = 10) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each user with `min_ratings` ratings or more."""
    count = np.bincount(user)
    kept = count >= min_ratings
    mean = _means(user, rating)
    square = np.bincount(user, (rating - mean[user]) ** 2, minlength=len(count))
    return mean[kept], np.sqrt(square[kept] / (count[kept] - 1))


def ks_distance(first: Floats, second: Floats) -> float:
    """Largest difference of two empirical distribution functions (Kolmogorov and Smirnov).

    >>> ks_distance(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    1.0
    """
    every = np.concatenate([first, second])
    below = [np.searchsorted(np.sort(x), every, side="right") / len(x) for x in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


def _means(group: Ints, value: Floats) -> Floats:
    return np.asarray(np.bincount(group, value) / np.maximum(np.bincount(group), 1))


def _covariance(first: Floats, second: Floats, kept: np.ndarray) -> float:
    if not kept.any():
        return float("nan")
    a, b = first[kept], second[kept]
    return float((a * b).mean() - a.mean() * b.mean())
