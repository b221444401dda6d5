"""Differences between simulated users, in figures that are defined for people too.

Every function takes arrays, so that the ratings of people and of personas go through the same
code. Ratings are in units of their own scale. Figures of rated lists (:class:`Lists`) are drawn
with a bootstrap over the independent raters: a person, or a persona with all lists it rates. Too
few lists that are long enough give no figure but the reason (:attr:`Estimate.missing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.statistical import component_sums, components, other_means

#: Raters are put into at most this many groups, drawn with replacement as wholes (count).
_BLOCKS = 1_000
#: Ratings of an item above which its pairs of ratings count for less (set by hand).
_MANY = 50.0
#: Random splits into halves, and ratings of a genre that a half needs (counts).
_SPLITS, _MIN_HALF = 4, 4
#: Ratings of a user that a mean, a spread and a taste need (count).
_MIN_RATINGS = 10
#: Lists long enough that a figure needs (count).
_MIN_LISTS = 10
#: Pseudo-ratings at no surplus that genre deviations are shrunk with (count).
_STRENGTH = 4.0


@dataclass(frozen=True)
class Estimate:
    """A figure, and its values in a bootstrap, of shape (draws,)."""

    value: float
    draws: Floats
    #: Why there is no figure; the value is NaN then.
    missing: str = ""

    @classmethod
    def none(cls, missing: str) -> Estimate:
        """No figure, for a reason."""
        return cls(float("nan"), np.zeros(0), missing)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval: the value plus or minus 1.96 standard errors; NaN without draws."""
        finite = self.draws[np.isfinite(self.draws)]
        if len(finite) < 2 or not np.isfinite(self.value):
            return float("nan"), float("nan")
        margin = 1.96 * float(finite.std())
        return self.value - margin, self.value + margin

    def over(self, other: Estimate) -> tuple[float, float, float]:
        """Ratio of two independent figures, and the percentiles of its draws."""
        if self.missing or other.missing:
            return (float("nan"),) * 3
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.draws / other.draws
            value = float(np.float64(self.value) / other.value)
        finite = ratio[np.isfinite(ratio)]
        if len(finite) < 2:
            return value, float("nan"), float("nan")
        low, high = np.quantile(finite, [0.025, 0.975])
        return value, float(low), float(high)


@dataclass(frozen=True)
class Lists:
    """Lists of rated items."""

    #: List, item and rating of each row, of shape (ratings,).
    user: Ints
    item: Ints
    rating: Floats
    #: Rater of each list, of shape (lists,); a persona may rate several. Neighbouring lists are of
    #: different raters.
    rater: Ints
    #: Number of draws of each group of raters, of shape (draws, groups).
    weights: Floats
    #: Group of each list, of shape (lists,).
    group: Ints

    @classmethod
    def of(
        cls,
        user: Ints,
        item: Ints,
        rating: Floats,
        rater: Ints | None = None,
        *,
        draws: int = 200,
        seed: int = 0,
    ) -> Lists:
        """Lists with a bootstrap over raters; each list has a rater of its own by default."""
        who = np.arange(int(user.max()) + 1 if len(user) else 0) if rater is None else rater
        group = np.unique(who, return_inverse=True)[1] % _BLOCKS
        size = int(group.max()) + 1 if len(group) else 1
        rng = np.random.default_rng(seed)
        weights = rng.multinomial(size, np.full(size, 1.0 / size), size=draws)
        return cls(user, item, rating, who, weights.astype(np.float64), group)

    def shuffled(self, seed: int = 0) -> Lists:
        """A control: ratings of each item shuffled among the lists that hold it, without draws."""
        order = np.lexsort((np.random.default_rng(seed).random(len(self.item)), self.item))
        rating = np.empty_like(self.rating)
        rating[np.argsort(self.item, kind="stable")] = self.rating[order]
        return replace(self, rating=rating, weights=self.weights[:0])

    def drawn(self, sums: Floats, figure: Callable[[Floats], Floats], needed: str) -> Estimate:
        """A figure of sums over lists, given these sums per list, of shape (lists, columns).

        The first column is 0 where a list lacks what the figure needs, which ``needed`` names.
        """
        enough = int((sums[:, 0] > 0).sum())
        if enough < _MIN_LISTS:
            return Estimate.none(f"{enough} lists with {needed}; at least {_MIN_LISTS} are needed")
        grouped = np.zeros((self.weights.shape[1], sums.shape[1]))
        np.add.at(grouped, self.group, sums)
        overall = figure(grouped.sum(axis=0, keepdims=True))
        return Estimate(float(overall[0]), np.asarray(figure(self.weights @ grouped)))


