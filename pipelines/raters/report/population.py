"""Differences between simulated users, in figures that are defined for people too.

Every function takes arrays, so that the ratings of people and of personas go through the same
code. Ratings are in units of their own scale. Figures of rated lists (:class:`Lists`) are drawn
with a bootstrap over the independent raters: a person, or a persona with all lists it rates. Too
few lists that are long enough give no figure but the reason (:attr:`Estimate.missing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from pipelines.errors import ContractError
from pipelines.personas import reading_statement
from pipelines.raters.protocol import OK, Floats, Ints
from pipelines.raters.report.held_out import Table, persona_rows
from pipelines.raters.report.metrics import ratio
from pipelines.raters.statistical.profiles import genre_matrix
from pipelines.raters.statistical.rater import StatisticalRater
from pipelines.raters.statistical.tastes import (
    component_sums,
    components,
    other_means,
    stated_genres,
)
from pipelines.scales import RatingScale, coarser, rescale, scale_named
from pipelines.seeding import combine, hash_ids

#: Raters are put into at most this many groups, drawn with replacement as wholes (count).
_BLOCKS = 1_000
#: Ratings of an item above which its pairs of ratings count for less (set by hand).
_MANY = 50.0
#: Passes of the least squares of an incomplete table (count).
_PASSES = 20
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
        seed: int = 0,
    ) -> Lists:
        """Lists with a bootstrap over raters; each list has a rater of its own by default."""
        who = np.arange(int(user.max()) + 1 if len(user) else 0) if rater is None else rater
        group = np.unique(who, return_inverse=True)[1] % _BLOCKS
        size = int(group.max()) + 1 if len(group) else 1
        rng = np.random.default_rng(seed)
        weights = rng.multinomial(size, np.full(size, 1.0 / size), size=_DRAWS)
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


def variance_shares(expected: Floats, within: Floats) -> Floats:
    """Shares of the variance of ratings drawn from a table of distributions, which sum to 1.

    Those of persons, items, item x person, and noise, of shape (4,). ``expected`` are ratings of
    every person for every item, ``within`` the variances of their distributions, both of shape
    (persons, items). NaN where there is none: then effects are fitted by least squares in
    alternating passes, and the interaction is that of its degrees of freedom.

    Examples
    --------
    >>> table = np.array([[1.0, 3.0], [3.0, 1.0]])
    >>> variance_shares(table, np.zeros((2, 2))).tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    observed = ~np.isnan(expected)
    count = int(observed.sum())
    by_row, by_column = np.maximum(observed.sum(axis=1), 1), np.maximum(observed.sum(axis=0), 1)
    residual = np.where(observed, expected - np.nanmean(expected), 0.0)
    person, item = np.zeros(len(expected)), np.zeros(expected.shape[1])
    complete = count == expected.size
    for _ in range(1 if complete else _PASSES):
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
    return parts / total if total > 0 else parts


def split_half(lists: Lists, genres: Floats, *, seed: int = 0) -> tuple[Estimate, Estimate]:
    """Covariance between halves of users' genre deviations beyond chance, and that of chance.

    A user's ratings, less the mean of each item's other ratings and the user's mean, are split at
    random into halves, several times. Their mean by genre is compared between the halves: with the
    same genre's (taste) less that of the next user (what all users share). Taking off the user's
    mean makes the halves differ more than they would by chance; the covariance after a shuffle of
    each user's items shows by how much, and is subtracted. In squared rating units; ``genres`` is
    whether an item has a genre, of shape (items, genres).
    """
    user, item, surplus = _own_surplus(lists)
    rng = np.random.default_rng(seed)
    size = len(lists.group)
    sums = np.zeros((size, 16))
    for _ in range(_SPLITS):
        half = rng.integers(0, 2, len(user))
        shuffled = np.empty_like(surplus)
        order = np.lexsort((rng.random(len(user)), user))
        shuffled[np.argsort(user, kind="stable")] = surplus[order]
        parts = [_half_sums(user, item, s, half, genres, size) for s in (surplus, shuffled)]
        sums += np.hstack(parts)
    needed = f"a genre of which each half has {_MIN_HALF} ratings"
    taste = lists.drawn(sums, lambda s: _net_covariance(s) - _net_covariance(s[:, 8:]), needed)
    return taste, lists.drawn(sums, lambda s: _net_covariance(s[:, 8:]), needed)


