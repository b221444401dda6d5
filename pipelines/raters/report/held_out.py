"""Raters and baselines on held-out ratings of people.

People are personas with the text of their traits, their training ratings the history
(:class:`People`). Matrix factorisation is Surprise's (Hug, "Surprise: A Python library for
recommender systems", JOSS 5, 2020), with its default settings and with settings tuned on validation
ratings; gradient boosting is scikit-learn's, on what the statistical rater knows too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import csr_matrix

from pipelines.errors import ContractError
from pipelines.personas import reading_counts, reading_statement
from pipelines.raters.protocol import OK, Floats, Ints, Rater, RatingBatch
from pipelines.raters.report.calibration import Calibration, fit_calibration
from pipelines.raters.report.metrics import (
    HeldOut,
    Predictions,
    evaluate,
    paired_difference,
    reliability,
)
from pipelines.raters.statistical.fit import fit_statistical
from pipelines.raters.statistical.profiles import (
    Catalogue,
    HumanRows,
    collect_rows,
    genre_matrix,
    source_scale,
)
from pipelines.raters.statistical.rater import HUMAN, StatisticalRater
from pipelines.scales import RatingScale, rescale, to_answers
from pipelines.study import Figure, Row, Study, draw

Table: TypeAlias = pl.DataFrame | pl.LazyFrame

#: Pairs that a rater is asked at once (count); whole users.
_BATCH = 65_536
#: Training ratings that baselines are fitted on, and held-out ratings, at most (counts): whole
#: users, chosen by a hash of their ids, so that cost does not grow with the source.
MAX_TRAIN, MAX_HELD_OUT = 1_000_000, 100_000
_GENDERS = {"F": "female", "M": "male", "female": "female", "male": "male"}
_NOUNS = {"female": "woman", "male": "man"}


@dataclass(frozen=True)
class People:
    """Held-out ratings of some users, and what is known of these users."""

    #: Rows of the `items` contract.
    items: pl.DataFrame
    #: Training ratings of those whom predictors may learn from, and the ratings to predict; who is
    #: in `held_out` is in `train`.
    train: HumanRows
    held_out: HumanRows
    #: The source's scale.
    scale: RatingScale
    #: Rows of `human_users`, or None.
    traits: pl.DataFrame | None = None

    def person(self) -> Ints:
        """Row of each held-out rating's user among those of `train`, of shape (held out,)."""
        place = {user: n for n, user in enumerate(self.train.users)}
        return np.array([place[u] for u in self.held_out.users], dtype=np.int64)[self.held_out.user]

    def truth(self, chosen: npt.NDArray[np.bool_] | None = None) -> HeldOut:
        """The ratings to predict, or those of a mask; users are numbered without gaps."""
        mask = np.ones(len(self.held_out), dtype=np.bool_) if chosen is None else chosen
        user = np.unique(self.held_out.user[mask], return_inverse=True)[1]
        return HeldOut(user.astype(np.int64), self.held_out.rating[mask], self.scale)

    def first(self, most: int | None) -> npt.NDArray[np.bool_]:
        """Mask of as many whole users' ratings as `most` allows, but of one user at least."""
        if most is None or len(self.held_out) <= most:
            return np.ones(len(self.held_out), dtype=np.bool_)
        ends = np.cumsum(np.bincount(self.held_out.user))
        return np.asarray(self.held_out.user <= max(int((ends <= most).sum()) - 1, 0))


@dataclass(frozen=True)
class RaterAnswers:
    """A rater's predictions of the held-out ratings of the mask `answered`."""

    predictions: Predictions
    answered: npt.NDArray[np.bool_]
    failed: int