@dataclass(frozen=True)
class VarianceShares:
    """Shares of the variance of ratings: persons, items, item x person, and noise; sum to 1."""

    person: float
    item: float
    interaction: float
    noise: float


def variance_shares(expected: Floats, within: Floats, *, passes: int = 20) -> VarianceShares:
    """Decompose the variance of ratings drawn from a table of distributions.

    ``expected`` are ratings of every person for every item, ``within`` the variances of their
    distributions, both of shape (persons, items). NaN where there is none: then effects are fitted
    by least squares in ``passes`` alternating passes, and the interaction is that of its degrees of
    freedom.

    Examples
    --------
    >>> table = np.array([[1.0, 3.0], [3.0, 1.0]])
    >>> variance_shares(table, np.zeros((2, 2))).interaction
    1.0
    """
    observed = ~np.isnan(expected)
    count = int(observed.sum())
    by_row, by_column = np.maximum(observed.sum(axis=1), 1), np.maximum(observed.sum(axis=0), 1)
    residual = np.where(observed, expected - np.nanmean(expected), 0.0)
    person, item = np.zeros(len(expected)), np.zeros(expected.shape[1])
    complete = count == expected.size
    for _ in range(1 if complete else passes):
        step = residual.sum(axis=1) / by_row
        residual, person = np.where(observed, residual - step[:, None], 0.0), person + step
        step = residual.sum(axis=0) / by_column
        residual, item = np.where(observed, residual - step, 0.0), item + step
    free = count - (0 if complete else int((by_row > 0).sum() + observed.any(axis=0).sum() - 1))
    parts = np.array(
        [
            by_row @ person**2 / count,
            observed.sum(axis=0) @ item**2 / count,
            (residual**2).sum() / max(free, 1),
            float(within[observed].mean()),
        ]
    )
    total = float(parts.sum())
    return VarianceShares(*(parts / total if total > 0 else parts).tolist())


def split_half(lists: Lists, genres: Floats, *, seed: int = 0) -> tuple[Estimate, Estimate]:
    """Covariance between halves of users' genre deviations beyond chance, and that of chance.

    A user's ratings, less the mean of each item's other ratings and the user's mean, are split at
    random into halves, several times. Their mean by genre is compared between the halves: with the
    same genre's (taste) less that of the next user (what all users share). Taking off the user's
    mean makes the halves differ more than they would by chance; the covariance after a shuffle of
    each user's items shows by how much, and is subtracted. In squared rating units; ``genres`` is
    whether an item has a genre, of shape (items, genres).
    """
    surplus = lists.rating - other_means(lists.item, lists.rating)
    rated = np.isfinite(surplus)
    user, item, surplus = lists.user[rated], lists.item[rated], surplus[rated]
    surplus = surplus - _means(user, surplus)[user]
    rng = np.random.default_rng(seed)
    size = len(lists.group)
    sums = np.zeros((size, 16))
    for _ in range(_SPLITS):
        half = rng.integers(0, 2, len(user))
        shuffled = np.empty_like(surplus)
        order = np.lexsort((rng.random(len(user)), user))
        shuffled[np.argsort(user, kind="stable")] = surplus[order]
        parts = [_halves(user, item, s, half, genres, size) for s in (surplus, shuffled)]
        sums += np.hstack(parts)
    needed = f"a genre of which each half has {_MIN_HALF} ratings"
    taste = lists.drawn(sums, lambda s: _net_covariance(s) - _net_covariance(s[:, 8:]), needed)
    return taste, lists.drawn(sums, lambda s: _net_covariance(s[:, 8:]), needed)


