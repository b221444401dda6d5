"""Selection model: P(watch | person, item), fitted on what people chose to rate.

Ratings are missing not at random: people rate what they choose (Marlin and Zemel,
"Collaborative prediction and ranking with non-random missing data", RecSys 2009). The log odds
that a person has watched an item are the item's offset plus the person's taste for it, weighted by
kind of taste: genres, text, year, popularity, quality.

The weights are fitted by conditional logistic regression on matched sets: later training
interactions of a person against items of about the same popularity that it has not rated, with
taste as its earlier training ratings tell it (Breslow and Day, "Statistical methods in cancer
research" 1, 1980, chapter 7). What a set has in common, the person's activity and the items'
popularity, drops out. An item's offset makes its mean probability over people the share of people
who rated it in training, so that probabilities of different items compare. No held-out interaction
enters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import expit, logit

from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.statistical.profiles import Catalogue, HumanRows, collect_rows
from pipelines.raters.statistical.rater import StatisticalRater
from pipelines.seeding import hash_ids, uniform

Table: TypeAlias = pl.DataFrame | pl.LazyFrame

#: Kinds of taste that have a weight each, as `Catalogue.taste_groups` orders them.
KINDS = ("genres", "text", "year", "popularity", "quality")
#: Unseen items nearest in training rank that a negative is drawn from, and negatives of a
#: positive (counts).
NEAREST, NEGATIVES = 30, 4
#: People and matched sets below which popularity alone decides (counts, set by hand).
MIN_PEOPLE, MIN_SETS = 50, 500
#: Training interactions that are fitted on, and test ones that are judged, at most (counts): whole
#: people, chosen by hash.
MAX_ROWS, MAX_HELD = 300_000, 100_000
#: Earlier share of a person's training interactions, which its taste is taken from.
_PROFILE_SHARE = 0.7
#: Pseudo-people of whom half an item's prior share watched it (count).
_PSEUDO = 1.0
#: Newton steps of the offsets, and nodes of the quadrature over tastes (counts).
_STEPS, _NODES = 15, 15
#: Draws of a bootstrap over people (count).
_DRAWS = 1_000


@dataclass(frozen=True)
class ExposureModel:
    """Selection model over a catalogue."""

    #: Row of each item id.
    items: dict[str, int]
    #: Log odds of each item for an average taste, of shape (items,).
    offsets: Floats
    #: Log odds per unit of a person's weights over the taste columns, of shape (items, 1 +
    #: features).
    columns: Floats
    #: Data of the fit, and the weights with their 95 % intervals; ready for JSON.
    metadata: dict[str, Any]

    def probabilities(self, tastes: Floats, items: Ints | None = None) -> Floats:
        """P(watch) of persons with these tastes, of shape (persons, items).

        ``tastes`` are weights over the taste columns, of shape (persons, 1 + features), as of
        :meth:`pipelines.raters.StatisticalRater.persona_tastes`; ``items`` are rows of the
        catalogue, of shape (items,) for every person, or (persons, items); default all.
        """
        rows: Any = slice(None) if items is None else items
        if items is not None and items.ndim == 2:
            out = np.einsum("pf,pif->pi", tastes, self.columns[rows], optimize=True)
        else:
            out = tastes @ self.columns[rows].T
        out += self.offsets[rows]
        return np.asarray(expit(out, out=out))

    def of(self, ids: pl.Series, tastes: Floats) -> Callable[..., Floats]:
        """P(watch) as a function of ids, of persons (rows of `tastes`) and items.

        The third argument gives each person items of its own: places in the series of item ids,
        of shape (persons, places); None for all of them.
        """

        def exposure(persons: pl.Series, items: pl.Series, places: Ints | None = None) -> Floats:
            who = persons.replace_strict(people, return_dtype=pl.Int64).to_numpy()
            rows = items.replace_strict(self.items, return_dtype=pl.Int64).to_numpy()
            return self.probabilities(tastes[who], rows if places is None else rows[places])

        people = {person: n for n, person in enumerate(ids)}
        return exposure


def fit_exposure(
    rater: StatisticalRater, interactions: Table, splits: Table, *, seed: int = 0
) -> ExposureModel:
    """Fit the selection model on the training split, which ``rater`` was fitted on, too.

    With too few people or matched sets for weights, popularity alone decides; the metadata give the
    reason. Tables may be lazy; negatives are drawn by the seed and the ids of user and item.
    """
    catalogue = rater.catalogue
    train = splits.lazy().filter(pl.col("split") == "train")
    counts, people = _training_counts(train, catalogue.index)
    rows = collect_rows(interactions, splits, "train", catalogue, most=MAX_ROWS)
    early = rows.earlier(_PROFILE_SHARE)
    late = rows.take(~early)
    tastes = human_tastes(rater, rows.take(early))
    negatives = _negatives(
        late, rows.user, rows.item, _by_rank(counts), list(catalogue.index), NEGATIVES, NEAREST,
        seed,
    )  # fmt: skip
    valid = negatives[:, 0] >= 0
    user, positive, negatives = late.user[valid], late.item[valid], negatives[valid]
    fitted = len(np.unique(user))
    metadata: dict[str, Any] = {
        "people": fitted,
        "positives": len(user),
        "without_negatives": int((~valid).sum()),
        "split": "train",
        "basis": "taste and popularity",
    }
    groups = catalogue.taste_groups
    weights = np.zeros(len(groups))
    if fitted < MIN_PEOPLE or len(user) < MIN_SETS:
        metadata["basis"] = (
            f"popularity alone: {fitted} people with {len(user)} matched sets, "
            f"fewer than {MIN_PEOPLE} or {MIN_SETS}"
        )
    else:
        repeated = np.repeat(user, NEGATIVES)
        sides = np.repeat(positive, NEGATIVES), negatives.ravel()
        felt = _affinities(tastes, catalogue.taste, groups, repeated, *sides)
        # Preferences that all people share among equally popular items are no personal taste.
        usual = catalogue.taste[sides[0], 1:] - catalogue.taste[sides[1], 1:]
        weights, errors = _fit(np.column_stack([felt, usual]), repeated, len(groups))
        metadata["weights"] = {
            name: _interval(value, error)
            for name, value, error in zip(_kinds(catalogue), weights, errors, strict=True)
        }
    by_column = np.zeros(catalogue.taste.shape[1])
    for columns, weight in zip(groups, weights, strict=True):
        by_column[columns] = weight
    scaled = catalogue.taste * by_column
    variance = np.einsum("ij,ij->i", scaled @ rater.drawn.covariance, scaled)
    share = (counts + _PSEUDO * counts.mean() / people) / (people + _PSEUDO)
    return ExposureModel(dict(catalogue.index), _offsets(share, variance), scaled, metadata)


def human_tastes(rater: StatisticalRater, rows: HumanRows) -> Floats:
    """Posterior mean of people's tastes given ratings, of shape (users, 1 + features)."""
    tastes = rater.beliefs_of(rows).mean
    # The first column is leniency.
    tastes[:, 0] = 0.0
    return tastes