def collect_people(
    *,
    items: pl.DataFrame,
    interactions: Table,
    splits: Table,
    split: str,
    human_users: pl.DataFrame | None = None,
) -> People:
    """Ratings of one split, and the training ratings of their users and of others.

    ``split`` is ``validation`` or ``test``; large tables may be lazy. At most `MAX_TRAIN` training
    and `MAX_HELD_OUT` held-out ratings are taken: whole users, chosen by hash. Raises ContractError
    if the split has no rating.
    """
    index = Catalogue.build(items, np.zeros(items.height), None)
    train = collect_rows(interactions, splits, "train", index, most=MAX_TRAIN)
    held = collect_rows(interactions, splits, split, index, users=train.users, most=MAX_HELD_OUT)
    if not len(held):
        raise ContractError("there is no held-out rating", where=f"splits, {split}")
    return People(items, train, held, source_scale(interactions), human_users)


def time_split(
    items: pl.DataFrame, interactions: Table
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Split at one point in time for everybody: earlier ratings train, later ones are held out.

    A split per user by time lets an item's later ratings by others explain an earlier one. The
    point is the ninth decile of the times of rating. Returns `item_stats` (its `train_`
    columns) and `splits`; None if no user has ratings on both sides.
    """
    rows = interactions.lazy().select("user_id", "item_id", "rating", "rated_at")
    point = rows.select(pl.col("rated_at").quantile(0.9, "lower")).collect().item()
    if point is None:
        return None
    part = pl.when(pl.col("rated_at") <= point).then(pl.lit("train")).otherwise(pl.lit("test"))
    marked = rows.with_columns(split=part)
    splits, stats = pl.collect_all(
        [
            marked.select("user_id", "item_id", "split"),
            marked.filter(pl.col("split") == "train")
            .group_by("item_id")
            .agg(train_ratings=pl.len().cast(pl.Int64), train_mean_rating=pl.col("rating").mean()),
        ],
        engine="streaming",
    )
    sides = splits.group_by("user_id").agg(pl.col("split").n_unique())
    if (sides["split"] < 2).all():
        return None
    filled = items.select("item_id").join(stats, on="item_id", how="left", maintain_order="left")
    return filled.with_columns(pl.col("train_ratings").fill_null(0)), splits


def persona_rows(users: list[str], traits: pl.DataFrame | None) -> pl.DataFrame:
    """Rows like those of the `personas` contract, with the source's attributes of each user.

    The description holds age band, gender and occupation where they are known and nothing
    else; tastes are not stated, and nothing is guessed. ``origin`` is ``human``.
    """
    frame = pl.DataFrame({"persona_id": users}, schema={"persona_id": pl.String})
    columns = ("age_band", "gender", "occupation")
    if traits is None:
        persons = frame.with_columns(pl.lit(None, dtype=pl.String).alias(c) for c in columns)
    else:
        persons = frame.join(
            traits.select(pl.col("user_id").alias("persona_id"), *columns),
            on="persona_id",
            how="left",
            maintain_order="left",
        )
    persons = persons.with_columns(
        pl.col("gender").replace_strict(_GENDERS, default=None, return_dtype=pl.String)
    )
    noun = pl.col("gender").replace_strict(_NOUNS, default="person", return_dtype=pl.String)
    text = pl.concat_str(
        pl.lit("A "),
        noun,
        (pl.lit(" aged ") + pl.col("age_band")).fill_null(""),
        (pl.lit(", by occupation: ") + pl.col("occupation")).fill_null(""),
        pl.lit("."),
    )
    anything = pl.any_horizontal(pl.col(*columns).is_not_null())
    empty = pl.lit([], dtype=pl.List(pl.String))
    return persons.select(
        "persona_id",
        pl.lit("people").alias("cohort"),
        pl.lit(HUMAN).alias("origin"),
        pl.lit("none").alias("writer"),
        pl.lit(None, dtype=pl.String).alias("name"),
        pl.lit(None, dtype=pl.Int64).alias("age"),
        pl.col("gender"),
        pl.col("occupation").alias("job"),
        pl.lit(None, dtype=pl.String).alias("hobby"),
        empty.alias("likes"),
        empty.alias("dislikes"),
        pl.when(anything).then(text).otherwise(pl.lit("")).alias("description"),
    )


def ask_about(
    rater: Rater, people: People, *, most: int | None = None, histories: bool = True
) -> RaterAnswers:
    """Predictions of the held-out ratings, given each user's training history if `histories`."""
    held, chosen = people.held_out, people.first(most)
    rows = np.flatnonzero(chosen)
    batches: list[RatingBatch] = []
    for part in _whole_users(held.user[rows]):
        place = rows[part]
        local, person = np.unique(held.user[place], return_inverse=True)
        users = [held.users[n] for n in local]
        pairs = np.stack([person, held.item[place]], axis=1)
        batches.append(
            rater.rate(
                persona_rows(users, people.traits),
                people.items,
                _histories(people, users, rater) if histories else None,
                pairs=pairs,
            )
        )
    probabilities = np.concatenate([b.probabilities for b in batches])
    ok = np.array([s == OK for b in batches for s in b.status], dtype=np.bool_)
    answered = np.zeros(len(held), dtype=np.bool_)
    answered[rows[ok]] = True
    expected, mapped = in_source_units(probabilities[ok], rater.scale, people.scale)
    return RaterAnswers(Predictions(rater.name, expected, mapped), answered, int((~ok).sum()))


def in_source_units(
    probabilities: Floats, scale: RatingScale, source: RatingScale
) -> tuple[Floats, Floats]:
    """Expected ratings on `source`, and the distribution over its answers.

    Each answer of a `scale` with as many answers or more gives its probability to the nearest
    answer of `source`. On a coarser one it is shared equally by the answers that are nearest to
    it: a scale without half stars is no evidence against them.
    """
    expected = np.asarray(rescale(probabilities @ scale.answers, scale, source))
    if len(scale) >= len(source):
        onto = _nearest(scale, source)
    else:
        back = _nearest(source, scale).T
        onto = back / back.sum(axis=1, keepdims=True)
    return expected, np.asarray(probabilities @ onto)


def _nearest(scale: RatingScale, target: RatingScale) -> Floats:
    """1 for the answers of `target` that are nearest to each of `scale`, of shape (from, to)."""
    answers = to_answers(scale.answers, scale, target)
    position = np.rint((answers - target.low) / target.step).astype(np.int64)
    return np.eye(len(target))[position]


def _histories(people: People, users: list[str], rater: Rater) -> pl.DataFrame:
    train = people.train
    user_set = set(users)
    who = np.array([u in user_set for u in train.users], dtype=np.bool_)
    selected = who[train.user]
    ids = people.items["item_id"]
    stars = train.rating[selected]
    # A prompt shows answers of the scale; the model of the statistical rater takes any number.
    exact = isinstance(rater, StatisticalRater)
    convert = rescale if exact else to_answers
    return pl.DataFrame(
        {
            "persona_id": pl.Series(train.users, dtype=pl.String).gather(train.user[selected]),
            "item_id": ids.gather(train.item[selected]),
            "rating": np.asarray(convert(stars, people.scale, rater.scale), dtype=np.float64),
        }
    )


def _whole_users(user: Ints) -> list[slice]:
    """Slices of about `_BATCH` rows that end where a user ends."""
    ends = np.append(np.flatnonzero(np.diff(user)) + 1, len(user))
    out, start = [], 0
    while start < len(user):
        end = int(ends[min(int(np.searchsorted(ends, start + _BATCH)), len(ends) - 1)])
        out.append(slice(start, end))
        start = end
    return out


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

    return _by_surprise(people, BaselineOnly(bsl_options={"method": "als"}, verbose=False))


def _svd(people: People, seed: int, **settings: Any) -> Floats:
    from surprise import SVD

    return _by_surprise(people, SVD(random_state=seed, **settings))


def _by_surprise(people: People, model: Any) -> Floats:
    """Predictions of a model of Surprise: biases, and products of factors if it has them."""
    trainset, place = _trainset(people)
    model.fit(trainset)
    user, item = people.person(), place[people.held_out.item]
    of_item = np.asarray(model.bi)[item]
    if hasattr(model, "qi"):
        factors = np.asarray(model.pu)[user], np.asarray(model.qi)[item]
        of_item = of_item + np.einsum("ij,ij->i", *factors)
    # As Surprise itself predicts: for an unrated item only the user's bias is known.
    of_item = np.where(item >= 0, of_item, 0.0)
    return np.asarray(trainset.global_mean + np.asarray(model.bu)[user] + of_item)


def _trainset(people: People) -> tuple[Any, Ints]:
    """Surprise's training set, and the number in it of each item (-1 for one without rating)."""
    from surprise import Trainset

    train = people.train
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


#: Published RMSE on MovieLens 1M's test ratings, for comparison.
CONTEXT = {"constant": 1.096, "ALS": 1.103, "GPT-4o-mini, zero-shot": 1.738}
#: Raters that need no language model; two of them know nothing of the person.
_WITHOUT_MODEL = frozenset({"statistical", "statistical, no votes", "random", "mean"})
_FLOORS = frozenset({"random", "mean"})
#: Selections of held-out ratings, by name.
SPLITS = {
    "user": "the latest tenth of each person's ratings, the earlier ones being its history",
    "cold": "the same ratings with nothing known of the person, as of a persona without a history",
    "time": "ratings after one point in time (the 90 % quantile of all), earlier ones being known",
}
#: The paired comparison's name among the metrics.
DIFFERENCE = "rmse_difference"
_FIGURES = {
    "rmse": "root mean square error (units of the source's scale)",
    DIFFERENCE: f"RMSE minus that of {BIAS} on the same ratings: below zero is better",
    "mae": "mean absolute error (units of the source's scale)",
    "ndcg@10": "of a person's ranked list, 0-1",
    "pairwise": "share of a person's pairs in the right order, 0-1",
    "nll": "negative log-likelihood (nats)",
    "ece": "expected calibration error, 0-1",
    "similarity": "1 - total variation from people's histogram, 0-1",
}


@dataclass(frozen=True)
class RaterReport:
    """The report."""

    #: The `rater_report` contract, in its order.
    table: pl.DataFrame
    #: Rows ``predictor, bin, ratings, accuracy, confidence``.
    reliability: list[dict[str, Any]]
    #: Data of each fit, counts, and each rater's own metadata. Ready for JSON.
    metadata: dict[str, Any]

    def markdown(self) -> str:
        """The page of :meth:`study`."""
        return self.study().markdown()

    def study(self) -> Study:
        """The figures as a study: a table per split, the lowest error first."""
        study = Study(
            "raters",
            "How well do raters predict held-out ratings of people?",
            figures=_FIGURES,
            conditions=("split", "predictor"),
            legend="95 % intervals of a bootstrap over users in brackets; n counts ratings. Source "
            "`statistical` and `baseline`: no language model.",
            published=[
                Row({"predictor": name}, "paper", {"rmse": e}) for name, e in CONTEXT.items()
            ],
        )
        for split, text in SPLITS.items():
            table = self.table.filter(split=split)
            order = table.filter(metric="rmse").sort("value", maintain_order=True)["predictor"]
            study.rows += [_row(split, table.filter(predictor=name)) for name in order]
            if len(order):
                statement = self.metadata["statements"][split]
                study.notes.append(f"Split `{split}`: {text}. {statement}")
        study.notes.append(f"People as personas: {reading_statement(self.metadata['reading'])}")
        return study


def rater_report(
    raters: Sequence[Rater],
    *,
    items: pl.DataFrame,
    interactions: Table,
    splits: Table,
    human_users: pl.DataFrame | None = None,
    scheme: str = "user",
    baselines: Sequence[str] = tuple(BASELINES),
    limits: Mapping[str, int] | None = None,
    seed: int = 0,
) -> RaterReport:
    """Compare raters and baselines on the same held-out ratings of people.

    Each user is a persona with the text of its traits and with its training ratings as the
    history. Every predictor was fitted on training ratings only.

    Parameters
    ----------
    raters
        Fitted raters, of any kind.
    items, interactions, splits, human_users
        Tables of those names; the large ones may be lazy.
    scheme
        Origin of `splits`, a key of :data:`SPLITS`. With ``cold``, raters are given no
        history.
    baselines
        Names from :data:`pipelines.raters.BASELINES`; the paired difference needs the user and
        item bias, which is always fitted.
    limits
        Fewer held-out ratings for some raters, by name (count); for those that cost much. They
        are judged as they are and once more calibrated on as many validation ratings
        (`fit_calibration`), unless these are of fewer than five users.
    seed
        Of the matrix factorisation and of the bootstrap.

    Raises
    ------
    ContractError
        If there is no held-out rating, or a rater answers none of them.
    """
    collect = partial(
        collect_people,
        items=items,
        interactions=interactions,
        splits=splits,
        human_users=human_users,
    )
    people = collect(split="test")
    all_rows = np.ones(len(people.held_out), dtype=np.bool_)
    bias = predict_baseline(BIAS, people, seed=seed)
    metrics: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []

    def judge(
        predictions: Predictions, answered: np.ndarray, failed: int, kind: str, *, statistical: bool
    ) -> None:
        truth = people.truth(answered)
        figures = evaluate(predictions, truth, seed=seed)
        if predictions.name != BIAS:
            same = Predictions(BIAS, bias.expected[answered])
            figures[DIFFERENCE] = paired_difference(predictions, same, truth, seed=seed)
        counts = {"ratings": len(truth.rating), "users": truth.users, "failed": failed}
        first = {"split": scheme, "predictor": predictions.name, "kind": kind}
        metrics.extend(
            {**first, "metric": metric, **figure, **counts, "statistical": statistical}
            for metric, figure in figures.items()
        )
        rows = reliability(predictions, truth)
        curves.extend({"split": scheme, "predictor": predictions.name, **row} for row in rows)

    def calibrated_on(rater: Rater, count: int) -> Calibration | None:
        """Fit on validation ratings; None if there are too few, or no distributions."""
        try:
            sample = collect(split="validation")
            answers = ask_about(rater, sample, most=count, histories=scheme != "cold")
            given = sample.truth(answers.answered)
            if answers.predictions.probabilities is None:
                return None
            place = np.rint((given.rating - sample.scale.low) / sample.scale.step).astype(np.int64)
            other = predict_baseline(BIAS, sample, seed=seed).expected[answers.answered]
            return fit_calibration(answers.predictions.probabilities, place, given.user, other)
        except ContractError:
            return None

    calibrations: dict[str, Any] = {}
    for rater in raters:
        most_of_it = (limits or {}).get(rater.name)
        answers = ask_about(rater, people, most=most_of_it, histories=scheme != "cold")
        kind = "floor" if rater.name in _FLOORS else "rater"
        without = rater.name in _WITHOUT_MODEL
        judge(answers.predictions, answers.answered, answers.failed, kind, statistical=without)
        if most_of_it is not None:
            fitted = calibrated_on(rater, most_of_it)
            if fitted is not None:
                calibrations[rater.name] = fitted.metadata()
                given, name = answers.predictions.probabilities, answers.predictions.name
                assert given is not None
                p = fitted(given, bias.expected[answers.answered])
                better = Predictions(f"{name}, calibrated", p @ people.scale.answers, p)
                judge(better, answers.answered, answers.failed, kind, statistical=without)
    for name in baselines:
        predictions = bias if name == BIAS else predict_baseline(name, people, seed=seed)
        judge(predictions, all_rows, 0, "baseline", statistical=True)
    facts = _facts(raters, people, scheme) | {"calibration": calibrations}
    rows = pl.DataFrame(metrics).sort("split", "predictor", "metric")
    return RaterReport(rows, curves, facts)


def whole_report(
    raters: Sequence[Rater],
    *,
    items: pl.DataFrame,
    item_stats: pl.DataFrame,
    interactions: Table,
    splits: Table,
    item_embeddings: pl.DataFrame | None = None,
    human_users: pl.DataFrame | None = None,
    limits: Mapping[str, int] | None = None,
    seed: int = 0,
) -> RaterReport:
    """Compare raters on all of :data:`SPLITS`; the statistical rater with and without votes.

    The split in time refits the statistical rater; other raters are judged on people's own split.
    Raters are fitted; the first statistical one decides the scale. Large tables may be lazy;
    ``limits`` and ``seed`` are those of :func:`rater_report`.
    """
    statistical = next(r for r in raters if isinstance(r, StatisticalRater))
    plain = items.drop([name for name in VOTES if name in items.columns])
    report = partial(
        rater_report,
        items=items,
        interactions=interactions,
        human_users=human_users,
        seed=seed,
    )

    def fitted(table: pl.DataFrame, stats: pl.DataFrame, parts: Table) -> StatisticalRater:
        return fit_statistical(
            scale=statistical.scale,
            items=table,
            item_stats=stats,
            interactions=interactions,
            splits=parts,
            item_embeddings=item_embeddings,
            seed=seed,
        )

    def without_votes(stats: pl.DataFrame, parts: Table) -> list[Rater]:
        if plain.width == items.width:
            return []
        return [replace(fitted(plain, stats, parts), name="statistical, no votes")]

    names = [b for b in BASELINES if plain.width < items.width or not b.endswith("no votes")]
    names = [b for b in names if not b.endswith("no person")]
    plainly = without_votes(item_stats, splits)
    reports = [
        report([*raters, *plainly], splits=splits, limits=limits, baselines=names),
        report([statistical, *plainly], splits=splits, scheme="cold", baselines=COLD_BASELINES),
    ]
    later = time_split(items, interactions)
    if later is not None:
        stats, parts = later
        refitted = [fitted(items, stats, parts), *without_votes(stats, parts)]
        reports.append(report(refitted, splits=parts, scheme="time", baselines=names))
    metadata = {**reports[0].metadata, "statements": {}}
    for part in reports:
        metadata["statements"] |= part.metadata["statements"]
    return RaterReport(
        pl.concat([part.table for part in reports]).sort("split", "predictor", "metric"),
        [row for part in reports for row in part.reliability],
        metadata,
    )


def reliability_plot(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A PNG: share of right answers against confidence, per predictor."""
    lines: dict[str, dict[str, float]] = {"perfect": {"0": 0.0, "1": 1.0}}
    for row in rows:
        if row.get("split", "user") == "user":
            points = lines.setdefault(str(row["predictor"]), {})
            points[f"{row['confidence']:.9f}"] = row["accuracy"]
    title = "Reliability on held-out ratings"
    return draw({"": lines}, title=title, x="confidence", y="share right", lines=True)


def _facts(raters: Sequence[Rater], people: People, scheme: str) -> dict[str, Any]:
    held, train = people.held_out, people.train
    genres = people.items["genres"].explode().drop_nulls().unique().sort().to_list()
    count = f"{len(held):,} test ratings of {len(held.users):,} people"
    models = sorted({r.name for r in raters} - _WITHOUT_MODEL)
    model = (
        f"`{'`, `'.join(models)}` may ask a language model; no other predictor does."
        if models
        else "No predictor here asks a language model."
    )
    statement = (
        f"{count}. Raters and baselines were fitted on training ratings only, the baselines on "
        f"{len(train):,} of {len(train.users):,} people. The statistical rater is an ordinal "
        f"regression and uses no language model. {model}"
    )
    return {
        "statements": {scheme: statement},
        "context": CONTEXT,
        "split": "test",
        "scale": people.scale.name,
        "held_out_ratings": len(held),
        "held_out_users": len(held.users),
        # People rated by a field, by text and by neither.
        "reading": reading_counts(persona_rows(held.users, people.traits), genres),
        "baseline_ratings": len(train),
        "baseline_users": len(train.users),
        "raters": {rater.name: rater.metadata() for rater in raters},
    }


def _row(split: str, rows: pl.DataFrame) -> Row:
    first = rows.row(0, named=True)
    figures = rows.select("metric", "value", "low", "high").iter_rows()
    source = "statistical" if first["statistical"] else "model"
    return Row(
        {"split": split, "predictor": first["predictor"]},
        source if first["kind"] == "rater" else "baseline",
        {metric: Figure(*figure) for metric, *figure in figures},
        first["ratings"],
        measure="" if split == "user" else f"split `{split}`",
    )