def _halves(
    user: Ints, item: Ints, surplus: Floats, half: Ints, genres: Floats, people: int
) -> Floats:
    """Sums per user of n, ab, a, b over genres, for its own halves and against the next user."""
    means, enough = [], []
    for side in (0, 1):
        rows = half == side
        total, count = _by_genre(user[rows], item[rows], surplus[rows], genres, people)
        means.append(total / np.maximum(count, 1))
        enough.append(count >= _MIN_HALF)
    out = []
    for shift in (0, 1):
        a, b = means[0], np.roll(means[1], shift, axis=0)
        both = (enough[0] & np.roll(enough[1], shift, axis=0)).astype(np.float64)
        out += [both.sum(1), (both * a * b).sum(1), (both * a).sum(1), (both * b).sum(1)]
    return np.stack(out, axis=1)


def _by_genre(
    user: Ints, item: Ints, value: Floats, genres: Floats, people: int
) -> tuple[Floats, Floats]:
    """Sums of a value and numbers of ratings by user and genre, each of shape (people, genres)."""
    from scipy.sparse import csr_matrix

    shape = (people, len(genres))
    sums = csr_matrix((value, (user, item)), shape=shape) @ genres
    return np.asarray(sums), np.asarray(
        csr_matrix((np.ones(len(user)), (user, item)), shape=shape) @ genres
    )


def _net_covariance(sums: Floats) -> Floats:
    return np.asarray(_covariance_of(sums[:, :4]) - _covariance_of(sums[:, 4:8]))


def _covariance_of(sums: Floats) -> Floats:
    count = np.where(sums[:, 0] > 0, sums[:, 0], np.nan)
    return np.asarray(sums[:, 1] / count - sums[:, 2] * sums[:, 3] / count**2)


def taste_shares(lists: Lists, features: Floats, groups: Sequence[Ints]) -> dict[str, Estimate]:
    """Shares of the variance of ratings: leniency, taste (item x person), items, and the rest.

    Variance components by the method of moments (:mod:`pipelines.raters.statistical._drawn`),
    of ratings less the mean of the item's other ratings. Taste is what is linear in the features: a
    lower bound of all that is item x person, for people and personas alike. Chance is 0.

    ``features`` are those of all items, the intercept first, of shape (items, 1 + features);
    ``groups`` are columns that share a variance each; the intercept has one of its own. The shares
    ``leniency``, ``taste``, ``item`` and ``rest`` sum to 1; one may be negative by chance.
    """
    columns = [np.array([0]), *(g for g in groups if len(g))]
    size = len(lists.group)
    surplus = lists.rating - other_means(lists.item, lists.rating)
    of_groups = component_sums(lists.user, lists.item, surplus, features, columns, size)
    powers = [np.ones(len(surplus)), lists.rating, lists.rating**2]
    totals = [np.bincount(lists.user, w, minlength=size) for w in powers]
    sums = np.column_stack([of_groups[:, -1] >= _MIN_RATINGS, *totals, of_groups])
    needed = f"{_MIN_RATINGS} ratings of items that others rated"

    def shares(s: Floats) -> Floats:
        variance = s[:, 3] / s[:, 1] - (s[:, 2] / s[:, 1]) ** 2
        return np.asarray(components(s[:, 4:]) / variance[:, None])

    leniency = lists.drawn(sums, lambda s: shares(s)[:, 0], needed)
    if leniency.missing:
        return dict.fromkeys(("leniency", "taste", "item", "rest"), leniency)
    taste = lists.drawn(sums, lambda s: shares(s)[:, 1:].sum(axis=1), needed)
    item = _item_share(lists)
    remainder = Estimate(
        1.0 - leniency.value - taste.value - item.value,
        1.0 - leniency.draws - taste.draws - item.draws,
    )
    return {"leniency": leniency, "taste": taste, "item": item, "rest": remainder}