def _training_counts(train: pl.LazyFrame, index: dict[str, int]) -> tuple[Floats, int]:
    """Training interactions of each item, and people with any."""
    tallies = train.group_by("item_id").len().collect(engine="streaming")
    counts = np.zeros(len(index))
    rows = tallies["item_id"].replace_strict(index, default=-1, return_dtype=pl.Int64).to_numpy()
    counts[rows[rows >= 0]] = tallies["len"].to_numpy()[rows >= 0]
    people = train.select(pl.col("user_id").n_unique()).collect(engine="streaming").item()
    return counts, max(int(people), 1)


def _negatives(
    positives: HumanRows,
    seen_by: Ints,
    seen: Ints,
    order: Ints,
    ids: list[str],
    count: int,
    nearest: int | None,
    seed: int,
) -> Ints:
    """Unseen items for each positive, of shape (positives, count); -1 where all are seen.

    ``positives`` are sorted by user; ``seen_by`` (ascending) and ``seen`` are user and item of all
    they rated; ``order`` are items, the most rated first. Negatives are drawn with replacement from
    the ``nearest`` unseen items in rank, as many before as after the positive (None: from all);
    draws belong to the seed and the ids of user and item.
    """
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    keys = hash_ids(positives.users)[positives.user], hash_ids(ids)[positives.item]
    draw = uniform(seed, keys[0][:, None], keys[1][:, None], np.arange(count))
    out = np.full((len(positives), count), -1, dtype=np.int64)
    people = np.arange(len(positives.users) + 1)
    bounds, other = (np.searchsorted(side, people) for side in (positives.user, seen_by))
    for n in np.unique(positives.user):
        part = slice(bounds[n], bounds[n + 1])
        free = np.ones(len(order), dtype=np.bool_)
        free[rank[seen[other[n] : other[n + 1]]]] = False
        unseen = np.flatnonzero(free)
        if not len(unseen):
            continue
        width = len(unseen) if nearest is None else min(nearest, len(unseen))
        at = np.searchsorted(unseen, rank[positives.item[part]])
        start = np.clip(at - width // 2, 0, len(unseen) - width)
        out[part] = order[unseen[start[:, None] + (draw[part] * width).astype(np.int64)]]
    return out


def _affinities(
    tastes: Floats, taste: Floats, groups: tuple[Ints, ...], user: Ints, first: Ints, other: Ints
) -> Floats:
    """Taste for one item less that for another by kind, in rating units: (pairs, kinds)."""
    out = np.empty((len(user), len(groups)))
    for n, columns in enumerate(groups):
        gap = taste[np.ix_(first, columns)] - taste[np.ix_(other, columns)]
        out[:, n] = np.einsum("ij,ij->i", tastes[np.ix_(user, columns)], gap)
    return out


def _fit(gaps: Floats, user: Ints, kinds: int) -> tuple[Floats, Floats]:
    """First `kinds` weights and their standard errors, robust to dependence within a person."""
    from sklearn.linear_model import LogisticRegression

    # A difference and its negative are the two classes; the likelihood is the conditional one.
    sign = np.where(np.arange(len(gaps)) % 2, 1.0, -1.0)
    model = LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky")
    weights = model.fit(gaps * sign[:, None], sign).coef_[0]
    chance = expit(gaps @ weights)
    curvature = (gaps * (chance * (1.0 - chance))[:, None]).T @ gaps + np.eye(gaps.shape[1])
    scores = np.zeros((int(user.max()) + 1, gaps.shape[1]))
    np.add.at(scores, user, gaps * (1.0 - chance)[:, None])
    inverse = np.linalg.inv(curvature)
    errors = np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))
    return weights[:kinds], errors[:kinds]