def _own_surplus(lists: Lists) -> tuple[Ints, Ints, Floats]:
    """List, item, and rating less the item's other ratings and the list's mean, of shape (rows,).

    Rows of items with too few other ratings are left out.
    """
    surplus = lists.rating - other_means(lists.item, lists.rating)
    rated = np.isfinite(surplus)
    user, item, surplus = lists.user[rated], lists.item[rated], surplus[rated]
    means = np.bincount(user, surplus) / np.maximum(np.bincount(user), 1)
    return user, item, surplus - means[user]


def _half_sums(
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
    shape = (people, len(genres))
    sums, counts = (
        np.asarray(csr_matrix((weight, (user, item)), shape=shape) @ genres)
        for weight in (value, np.ones(len(user)))
    )
    return sums, counts


def _net_covariance(sums: Floats) -> Floats:
    """Covariance of one user's halves less that with the next user, of sums of `_half_sums`."""
    covariances = []
    for n, ab, a, b in (sums[:, :4].T, sums[:, 4:8].T):
        count = np.where(n > 0, n, np.nan)
        covariances.append(ab / count - a * b / count**2)
    return np.asarray(covariances[0] - covariances[1])


def taste_shares(lists: Lists, features: Floats, groups: Sequence[Ints]) -> dict[str, Estimate]:
    """Shares of the variance of ratings: leniency, taste (item x person), items, and the rest.

    Variance components by the method of moments (:mod:`pipelines.raters.statistical.tastes`),
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
        out.append(lists.drawn(sums, ratio, "items of a liked and of a disliked genre"))
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
        centre, between = (lists.drawn(sums, figure, needed) for figure in (ratio, deviation))
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
    user, item, surplus = _own_surplus(lists)
    total, count = _by_genre(user, item, surplus, genres, len(lists.group))
    deviation = np.where(count > 0, total / (count + _STRENGTH), np.nan)
    seen = np.isfinite(deviation)
    filled = np.where(seen, deviation - np.nanmean(np.where(seen, deviation, 0.0), axis=0), 0.0)
    cross = filled.T @ filled
    square = (filled**2).T @ seen
    scale = np.sqrt(square * square.T)
    return np.asarray(np.where(scale > 0, cross / np.maximum(scale, 1e-12), 0.0))


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


#: Figures by name: what they are called, and their unit.
POPULATION_FIGURES: dict[str, tuple[str, str]] = {
    "item_person_share": ("item x person share of the variance", "share"),
    "leniency_share": ("person share of the variance (leniency)", "share"),
    "item_share": ("item share of the variance", "share"),
    "rest_share": ("the rest of the variance", "share"),
    "split_half_covariance": ("split-half covariance of users' genre deviations", "points²"),
    "genre_gap": ("liked minus disliked genres", "points"),
    "genre_gap_items": ("of which by the items' own means", "points"),
    "mean_rating": ("mean of users' means", "points"),
    "user_mean_spread": ("standard deviation of users' means", "points"),
    "user_spread_mean": ("mean of users' standard deviations", "points"),
    "user_spread_spread": ("standard deviation of users' standard deviations", "points"),
    "user_mean_ks": ("KS distance of users' means", "distance"),
    "user_spread_ks": ("KS distance of users' standard deviations", "distance"),
    "popularity_slope": ("rating per tenfold popularity", "points"),
    "similarity": ("1 - total variation of the ratings", "share"),
    "genre_correlation": ("agreement of the correlations between genres", "correlation"),
    "headroom": ("headroom: own top ten over the common one", "points"),
    "oracle": ("mean rating of own top ten", "points"),
    "common_list": ("mean rating of the best common ten", "points"),
    "random_items": ("mean rating of any item", "points"),
    "table_item_person_share": ("item x person share, all scored pairs", "share"),
    "watched_any": ("mean rating of what people watched, any personas", "points"),
    "watched": ("mean rating of what people watched, personas who would", "points"),
    "choice_gap_any": ("people above any personas, on what people watched", "points"),
    "choice_gap": ("people above personas who would watch it", "points"),
    "exposure_matched": ("AUC of exposure, against equally popular items", "share"),
    "exposure_matched_popularity": ("AUC of popularity, against equally popular items", "share"),
    "exposure_uniform": ("AUC of exposure, against any items", "share"),
    "exposure_uniform_popularity": ("AUC of popularity, against any items", "share"),
    "exposure_slope": ("calibration slope of exposure", "slope"),
}
#: Figures whose ratio to people's is bounded (`quality.max_taste_ratio`).
COMPARED = ("item_person_share", "split_half_covariance")
#: Users, ratings of people and personas from which figures are compared (counts): as many as a
#: covariance of tastes is fitted on.
MIN_USERS, MIN_RATINGS, MIN_PERSONAS = 200, 5_000, 50
#: People's ratings, personas and their scores that are compared at most, and cells of the table of
#: expected ratings (counts).
_MAX_RATINGS, _MAX_PERSONAS, _MAX_SCORES, _MAX_CELLS = 200_000, 1_000, 1_000_000, 4_000_000
#: Personas and people in that table at most (count).
_MAX_TABLE = 300
#: Items of a list (count).
_LIST = 10
#: Figures of headroom.
_HEADROOM = ("headroom", "oracle", "common_list", "random_items")
#: Draws of the bootstrap (count).
_DRAWS = 200


@dataclass(frozen=True)
class PopulationReport:
    """The report."""

    #: The `population` contract, in its order.
    table: pl.DataFrame
    #: Counts, statement and what the pictures show; ready for JSON.
    metadata: dict[str, Any]


def population_report(
    scores: Table,
    *,
    personas: pl.DataFrame,
    items: pl.DataFrame,
    interactions: Table,
    splits: Table,
    rater: StatisticalRater,
    plan: Table | None = None,
    selection: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 0,
) -> PopulationReport:
    """Compare the scores of a release's personas with people's ratings.

    Tastes are those of all ratings of a person and all scores of a persona. For levels, spreads
    and distributions, each person's list of rated items is given to a persona, so that both sides
    rate the same items in lists of the same lengths and differ in nothing but who rates. A persona
    may get several lists; pairs that have no score are left out of both sides. Intervals are
    bootstraps over people and over personas. Where lists are too few or too short for a figure, it
    is null, and the metadata holds the reason (``missing``, by figure and side).

    People choose what they rate. Like is compared with like where an item that people watched is
    rated by all personas with a score of it, each counting by its exposure: those who would watch
    it.

    Parameters
    ----------
    scores
        Rows of the `preference_scores` contract of one scale; may be lazy.
    personas, items, interactions, splits
        Tables of those names; the large ones may be lazy.
    rater
        A statistical rater fitted on the same tables, for the features of items and for people's
        headroom by their own training ratings.
    plan
        Rows of the `score_plan` contract, for the personas' exposure; may be lazy.
    selection
        Held-out figures of the selection model (:func:`pipelines.raters.judge_exposure`).
    seed
        Of the assignment of lists, and of the bootstraps.

    Raises
    ------
    ContractError
        If no persona has a score, or no person rated a scored item.
    """
    sides = _Sides(scores, personas, items, interactions, splits, rater, seed)
    sides.compare_tastes()
    sides.compare_gaps()
    sides.compare_levels()
    sides.compare_correlations()
    sides.compare_tables(plan)
    for name, figure in (selection or {}).items():
        sides.note(f"exposure_{name}", {f"people_{end}": figure[end] for end in _ENDS})
    return sides.report()


#: A figure's value and interval, for each side; and the columns of the table.
_ENDS = ("value", "low", "high")
_NUMBERS = [
    *(f"{side}_{end}" for side in ("personas", "people") for end in _ENDS),
    *("ratio", "ratio_low", "ratio_high", "chance"),
]
_SCHEMA = {"figure": pl.String, "unit": pl.String, **dict.fromkeys(_NUMBERS, pl.Float64)}


def _scale_of(scored: pl.LazyFrame) -> RatingScale:
    names = scored.select(pl.col("scale").unique()).collect(engine="streaming")["scale"].to_list()
    if len(names) != 1:
        raise ContractError(
            f"scores on {len(names)} scales" if names else "there is no score to compare",
            where="preference_scores",
        )
    return scale_named(str(names[0]))


class _Sides:
    """Ratings of people and of personas (all of them, and those of the same lists), compared."""

    def __init__(
        self,
        scores: Table,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        interactions: Table,
        splits: Table,
        rater: StatisticalRater,
        seed: int,
    ) -> None:
        self.rater, self.items, self.seed = rater, items, seed
        self.interactions, self.splits = interactions.lazy(), splits.lazy()
        self.genres = (rater.catalogue.shares > 0).astype(np.float64)
        self.rows: list[dict[str, Any]] = []
        self.missing: dict[str, dict[str, str]] = {}
        self.metadata: dict[str, Any] = {}
        self.scored = scores.lazy().filter(pl.col("status") == OK)
        self.scale = _scale_of(self.scored)
        ids = self.scored.select(pl.col("persona_id").unique()).collect(engine="streaming")
        scored = pl.col("persona_id").is_in(ids["persona_id"].implode())
        #: Personas with a score.
        self.all_personas = personas.filter(scored).sort("persona_id")
        if not self.all_personas.height:
            raise ContractError("no persona has a score", where="preference_scores")
        self._read_lists()

    def _read_lists(self) -> None:
        """Ratings of people, given to personas as lists, and scores of personas."""
        personas, seed = self.all_personas, self.seed
        # Neighbouring lists go to different personas.
        users = _sampled(self.interactions, "user_id", _MAX_RATINGS, seed)
        users = users.with_row_index("list").cast({"list": pl.Int64})
        users = users.with_columns(person=pl.col("list") % personas.height)
        named = personas.select("persona_id").with_row_index("person").cast({"person": pl.Int64})
        rated = (
            self.interactions.select("user_id", "item_id", "rating")
            .join(users.join(named, on="person").lazy(), on="user_id")
            .join(self.splits.select("user_id", "item_id", "split"), on=["user_id", "item_id"])
            .collect(engine="streaming")
            .sort("list", "item_id")
        )
        on_scale = rescale(rated["rating"].to_numpy(), self.rater.source, self.scale)
        rated = rated.with_columns(rating=pl.Series(on_scale, dtype=pl.Float64))
        samples = self.scored.select("persona_id", "item_id", pl.col("sample").cast(pl.Float64))
        same = (
            rated.lazy()
            .join(samples, on=["persona_id", "item_id"])
            .collect(engine="streaming")
            .sort("list", "item_id")
        )
        if not same.height:
            raise ContractError("no person rated a scored item", where="preference_scores")
        #: Personas and scores that tastes are of, and person of each list of `people`.
        self.chosen = personas[_first(personas["persona_id"], _MAX_PERSONAS, seed)]
        self.users = users["user_id"].to_list()
        #: Whether a rating of `people` is held out, of shape (ratings,).
        self.held_out = (rated["split"] != "train").to_numpy()
        rater_of = np.unique(same["list"].to_numpy()) % personas.height
        self.people = self._lists(rated, "rating", seed)
        self.personas = self._lists(self._all_scores(samples), "sample", seed + 1)
        self.same_people = self._lists(same, "rating", seed)
        self.same_personas = self._lists(same, "sample", seed + 1, rater_of)

    def _lists(
        self, rows: pl.DataFrame, rating: str, seed: int, rater_of: Ints | None = None
    ) -> Lists:
        item = rows["item_id"].replace_strict(self.rater.catalogue.index, return_dtype=pl.Int64)
        user = np.unique(rows["list"].to_numpy(), return_inverse=True)[1].astype(np.int64)
        values = rows[rating].to_numpy()
        return Lists.of(user, item.to_numpy(), values, rater_of, seed=seed)

    def _all_scores(self, samples: pl.LazyFrame) -> pl.DataFrame:
        """Scores of every item, or of items drawn by hash if these are too many.

        Columns list (row of the persona among `chosen`), item_id, sample.
        """
        named = self.chosen.select("persona_id").with_row_index("list").cast({"list": pl.Int64})
        scored = samples.join(named.lazy(), on="persona_id")
        items = _sampled(scored, "item_id", _MAX_SCORES, self.seed)
        rows = scored.join(items.lazy(), on="item_id")
        return rows.collect(engine="streaming").sort("list", "item_id")

    def add(
        self, name: str, figure: Estimate, human: Estimate | None, control: Estimate | None = None
    ) -> None:
        """Add a figure of personas, of people, and of a control."""
        row: dict[str, float] = {}
        for side, estimate in (("personas", figure), ("people", human)):
            if estimate is not None:
                values = (estimate.value, *estimate.interval)
                row |= {f"{side}_{end}": v for end, v in zip(_ENDS, values, strict=True)}
                if estimate.missing:
                    self.missing.setdefault(name, {})[side] = estimate.missing
        if human is not None and name in COMPARED:
            row["ratio"], row["ratio_low"], row["ratio_high"] = figure.over(human)
        if control is not None:
            row["chance"] = control.value
        self.note(name, row)

    def note(self, name: str, row: Mapping[str, float]) -> None:
        """Add a row of the table; what is not a number is null."""
        finite = {column: value for column, value in row.items() if np.isfinite(value)}
        self.rows.append({"figure": name, "unit": POPULATION_FIGURES[name][1], **finite})

    def report(self) -> PopulationReport:
        """All figures so far."""
        counts = {
            "personas": self.all_personas.height,
            "people": len(self.users),
            "ratings": len(self.people.rating),
        }
        table = pl.DataFrame(self.rows, _SCHEMA).with_columns(
            **{key: pl.lit(value, pl.Int64) for key, value in counts.items()}
        )
        statement = (
            f"{counts['personas']:,} personas and {counts['people']:,} people on "
            f"{self.scale.name}. Tastes: all {counts['ratings']:,} ratings of people, "
            f"{len(self.personas.rating):,} scores of personas. Levels, spreads and "
            f"distributions: {len(self.same_people.rating):,} ratings of the same lists, each "
            "person's list of rated items being given to a persona."
        )
        metadata = self.metadata | counts | {"scale": self.scale.name, "statement": statement}
        return PopulationReport(table.sort("figure"), metadata | {"missing": self.missing})

    def compare_tastes(self) -> None:
        """Shares of the variance, and covariance of halves."""
        catalogue, seed = self.rater.catalogue, self.seed
        personas, people, chance = (
            taste_shares(lists, catalogue.taste, catalogue.taste_groups)
            for lists in (self.personas, self.people, self.personas.shuffled(seed))
        )
        self.add("item_person_share", personas["taste"], people["taste"], chance["taste"])
        for name in ("leniency", "item", "rest"):
            self.add(f"{name}_share", personas[name], people[name])
        halves, mixed = split_half(self.personas, self.genres, seed=seed)
        theirs, _ = split_half(self.people, self.genres, seed=seed)
        self.add("split_half_covariance", halves, theirs, mixed)

    def compare_gaps(self) -> None:
        """Gap between liked and disliked genres; people's are those of their training ratings."""
        genres, side, late = self.rater.catalogue.genres, self.people, self.held_out
        stated = [genre_matrix(self.chosen[c], genres) for c in ("likes", "dislikes")]
        likes, dislikes = (np.asarray(field, np.float64) for field in stated)
        usual = other_means(self.personas.item, self.personas.rating)
        personas = liked_gap(self.personas, likes, dislikes, self.genres, usual)
        affinity = self.rater.genre_affinity(self.interactions, self.splits, self.users)
        # Ratings that show which genres a person likes can't also say how much more it gives them.
        held = Lists.of(side.user[late], side.item[late], side.rating[late], side.rater)
        usual = other_means(side.item, side.rating)[late]
        people = liked_gap(held, *stated_genres(affinity), self.genres, usual)
        self.add("genre_gap", personas[0], people[0])
        self.add("genre_gap_items", personas[1], people[1])

    def compare_levels(self) -> None:
        """Levels, spreads and distributions of the same lists."""
        personas, human = moments(self.same_personas), moments(self.same_people)
        self.add("mean_rating", personas["mean"][1], human["mean"][1])
        self.add("user_mean_spread", personas["mean"][2], human["mean"][2])
        self.add("user_spread_mean", personas["spread"][1], human["spread"][1])
        self.add("user_spread_spread", personas["spread"][2], human["spread"][2])
        for name in ("mean", "spread"):
            a, b = personas[name][0], human[name][0]
            none = Estimate.none(personas[name][1].missing or human[name][1].missing)
            both = (_ks(a, b, self.seed), _ks_of_halves(b, self.seed)) if not none.missing else None
            self.add(f"user_{name}_ks", *(both or (none, none)))
            self.metadata[f"user_{name}s"] = {
                side: np.quantile(values, np.linspace(0.0, 1.0, 51)).round(4).tolist()
                if len(values)
                else []
                for side, values in (("personas", a), ("people", b))
            }
        # Answers between those of the people's scale would make any personas unlike people.
        coarse = coarser(self.scale, self.rater.source)
        answers = np.asarray(rescale(coarse.answers, coarse, self.scale))
        halves = _halves(self.same_people, self.seed)
        self.add(
            "similarity",
            histogram_similarity(self.same_personas, self.same_people, answers),
            histogram_similarity(*halves, answers),
        )
        # Training ratings of every item.
        basis, features = self.rater.catalogue.basis, self.rater.catalogue.features
        weights = np.expm1(np.asarray(np.maximum(features[:, -1] + basis.popularity, 0.0)))
        lists = self.same_personas, self.same_people
        self.add("popularity_slope", *(popularity_slope(s, weights) for s in lists))

    def compare_correlations(self) -> None:
        """Correlations between genres."""
        sides = {"personas": self.personas, "people": self.people}
        matrices = {name: genre_correlation(lists, self.genres) for name, lists in sides.items()}
        apart = np.triu_indices(self.genres.shape[1], 1)
        if len(apart[0]) > 2:
            halves = (genre_correlation(h, self.genres) for h in _halves(self.people, self.seed))
            self.add(
                "genre_correlation",
                *(
                    Estimate(_correlation(*(m[apart] for m in pair)), np.zeros(0))
                    for pair in (matrices.values(), halves)
                ),
            )
        self.metadata["genres"] = list(self.rater.catalogue.genres)
        self.metadata["correlations"] = {n: m.round(4).tolist() for n, m in matrices.items()}

    def compare_tables(self, plan: Table | None) -> None:
        """Figures of every persona's expected rating of every item."""
        most = min(_MAX_TABLE, max(2, _MAX_CELLS // max(self.items.height, 1)))
        ids = self.all_personas["persona_id"]
        chosen = ids.gather(_first(ids, most, self.seed))
        rows = (
            self.scored.filter(pl.col("persona_id").is_in(chosen.implode()))
            .select("persona_id", "item_id", "expected", "probabilities")
            .collect(engine="streaming")
        )
        if plan is not None:
            once, keys = 1.0 / pl.col("inclusion"), ["persona_id", "item_id"]
            weights = plan.lazy().drop_nulls(["inclusion", "exposure"])
            weights = weights.select(*keys, every=once, watching=once * pl.col("exposure"))
            rows = rows.lazy().join(weights, on=keys, how="left", maintain_order="left").collect()
        index = self.rater.catalogue.index
        person = rows["persona_id"].replace_strict({p: n for n, p in enumerate(chosen)})
        item = rows["item_id"].replace_strict(index)
        place = person.cast(pl.Int64).to_numpy(), item.cast(pl.Int64).to_numpy()
        expected, within = np.full((2, len(chosen), len(index)), np.nan)
        expected[place] = rows["expected"].to_numpy()
        chances = rows["probabilities"].explode().to_numpy().reshape(rows.height, -1)
        within[place] = chances @ self.scale.answers**2 - expected[place] ** 2
        if plan is not None and rows["every"].count():
            every, watching = np.zeros((2, *expected.shape))
            every[place] = rows["every"].fill_null(0.0).to_numpy()
            watching[place] = rows["watching"].fill_null(0.0).to_numpy()
            self._compare_choices(np.nan_to_num(expected), every, watching)
        enough = (~np.isnan(expected)).sum(axis=1) >= _LIST
        if enough.sum() < 2:
            none = Estimate.none(
                f"{enough.sum()} personas with {_LIST} scores; at least 2 are needed"
            )
            for name in _HEADROOM:
                self.add(name, none, none)
            return
        human = self._expected_of_people(most)
        # A longer list to choose from has better items: people choose from what a persona has.
        scores = ~np.isnan(expected[enough])
        human = np.where(scores[np.arange(len(human)) % len(scores)], human, np.nan)
        sides = (_headroom(table, self.seed) for table in (expected[enough], human))
        for name, of_personas, of_people in zip(_HEADROOM, *sides, strict=True):
            self.add(name, of_personas, of_people)
        exact = float(variance_shares(expected[enough], within[enough])[2])
        self.add("table_item_person_share", Estimate(exact, np.zeros(0)), None)

    def _compare_choices(self, expected: Floats, every: Floats, watching: Floats) -> None:
        """Mean rating of people's items by people, any personas, and those who would watch them.

        Every person counts equally. `every` and `watching`, of the shape of `expected`, (personas,
        items), are what a persona counts for an item on either side; 0 without a score.
        """
        lists = self.same_people
        scored = (every.sum(axis=0) > 0)[lists.item]
        user, item = lists.user[scored], lists.item[scored]
        size = np.bincount(user, minlength=len(lists.group))
        drawn = np.vstack([np.ones(lists.weights.shape[1]), lists.weights])[:, lists.group]
        drawn *= size > 0
        drawn /= drawn.sum(axis=1, keepdims=True)
        of_user = 1.0 / np.maximum(size, 1)[user]
        shape = (len(size), expected.shape[1])
        on_item = np.asarray(drawn @ csr_matrix((of_user, (user, item)), shape=shape))
        totals = np.bincount(user, of_user * lists.rating[scored], minlength=len(size))
        rated: Floats = drawn @ totals
        people = Estimate(float(rated[0]), rated[1:])
        rng, count = np.random.default_rng(self.seed), len(expected)
        times = np.ones((len(drawn), count))
        times[1:] = rng.multinomial(count, np.full(count, 1.0 / count), size=len(drawn) - 1)
        for name, weight in (("_any", every), ("", watching)):
            total = times @ weight
            # An item whose personas a draw leaves out has its usual mean.
            mean = (times @ (weight * expected)) / np.where(total > 0, total, np.nan)
            mean = np.where(np.isnan(mean), np.nan_to_num(mean[0]), mean)
            alone, both = mean @ on_item[0], np.einsum("di,di->d", mean, on_item)
            self.add(f"watched{name}", Estimate(float(alone[0]), alone[1:]), people)
            gap = rated - both
            self.add(f"choice_gap{name}", Estimate(float(gap[0]), gap[1:]), None)

    def _expected_of_people(self, most: int) -> Floats:
        """Expected ratings of people of all items, given their training ratings."""
        rater = self.rater
        rows = rater.training_rows(self.interactions, self.splits, most_users=most)
        stars = np.asarray(rescale(rows.rating, rater.source, rater.scale), np.float64)
        users = pl.Series(rows.users, dtype=pl.String).gather(rows.user)
        ids = pl.Series(list(rater.catalogue.index), dtype=pl.String).gather(rows.item)
        histories = pl.DataFrame({"persona_id": users, "item_id": ids, "rating": stars})
        batch = rater.rate(persona_rows(rows.users, None), self.items, histories)
        return batch.expected.reshape(len(rows.users), -1)


def _sampled(rows: pl.LazyFrame, key: str, most: int, seed: int) -> pl.DataFrame:
    """Ids in the order of their hashes, as many as have `most` rows together."""
    counts = rows.group_by(key).len().collect(engine="streaming")
    counts = counts.with_columns(pl.Series("order", combine(seed, hash_ids(counts[key]))))
    counts = counts.sort("order").filter(pl.col("len").cast(pl.Int64).cum_sum() <= most)
    return counts.select(key)


def _first(ids: pl.Series, count: int, seed: int) -> Ints:
    """Rows of at most `count` ids, the first by hash, ascending."""
    order = np.argsort(combine(seed, hash_ids(ids)), kind="stable")
    return np.sort(order[:count])


def _ks(first: Floats, second: Floats, seed: int) -> Estimate:
    rng = np.random.default_rng(seed)
    drawn = [ks_distance(rng.choice(first, len(first)), second) for _ in range(100)]
    return Estimate(ks_distance(first, second), np.array(drawn))


def _ks_of_halves(values: Floats, seed: int) -> Estimate:
    """Mean distance between random halves of the values: what chance gives."""
    rng = np.random.default_rng(seed)
    parts = (rng.permutation(values) for _ in range(100))
    drawn = np.array([ks_distance(p[: len(p) // 2], p[len(p) // 2 :]) for p in parts])
    return Estimate(float(drawn.mean()), drawn)


def _halves(lists: Lists, seed: int) -> tuple[Lists, Lists]:
    """Two sides of a random half of the raters each."""
    rng = np.random.default_rng(seed)
    first = rng.permutation(len(lists.rater)) % 2 == 0
    out = []
    for side in (first, ~first):
        selected = side[lists.user]
        place = np.cumsum(side) - 1
        rows = (place[lists.user[selected]], lists.item[selected], lists.rating[selected])
        out.append(Lists.of(*rows, lists.rater[side], seed=seed))
    return out[0], out[1]


def _correlation(first: Floats, second: Floats) -> float:
    if first.std() == 0 or second.std() == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _headroom(expected: Floats, seed: int) -> list[Estimate]:
    """Headroom and its parts (`_HEADROOM`), with a bootstrap over the persons of the table."""
    by_person = headroom_by_person(expected, size=_LIST)
    size = len(by_person)
    rng = np.random.default_rng(seed)
    means = rng.multinomial(size, np.full(size, 1.0 / size), size=_DRAWS) @ by_person / size
    parts = np.vstack([by_person.mean(axis=0), means]).T
    return [Estimate(float(v[0]), v[1:]) for v in (parts[0] - parts[1], *parts)]


def population_markdown(table: pl.DataFrame, metadata: Mapping[str, Any]) -> str:
    """The report as a table for people, with what the figures mean."""
    lines = [
        str(metadata["statement"]),
        "",
        "| figure | unit | personas | people | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in population_rows(table)]
    chance = dict(table.select("figure", "chance").drop_nulls().iter_rows())
    lines += [
        "",
        "Intervals: 95 %, bootstrap over people and over personas. Shares of the variance are "
        "moments of products of ratings (Haseman and Elston, 1972); taste is what is linear in "
        "genres, text, year, popularity and quality, for both sides."
        + (
            f" With personas shuffled among the scores of each item it is {share:.3f}."
            if (share := chance.get("item_person_share")) is not None
            else ""
        )
        + (
            " Split-half covariances are those beyond a shuffle of each list's items "
            f"({covariance:.3f} for personas)."
            if (covariance := chance.get("split_half_covariance")) is not None
            else ""
        ),
        "",
        "For distances, similarity and agreement of correlations, the column of people compares "
        "random halves of the people: what chance gives. People's gap is on held-out ratings, the "
        "genres being those of the largest and smallest surpluses in training. People's headroom "
        "is as far as their training ratings tell, a lower bound, over the items that a persona "
        "has a score of. Personas who would watch an "
        "item: all who were scored, each counting by its exposure. AUC and slope of exposure: "
        "people's latest ratings (split test) against items that they never rated.",
    ]
    for name, reasons in metadata.get("missing", {}).items():
        text = "; ".join(f"{side}, {reason}" for side, reason in reasons.items())
        lines += ["", f"No figure of {POPULATION_FIGURES[name][0]}: {text}."]
    if metadata.get("reading"):
        lines += ["", f"Personas: {reading_statement(metadata['reading'])}"]
    return "\n".join(lines)


def population_rows(table: pl.DataFrame) -> list[tuple[str, ...]]:
    """Figures as text: name, unit, personas, people, ratio; values with their 95 % intervals."""
    figures = {row["figure"]: row for row in table.iter_rows(named=True)}
    return [
        (
            title,
            unit,
            *(_cell(*(row[f"{side}_{end}"] for end in _ENDS)) for side in ("personas", "people")),
            _cell(row["ratio"], row["ratio_low"], row["ratio_high"], digits=2, empty=""),
        )
        for name, (title, unit) in POPULATION_FIGURES.items()
        if (row := figures.get(name)) is not None
    ]


def _cell(
    value: float | None, low: float | None, high: float | None, digits: int = 3, empty: str = "-"
) -> str:
    if value is None:
        return empty
    ends = "" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{ends}"


def population_pictures(table: pl.DataFrame, metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """PNG pictures by title."""
    from pipelines.figures import grouped_bars

    values = {
        side: dict(table.select("figure", pl.col(f"{side}_value").fill_null(np.nan)).iter_rows())
        for side in ("personas", "people")
    }

    def bars(title: str, y: str, names: Sequence[str], labels: Sequence[str]) -> bytes:
        sides = [(side, [v.get(name, np.nan) for name in names]) for side, v in values.items()]
        return grouped_bars(title, "", y, labels, sides)

    shares = ("item_share", "leniency_share", "item_person_share", "rest_share")
    lists = ("random_items", "common_list", "oracle")
    return {
        "variance": bars(
            "Shares of the variance of ratings",
            "share",
            shares,
            ("item", "leniency", "item x person", "rest"),
        ),
        "headroom": bars(
            "Mean expected rating of ten items",
            f"rating on {metadata['scale']}",
            lists,
            ("any", "best for all", "own best"),
        ),
        **{
            f"user {name}s": _distributions(f"Users' {title}", metadata[f"user_{name}s"])
            for name, title in (("mean", "means"), ("spread", "standard deviations"))
        },
        "genres": _heatmaps(metadata["genres"], metadata["correlations"]),
    }


def _distributions(title: str, quantiles: Mapping[str, Sequence[float]]) -> bytes:
    from pipelines.figures import BLUE, ORANGE, canvas, empty, png

    if not quantiles["personas"] or not quantiles["people"]:
        return empty(title)
    figure, axes = canvas(title, "points", "share of users below")
    for side, colour in (("personas", BLUE), ("people", ORANGE)):
        values = quantiles[side]
        axes.plot(values, np.linspace(0, 1, len(values)), color=colour, label=side, linewidth=2)
    axes.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return png(figure)


def _heatmaps(genres: Sequence[str], correlations: Mapping[str, Any]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from pipelines.figures import empty, label, png

    if not genres:
        return empty("Correlation of genres")
    figure = Figure(figsize=(10, 5), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    names = [label(g) for g in genres]
    for n, (side, matrix) in enumerate(correlations.items()):
        axes: Any = figure.add_subplot(1, 2, n + 1)
        drawn = axes.imshow(np.array(matrix), vmin=-1, vmax=1, cmap="RdBu_r")
        axes.set_title(f"Correlation of genres: {side}", fontsize=11, loc="left")
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
    figure.colorbar(drawn, ax=figure.axes, shrink=0.7)
    return png(figure)