def _item_share(lists: Lists) -> Estimate:
    """Share of the variance between items: products of ratings of one item by different raters."""
    key = lists.item * lists.weights.shape[1] + lists.group[lists.user]
    keys, cell = np.unique(key, return_inverse=True)
    item_of = keys // lists.weights.shape[1]

    def apart(value: Floats) -> Floats:
        """Sum of products of two raters' values, by item."""
        every = np.bincount(lists.item, value) ** 2
        return np.asarray(every - np.bincount(item_of, np.bincount(cell, value) ** 2))

    def share(weight: Floats) -> float:
        of_row = weight[lists.group[lists.user]]
        total = of_row.sum()
        off = lists.rating - (of_row @ lists.rating) / total
        cross, pairs = apart(of_row * off), apart(of_row)
        # Pairs of an item count for less where it has many, as those of a rater do.
        shrink = 1.0 / (np.bincount(lists.item, of_row) + _MANY) ** 2
        variance = (of_row @ off**2) / total
        return float((shrink @ cross) / max(float(shrink @ pairs), 1e-300) / variance)

    value = share(np.ones(lists.weights.shape[1]))
    return Estimate(value, np.array([share(w) for w in lists.weights]))


def liked_gap(
    lists: Lists, likes: Floats, dislikes: Floats, genres: Floats, usual: Floats
) -> tuple[Estimate, Estimate]:
    """Mean rating of items of liked genres minus that of disliked ones, within lists.

    ``likes`` and ``dislikes`` of each list's rater are of shape (lists, genres), ``genres`` of
    shape (items, genres), 0 or 1; ``usual`` are the means of the items' other ratings, of shape
    (ratings,), NaN where there are too few. Returns the mean gap over lists with both, and how much
    of it is the items' own means. Items of a liked and a disliked genre are left out.
    """
    liked, disliked = (
        np.einsum("ij,ij->i", stated[lists.user], genres[lists.item]) > 0
        for stated in (likes, dislikes)
    )
    size = len(lists.group)
    out: list[Estimate] = []
    for value in (lists.rating, usual):
        means, counts = [], []
        for chosen in (liked & ~disliked, disliked & ~liked):
            rows = chosen & np.isfinite(value)
            counts.append(np.bincount(lists.user[rows], minlength=size))
            total = np.bincount(lists.user[rows], value[rows], minlength=size)
            means.append(total / np.maximum(counts[-1], 1))
        both = (counts[0] > 0) & (counts[1] > 0)
        gap = np.where(both, means[0] - means[1], 0.0)
        sums = np.stack([both.astype(np.float64), gap], axis=1)
        out.append(lists.drawn(sums, _ratio, "items of a liked and of a disliked genre"))
    return out[0], out[1]


def moments(lists: Lists) -> dict[str, tuple[Floats, Estimate, Estimate]]:
    """Users' means and standard deviations: values, their mean and their spread.

    By name (``mean``, ``spread``): the values of lists long enough, of shape (long,), the mean over
    lists and the standard deviation between them.
    """
    size = len(lists.group)
    count = np.bincount(lists.user, minlength=size)
    enough = count >= _MIN_RATINGS
    mean = np.bincount(lists.user, lists.rating, minlength=size) / np.maximum(count, 1)
    square = np.bincount(lists.user, (lists.rating - mean[lists.user]) ** 2, minlength=size)
    spread = np.sqrt(square / np.maximum(count - 1, 1))

    def deviation(s: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(s[:, 2] / s[:, 0] - (s[:, 1] / s[:, 0]) ** 2, 0.0)))

    out: dict[str, tuple[Floats, Estimate, Estimate]] = {}
    for name, value in (("mean", mean), ("spread", spread)):
        sums = np.stack([enough, enough * value, enough * value**2], axis=1).astype(float)
        needed = f"{_MIN_RATINGS} ratings"
        centre, between = (lists.drawn(sums, figure, needed) for figure in (_ratio, deviation))
        out[name] = (value[enough], centre, between)
    return out