def _kinds(catalogue: Catalogue) -> list[str]:
    """Kinds of taste that the catalogue has columns of."""
    genres, features = len(catalogue.genres), catalogue.features.shape[1]
    sizes = (genres, features - genres - 2, 1, 1, 1)
    return [kind for kind, columns in zip(KINDS, sizes, strict=True) if columns]


def _offsets(share: Floats, variance: Floats) -> Floats:
    """Log odds at which the mean probability over normal tastes is the share, of shape (items,)."""
    nodes, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    weight = weight / weight.sum()
    around = np.sqrt(np.maximum(variance, 0.0))[:, None] * nodes
    share = np.clip(share, 1e-9, 1.0 - 1e-9)
    out = np.asarray(logit(share))
    for _ in range(_STEPS):
        chance = expit(out[:, None] + around)
        mean = chance @ weight
        slope = (chance * (1.0 - chance)) @ weight
        # On the scale of log odds the equation is nearly linear.
        out += (logit(share) - logit(mean)) * mean * (1.0 - mean) / slope
    return np.asarray(out)


def judge_exposure(
    model: ExposureModel,
    rater: StatisticalRater,
    interactions: Table,
    splits: Table,
    *,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Area under the ROC curve of test interactions against items that a person never rated.

    The area is the share of (interaction, other item) pairs of one person that the model orders
    rightly, a tie counting half; the mean over people, with a 95 % interval of a bootstrap over
    people. The popularity baseline orders by training interactions. At most `MAX_HELD` test
    rows are taken; ``seed`` draws the negatives.

    Figures are ``matched`` (negatives near in training rank, where popularity is near 0.5 by
    construction), ``uniform`` and the popularity baselines ``matched_popularity`` and
    ``uniform_popularity``, each as ``value``, ``low`` and ``high``; ``slope`` of the log odds on
    matched negatives, which is 1 if taste is weighed as it should be. Empty without held-out rows
    that have negatives.
    """
    catalogue = rater.catalogue
    held = collect_rows(interactions, splits, "test", catalogue, most=MAX_HELD)
    place = {user: n for n, user in enumerate(held.users)}
    train_rows = rater.training_rows(interactions, splits, users=held.users)
    tastes = np.zeros((len(held.users), catalogue.taste.shape[1]))
    tastes[[place[user] for user in train_rows.users]] = human_tastes(rater, train_rows)
    seen = (
        interactions.lazy()
        .filter(pl.col("user_id").is_in(held.users))
        .select(
            user=pl.col("user_id").replace_strict(place, default=None, return_dtype=pl.Int64),
            item=pl.col("item_id").replace_strict(catalogue.index, return_dtype=pl.Int64),
        )
        .sort("user")
        .collect(engine="streaming")
    )
    counts, _ = _training_counts(splits.lazy().filter(pl.col("split") == "train"), catalogue.index)
    out: dict[str, dict[str, float]] = {}
    for name, nearest in (("matched", NEAREST), ("uniform", None)):
        drawn = _negatives(
            held, seen["user"].to_numpy(), seen["item"].to_numpy(), _by_rank(counts),
            list(catalogue.index), NEGATIVES, nearest, seed,
        )  # fmt: skip
        valid = drawn[:, 0] >= 0
        if not valid.any():
            continue
        user = np.repeat(held.user[valid], NEGATIVES)
        sides = np.repeat(held.item[valid], NEGATIVES), drawn[valid].ravel()
        felt, other = (np.einsum("ij,ij->i", tastes[user], model.columns[side]) for side in sides)
        gap = model.offsets[sides[0]] - model.offsets[sides[1]] + felt - other
        out[name] = _area(gap, user, seed)
        out[f"{name}_popularity"] = _area(counts[sides[0]] - counts[sides[1]], user, seed)
        if nearest is not None and (felt != other).any():
            usual = catalogue.taste[sides[0], 1:] - catalogue.taste[sides[1], 1:]
            value, error = _fit(np.column_stack([felt - other, usual]), user, 1)
            out["slope"] = _interval(value[0], error[0])
    return out


def _interval(value: float, error: float) -> dict[str, float]:
    ends = {"value": value, "low": value - 1.96 * error, "high": value + 1.96 * error}
    return {name: round(float(end), 6) for name, end in ends.items()}


def _area(gap: Floats, user: Ints, seed: int) -> dict[str, float]:
    """Mean over users of the share of their gaps above 0, a tie counting half."""
    _, place, count = np.unique(user, return_inverse=True, return_counts=True)
    share = np.bincount(place, (gap > 0) + 0.5 * (gap == 0)) / count
    drawn = np.random.default_rng(seed).integers(0, len(share), (_DRAWS, len(share)))
    low, high = np.quantile(share[drawn].mean(axis=1), [0.025, 0.975])
    return {"value": float(share.mean()), "low": float(low), "high": float(high)}


def _by_rank(counts: Floats) -> Ints:
    """Items, the most counted first, ties by id."""
    return np.asarray(np.argsort(-counts, kind="stable"))


def inclusion(exposure: Floats, count: int) -> Floats:
    """Probabilities proportional to exposure that sum to `count`, none above 1.

    ``exposure`` is above 0, of shape (persons, items); ``count`` are the items of a person's
    sample, at most all.

    Examples
    --------
    >>> inclusion(np.array([[0.6, 0.1, 0.1]]), 2).tolist()
    [[1.0, 0.5, 0.5]]
    """
    out = np.array(exposure, dtype=np.float64)
    if count >= out.shape[1]:
        return np.ones_like(out)
    sure = np.zeros(out.shape, dtype=np.bool_)
    for _ in range(out.shape[1]):
        remaining = np.where(sure, 0.0, exposure).sum(axis=1, keepdims=True)
        out = np.where(sure, 1.0, exposure * (count - sure.sum(axis=1, keepdims=True)) / remaining)
        more = (out > 1.0) & ~sure
        if not more.any():
            break
        sure |= more
    return np.minimum(out, 1.0)


def draw_sample(chance: Floats, order: npt.NDArray[np.uint64], start: Floats, count: int) -> Ints:
    """Systematic samples with these inclusion probabilities, of shape (persons, count), ascending.

    ``chance`` are the probabilities, which sum to ``count``, and ``order`` random keys that items
    are passed through in, both of shape (persons, items); ``start`` is random in [0, 1), of shape
    (persons,). Madow, "On the theory of systematic sampling, II", Annals of Mathematical Statistics
    20, 1949.
    """
    passed = np.argsort(order, axis=1)
    total = np.cumsum(np.take_along_axis(chance, passed, axis=1), axis=1)
    # The sum is the count but for rounding.
    place = np.floor(total * (count / total[:, -1:]) + start[:, None] + 1e-9).astype(np.int64)
    # Both ends are fixed, so that rounding changes no size.
    place[:, -1] = count
    taken = np.diff(np.minimum(place, count), axis=1, prepend=0) > 0
    rows, columns = np.nonzero(taken)
    return np.asarray(np.sort(passed[rows, columns].reshape(len(chance), count), axis=1))
