"""Baseline predictors: means, biases, matrix factorisation and gradient boosting.

Matrix factorisation is Surprise's (Hug, "Surprise: A Python library for recommender systems",
JOSS 5, 2020), with its default settings and with settings tuned on validation ratings; gradient
boosting is scikit-learn's, on what the statistical rater knows too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.report._held_out import People
from pipelines.raters.report._metrics import Predictions
from pipelines.raters.statistical import HumanRows, genre_matrix

#: The baseline that others are compared with, pair by pair.
BIAS = "user+item bias"
#: Pseudo-ratings that users' and items' biases are shrunk with: best on the validation ratings of
#: ml-latest-small and ml-100k among (5, 5), (15, 10), (3, 3) and (5, 3). Passes (count).
_USER_DAMPING, _ITEM_DAMPING, _PASSES = 5.0, 3.0, 10
#: Settings of matrix factorisation tuned on validation ratings of ml-latest-small: of 54, the
#: fewest factors within 0.001 of the best RMSE (benchmarks/raters/README.md).
_TUNED: dict[str, Any] = {"n_factors": 20, "n_epochs": 60, "lr_all": 0.007, "reg_all": 0.1}
#: Votes of others that an item may have: columns of `items`.
VOTES = ("vote_average", "vote_count")
#: Folds in which the attributes of training ratings are made without the ratings themselves.
_FOLDS = 5


def predict_baseline(name: str, people: People, *, seed: int = 0) -> Predictions:
    """Predictions of the held-out ratings by one of `BASELINES`, fitted on `people.train`.

    ``seed`` is that of the matrix factorisation's start and order.
    """
    expected = BASELINES[name](people, seed)
    return Predictions(name, np.clip(expected, people.scale.low, people.scale.high))


def _global_mean(people: People, seed: int) -> Floats:  # noqa: ARG001 (one signature for all)
    return np.full(len(people.held_out), people.train.rating.mean())


def _item_mean(people: People, seed: int) -> Floats:  # noqa: ARG001 (one signature for all)
    train, size = people.train, people.items.height
    mean = float(train.rating.mean())
    count = np.bincount(train.item, minlength=size)
    total = np.bincount(train.item, train.rating, minlength=size)
    means = np.where(count > 0, total / np.maximum(count, 1), mean)
    return np.asarray(means[people.held_out.item])


def _bias(people: People, seed: int) -> Floats:  # noqa: ARG001 (one signature for all)
    train, held = people.train, people.held_out
    mean = float(train.rating.mean())
    users, items = len(train.users), people.items.height
    by_user, by_item = np.zeros(users), np.zeros(items)
    user_count = np.bincount(train.user, minlength=users)
    item_count = np.bincount(train.item, minlength=items)
    for _ in range(_PASSES):
        residual = train.rating - mean - by_user[train.user]
        by_item = np.bincount(train.item, residual, minlength=items) / (item_count + _ITEM_DAMPING)
        residual = train.rating - mean - by_item[train.item]
        by_user = np.bincount(train.user, residual, minlength=users) / (user_count + _USER_DAMPING)
    return np.asarray(mean + by_user[people.person()] + by_item[held.item])


def _als(people: People, seed: int) -> Floats:  # noqa: ARG001 (one signature for all)
    from surprise import BaselineOnly  # type: ignore[import-untyped]

    model = BaselineOnly(bsl_options={"method": "als"}, verbose=False)
    trainset, place = _trainset(people)
    model.fit(trainset)
    user, item = people.person(), place[people.held_out.item]
    rated = item >= 0
    bias = np.where(rated, np.asarray(model.bi)[item], 0.0)
    return np.asarray(trainset.global_mean + np.asarray(model.bu)[user] + bias)


def _svd(people: People, seed: int, **settings: Any) -> Floats:
    from surprise import SVD

    model = SVD(random_state=seed, **settings)
    trainset, place = _trainset(people)
    model.fit(trainset)
    user, item = people.person(), place[people.held_out.item]
    rated = item >= 0
    factors = np.einsum("ij,ij->i", np.asarray(model.pu)[user], np.asarray(model.qi)[item])
    # As Surprise itself predicts: for an unrated item only the user's bias is known.
    of_item = np.where(rated, np.asarray(model.bi)[item] + factors, 0.0)
    return np.asarray(trainset.global_mean + np.asarray(model.bu)[user] + of_item)


def _trainset(people: People) -> tuple[Any, Ints]:
    """Surprise's training set, and the number in it of each item (-1 for one without rating)."""
    from surprise import Trainset

    train: HumanRows = people.train
    rated, inner = np.unique(train.item, return_inverse=True)
    place = np.full(people.items.height, -1, dtype=np.int64)
    place[rated] = np.arange(len(rated))
    by_user: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    by_item: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    # Its loops read lists of Python numbers.
    for u, i, r in zip(train.user.tolist(), inner.tolist(), train.rating.tolist(), strict=True):
        by_user[u].append((i, r))
        by_item[i].append((u, r))
    return Trainset(
        by_user,
        by_item,
        len(train.users),
        len(rated),
        len(train),
        (people.scale.low, people.scale.high),
        {u: n for n, u in enumerate(train.users)},
        {int(i): n for n, i in enumerate(rated)},
    ), place