def popularity_slope(lists: Lists, counts: Floats) -> Estimate:
    """Rating units that a tenfold number of training ratings adds, by least squares.

    `counts` are the items' training ratings, of shape (items,).
    """
    x, y = np.log10(1.0 + counts[lists.item]), lists.rating
    size = len(lists.group)
    sums = np.stack(
        [np.bincount(lists.user, w, minlength=size) for w in (np.ones(len(x)), x, y, x * x, x * y)],
        axis=1,
        dtype=np.float64,
    )

    def slope(s: Floats) -> Floats:
        n, sx, sy, sxx, sxy = s.T
        return np.asarray((sxy - sx * sy / n) / np.maximum(sxx - sx * sx / n, 1e-12))

    return lists.drawn(sums, slope, "a rating")


def histogram_similarity(lists: Lists, other: Lists, answers: Floats) -> Estimate:
    """1 - total variation of two sides' ratings, each taken to the nearest of `answers`."""

    def counted(side: Lists) -> Floats:
        edges = (answers[1:] + answers[:-1]) / 2
        cell = side.user * len(answers) + np.searchsorted(edges, side.rating)
        size = len(side.group) * len(answers)
        sums = np.bincount(cell, minlength=size).reshape(-1, len(answers)).astype(float)
        grouped = np.zeros((side.weights.shape[1], len(answers)))
        np.add.at(grouped, side.group, sums)
        drawn = np.concatenate([grouped.sum(axis=0, keepdims=True), side.weights @ grouped])
        return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))

    same = 1.0 - 0.5 * np.abs(counted(lists) - counted(other)).sum(axis=1)
    return Estimate(float(same[0]), same[1:])


def genre_correlation(lists: Lists, genres: Floats) -> Floats:
    """Correlation between genres of users' shrunken mean surplus, of shape (genres, genres).

    The surplus is over the mean of the item's other ratings and the user's mean; users with a
    rating of both genres count.
    """
    surplus = lists.rating - other_means(lists.item, lists.rating)
    rated = np.isfinite(surplus)
    user, item, surplus = lists.user[rated], lists.item[rated], surplus[rated]
    surplus = surplus - _means(user, surplus)[user]
    total, count = _by_genre(user, item, surplus, genres, len(lists.group))
    deviation = np.where(count > 0, total / (count + _STRENGTH), np.nan)
    seen = np.isfinite(deviation)
    filled = np.where(seen, deviation - np.nanmean(np.where(seen, deviation, 0.0), axis=0), 0.0)
    cross = filled.T @ filled
    square = (filled**2).T @ seen
    scale = np.sqrt(square * square.T)
    return np.asarray(np.where(scale > 0, cross / np.maximum(scale, 1e-12), 0.0))


def _ratio(sums: Floats) -> Floats:
    """Second column over the first, NaN without any."""
    return np.asarray(sums[:, 1] / np.where(sums[:, 0] > 0, sums[:, 0], np.nan))


def headroom_by_person(expected: Floats, *, size: int = 10) -> Floats:
    """Means of a person's own best items, of the best for everybody, and of all: (persons, 3).

    ``expected`` is of shape (persons, items), NaN where there is none. A list is then made of the
    items that a person has a rating of, and items are ordered for everybody by their mean surplus
    over the persons' means.

    >>> headroom_by_person(np.array([[5.0, 1.0], [1.0, 5.0]]), size=1).tolist()
    [[5.0, 5.0, 3.0], [5.0, 1.0, 3.0]]
    """
    rated = ~np.isnan(expected)
    size = min(size, int(rated.sum(axis=1).min()))
    best = np.partition(np.where(rated, expected, -np.inf), -size, axis=1)[:, -size:]
    mean = np.nanmean(expected, axis=1)
    surplus = np.where(rated, expected - mean[:, None], 0.0).sum(axis=0)
    usual = np.where(rated.any(axis=0), surplus / np.maximum(rated.sum(axis=0), 1), -np.inf)
    order = np.argsort(-usual, kind="stable")
    rank = np.cumsum(rated[:, order], axis=1)
    first = (rank <= size) & rated[:, order]
    common = np.where(first, np.nan_to_num(expected[:, order]), 0.0).sum(axis=1) / size
    return np.stack([best.mean(axis=1), common, mean], axis=1)


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