def _boosting(people: People, seed: int, *, votes: bool = True, person: bool = True) -> Floats:
    """Gradient boosting on attributes of items, and of persons unless they are unknown."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    train = people.train
    fold = np.random.default_rng(seed).integers(0, _FOLDS, len(train))
    columns = partial(_attributes, people.items, votes=votes, person=person)
    parts = [columns(train.take(fold != n), train.take(fold == n)) for n in range(_FOLDS)]
    order = np.concatenate([np.flatnonzero(fold == n) for n in range(_FOLDS)])
    features, held = np.concatenate(parts), people.held_out
    targets = HumanRows(train.users, people.person(), held.item, held.rating)
    # A source without years or votes has columns without a value.
    top = np.where(np.isnan(features), -np.inf, features).max(axis=0)
    varying = top > np.where(np.isnan(features), np.inf, features).min(axis=0)
    if not varying.any():  # no feature separates two ratings
        return np.full(len(held), float(train.rating.mean()))
    model = HistGradientBoostingRegressor(
        learning_rate=0.1, max_iter=150, min_samples_leaf=50, random_state=seed
    )
    # Its threads wait for each other actively: on busy cores one is faster than several.
    with threadpool_limits(1):
        model.fit(features[:, varying], train.rating[order])
        return np.asarray(model.predict(columns(train, targets)[:, varying]), np.float64)


def _attributes(
    items: pl.DataFrame, train: HumanRows, pairs: HumanRows, *, votes: bool, person: bool
) -> Floats:
    """Features of `pairs`, from the ratings `train` and the items' own attributes."""
    size, users = items.height, len(train.users)
    mean = float(train.rating.mean())
    genres = sorted(set(items["genres"].explode().drop_nulls().to_list()))
    listed = np.asarray(genre_matrix(items["genres"], genres), np.float64)
    count = np.bincount(train.item, minlength=size)
    quality = np.bincount(train.item, train.rating - mean, minlength=size) / (count + _ITEM_DAMPING)
    numbers = [count, quality]
    numbers += [_numbers(items, name) for name in ("year", *(VOTES if votes else ()))]
    columns = [np.column_stack([*numbers, listed])[pairs.item]]
    if person:
        residual = train.rating - mean - quality[train.item]
        rated = np.bincount(train.user, minlength=users)
        lenient = np.bincount(train.user, residual, minlength=users) / (rated + _USER_DAMPING)
        residual = residual - lenient[train.user]
        cells, shape = (train.user, train.item), (users, size)
        seen = csr_matrix((np.ones(len(train)), cells), shape=shape) @ listed
        taste = (csr_matrix((residual, cells), shape=shape) @ listed) / (seen + _USER_DAMPING)
        felt = taste[pairs.user] * listed[pairs.item]
        several = np.maximum(listed[pairs.item].sum(axis=1), 1.0)
        features = [rated[pairs.user], lenient[pairs.user], felt.sum(axis=1) / several]
        if genres:
            features += [felt.max(axis=1), felt.min(axis=1)]
        columns.append(np.column_stack(features))
    return np.concatenate(columns, axis=1)


def _numbers(items: pl.DataFrame, name: str) -> Floats:
    if name not in items.columns:
        return np.full(items.height, np.nan)
    return items[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()


#: Baselines by name.
BASELINES: dict[str, Callable[[People, int], Floats]] = {
    "global mean": _global_mean,
    "item mean": _item_mean,
    BIAS: _bias,
    "ALS (Surprise BaselineOnly)": _als,
    "MF (Surprise SVD)": _svd,
    "MF (Surprise SVD, tuned)": partial(_svd, **_TUNED),
    "gradient boosting": _boosting,
    "gradient boosting, no votes": partial(_boosting, votes=False),
    "gradient boosting, no person": partial(_boosting, person=False),
}
#: Baselines that ask nothing of the person: those of people without a history.
COLD_BASELINES = ("global mean", "item mean", "gradient boosting, no person")
