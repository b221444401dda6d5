"""Metrics of predicted ratings: error, ranking, calibration, shape; each with an interval.

Every figure is a function of sums over users, so that a bootstrap over users (the independent
draws: ratings of one user are not) is one matrix product, whatever the number of ratings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.errors import ContractError
from pipelines.raters.protocol import Floats, Ints
from pipelines.scales import RatingScale, to_answers
from pipelines.study import RESAMPLES, user_weights

#: Bins of confidence, of equal width (Guo et al. 2017, section 2).
BINS = 10
#: Length of the ranked list in NDCG@10.
CUT = 10
#: Users are put into at most this many groups, drawn with replacement as wholes (count).
_BLOCKS = 1_000
#: Ratings of one user that enter the pairwise comparison at most (count): its cost is quadratic.
_MOST_PAIRED = 500


@dataclass(frozen=True)
class HeldOut:
    """Human ratings to predict."""

    #: Number of the user of each rating, 0 to users - 1, of shape (n,).
    user: Ints
    #: Ratings of the users, on `scale`, of shape (n,).
    rating: Floats
    #: The source's scale; errors are in its units.
    scale: RatingScale

    @property
    def users(self) -> int:
        """Number of users."""
        return int(self.user.max()) + 1 if len(self.user) else 0


@dataclass(frozen=True)
class Predictions:
    """A predictor's predictions of each held-out rating."""

    #: Predictor name.
    name: str
    #: Predicted rating in the source's units, of shape (n,).
    expected: Floats
    #: Distribution over the answers of the source's scale, of shape (n, answers), or None for a
    #: predictor that gives a number only: it has no calibration.
    probabilities: Floats | None = None


def evaluate(
    predictions: Predictions, held_out: HeldOut, *, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Every figure of one predictor, as ``{"value", "low", "high"}`` (95 %, bootstrap over users).

    ``rmse`` and ``mae``
        Root mean square and mean absolute difference, in the source's rating units.
    ``ndcg@10``
        Mean over users with two different ratings at least; the gain is the human rating above
        the scale's lowest, the discount 1 / log2(rank + 1). Items that a predictor ties share
        the mean discount of their ranks, so that a constant has what a random order has on
        average.
    ``pairwise``
        Share of a user's pairs of differently rated items that the prediction orders as the
        user did, a tie counting half; mean over users that have such a pair. 0.5 is chance.
    ``nll``
        Mean negative log-likelihood of the answers given (nats). Only with `probabilities`.
    ``ece``
        Expected calibration error: mean over ten bins of confidence of |share right - mean
        confidence|, weighted by the bins' sizes (Guo et al. 2017, equation 3); the confidence
        is the probability of the most probable answer. Only with `probabilities`.
    ``similarity``
        1 - total variation between the mean predicted distribution (of rounded predictions if
        there are no probabilities) and the human histogram (SUBER, section 4.2).

    Raises ContractError if there is nothing to predict, or a prediction is missing or not a number.
    """
    _check(predictions, held_out)
    block, size = _blocks(held_out.users)
    of_row = block[held_out.user]
    parts: list[Floats] = []
    figures: dict[str, tuple[slice, Callable[[Floats], Floats]]] = {}

    def add(name: str, sums: Floats, figure: Callable[[Floats], Floats]) -> None:
        first = sum(part.shape[1] for part in parts)
        parts.append(sums)
        figures[name] = (slice(first, first + sums.shape[1]), figure)

    error = predictions.expected - held_out.rating
    ones = np.ones(len(error))
    add("rmse", _summed(of_row, size, ones, error**2), lambda s: np.sqrt(ratio(s)))
    add("mae", _summed(of_row, size, ones, np.abs(error)), ratio)
    for name, (chosen, worth) in _per_user(predictions, held_out).items():
        add(name, _summed(block[chosen], size, np.ones(len(chosen)), worth), ratio)
    if predictions.probabilities is not None:
        right, confidence, of_bin = _confidence(predictions.probabilities, held_out)
        cells = of_row * BINS + of_bin
        binned = (
            np.bincount(cells, w, minlength=size * BINS).reshape(size, BINS)
            for w in (ones, right, confidence)
        )
        add("nll", _summed(of_row, size, ones, _log_losses(predictions, held_out)), ratio)
        add("ece", np.concatenate(list(binned), axis=1), _ece)
    add("similarity", _shapes(predictions, held_out, of_row, size), _same_shape)
    sums = np.concatenate(parts, axis=1)
    draws = user_weights(size, RESAMPLES, seed) @ sums
    out: dict[str, dict[str, float]] = {}
    for name, (columns, figure) in figures.items():
        total = sums[:, columns].sum(axis=0, keepdims=True)
        value = float(figure(np.asarray(total, dtype=np.float64))[0])
        if np.isnan(value):
            continue
        drawn = figure(draws[:, columns])
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        if name in {"ece", "similarity"}:
            # Resampling adds differences to these, so that percentiles may miss the value.
            margin = 1.96 * float(np.nanstd(drawn))
            low, high = max(value - margin, 0.0), min(value + margin, 1.0)
        out[name] = {"value": value, "low": float(low), "high": float(high)}
    return out


def paired_difference(
    left: Predictions,
    right: Predictions,
    held_out: HeldOut,
    *,
    seed: int = 0,
) -> dict[str, float]:
    """RMSE of `left` minus that of `right` on the same ratings, with a 95 % interval.

    Both are drawn with the same users each time, so that what is hard for all predictors cancels;
    `left` is the better one if the whole interval is below zero.
    """
    _check(left, held_out)
    _check(right, held_out)
    block, size = _blocks(held_out.users)
    errors = [(p.expected - held_out.rating) ** 2 for p in (left, right)]
    sums = _summed(block[held_out.user], size, np.ones(len(errors[0])), *errors)

    def difference(s: Floats) -> Floats:
        count = np.maximum(s[:, 0], 1.0)
        return np.asarray(np.sqrt(s[:, 1] / count) - np.sqrt(s[:, 2] / count))

    return _with_interval(sums, difference, seed)


def paired_loss_difference(
    left: Predictions,
    right: Predictions,
    held_out: HeldOut,
    *,
    seed: int = 0,
) -> dict[str, float]:
    """Mean log loss of `left` minus that of `right` (nats), as :func:`paired_difference`.

    Both must have probabilities.
    """
    block, size = _blocks(held_out.users)
    gap = _log_losses(left, held_out) - _log_losses(right, held_out)
    sums = _summed(block[held_out.user], size, np.ones(len(gap)), gap)
    return _with_interval(sums, ratio, seed)


def _with_interval(sums: Floats, figure: Callable[[Floats], Floats], seed: int) -> dict[str, float]:
    """A function of sums over blocks, of shape (blocks, columns), with its bootstrap interval."""
    low, high = np.quantile(figure(user_weights(len(sums), RESAMPLES, seed) @ sums), [0.025, 0.975])
    value = float(figure(sums.sum(axis=0, keepdims=True))[0])
    return {"value": value, "low": float(low), "high": float(high)}


def _log_losses(predictions: Predictions, held_out: HeldOut) -> Floats:
    """Nats per rating; a probability of zero counts as one in a billion."""
    p = predictions.probabilities
    assert p is not None
    given = p[np.arange(len(p)), _position(held_out.rating, held_out.scale)]
    return np.asarray(-np.log(np.maximum(given, 1e-9)))


def reliability(predictions: Predictions, held_out: HeldOut) -> list[dict[str, Any]]:
    """Rows of a reliability plot: per bin of confidence its size, share right and mean confidence.

    Bins without a rating are left out.
    """
    if predictions.probabilities is None:
        return []
    right, confidence, of_bin = _confidence(predictions.probabilities, held_out)
    rows = []
    for number in range(BINS):
        inside = of_bin == number
        if inside.any():
            rows.append(
                {
                    "bin": number,
                    "ratings": int(inside.sum()),
                    "accuracy": float(right[inside].mean()),
                    "confidence": float(confidence[inside].mean()),
                }
            )
    return rows


def _check(predictions: Predictions, held_out: HeldOut) -> None:
    n = len(held_out.rating)
    if not n:
        raise ContractError("there is no held-out rating", where=predictions.name)
    if len(predictions.expected) != n or not np.isfinite(predictions.expected).all():
        raise ContractError(
            "a prediction is missing or not a number",
            where=predictions.name,
            hint="leave ratings without an answer out of both sides, and count them",
        )


def _blocks(users: int) -> tuple[Ints, int]:
    return np.arange(users) % _BLOCKS, min(users, _BLOCKS)


def _summed(of_row: Ints, size: int, *columns: Any) -> Floats:
    """Sums per block, of shape (blocks, columns)."""
    return np.stack([np.bincount(of_row, c, minlength=size) for c in columns], axis=1)


def ratio(sums: Floats) -> Floats:
    """Second column over the first, NaN without any."""
    count = np.where(sums[:, 0] > 0, sums[:, 0], np.nan)
    return np.asarray(sums[:, 1] / count)


def _ece(sums: Floats) -> Floats:
    count, right, confidence = np.split(sums, 3, axis=1)
    return np.asarray(np.abs(right - confidence).sum(axis=1) / count.sum(axis=1))


def similarities(left: Floats, right: Floats) -> Floats:
    """1 less the total variation distance of each row's counts, 0 to 1, of shape (rows,).

    >>> similarities(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])).tolist()
    [0.5]
    """
    a = left / left.sum(axis=1, keepdims=True)
    b = right / right.sum(axis=1, keepdims=True)
    return np.asarray(1.0 - 0.5 * np.abs(a - b).sum(axis=1))


def _same_shape(sums: Floats) -> Floats:
    return similarities(*np.split(sums, 2, axis=1))


def _position(rating: Floats, scale: RatingScale) -> Ints:
    """Number of the answer nearest to each rating."""
    answers = to_answers(rating, scale, scale)
    return np.rint((answers - scale.low) / scale.step).astype(np.int64)


def _confidence(probabilities: Floats, held_out: HeldOut) -> tuple[Floats, Floats, Ints]:
    top = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(len(top)), top]
    right = (top == _position(held_out.rating, held_out.scale)).astype(np.float64)
    of_bin = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    return right, confidence, of_bin


def _shapes(predictions: Predictions, held_out: HeldOut, of_row: Ints, size: int) -> Floats:
    """Mass per answer of the prediction and of the people, of shape (blocks, 2 x answers)."""
    answers = len(held_out.scale)

    def counted(rating: Floats) -> Floats:
        cells = of_row * answers + _position(rating, held_out.scale)
        return np.bincount(cells, minlength=size * answers).reshape(size, answers).astype(float)

    if predictions.probabilities is None:
        predicted = counted(predictions.expected)
    else:
        predicted = np.zeros((size, answers))
        np.add.at(predicted, of_row, predictions.probabilities)
    return np.concatenate([predicted, counted(held_out.rating)], axis=1)


def _per_user(predictions: Predictions, held_out: HeldOut) -> dict[str, tuple[Ints, Floats]]:
    """Per figure the users that have it, and its value."""
    order = np.argsort(held_out.user, kind="stable")
    bounds = np.flatnonzero(np.diff(held_out.user[order], prepend=-1))
    users: dict[str, list[int]] = {"ndcg@10": [], "pairwise": []}
    values: dict[str, list[float]] = {"ndcg@10": [], "pairwise": []}
    for rows in np.split(order, bounds[1:]):
        truth = held_out.rating[rows]
        if truth.min() == truth.max():
            continue
        user, guess = int(held_out.user[rows[0]]), predictions.expected[rows]
        for name, value in (
            ("ndcg@10", _ndcg(truth - held_out.scale.low, guess)),
            ("pairwise", _pairwise(truth[:_MOST_PAIRED], guess[:_MOST_PAIRED])),
        ):
            if value is not None:
                users[name].append(user)
                values[name].append(value)
    return {name: (np.array(users[name], dtype=np.int64), np.array(values[name])) for name in users}


def _ndcg(gain: Floats, score: Floats) -> float:
    """NDCG@10 of one user; tied items share the mean discount of their ranks.

    >>> _ndcg(np.array([3.0, 0.0]), np.array([2.0, 1.0]))
    1.0
    >>> round(_ndcg(np.array([3.0, 0.0]), np.array([1.0, 1.0])), 4)  # (1 + 0.6309) / 2
    0.8155
    """
    ranks = np.arange(1, len(gain) + 1)
    discount = np.where(ranks <= CUT, 1.0 / np.log2(ranks + 1), 0.0)
    order = np.argsort(-score, kind="stable")
    _, tie = np.unique(-score[order], return_inverse=True)
    shared = np.bincount(tie, discount) / np.bincount(tie)
    best = float(np.sort(gain)[::-1] @ discount)
    return float(gain[order] @ shared[tie]) / best


def _pairwise(truth: Floats, score: Floats) -> float | None:
    """Share of differently rated pairs in the right order, a tie counting half.

    >>> _pairwise(np.array([5.0, 3.0, 1.0]), np.array([0.9, 0.1, 0.5]))
    0.6666666666666666
    """
    higher = truth[:, None] > truth[None, :]
    pairs = int(higher.sum())
    if not pairs:
        return None
    gap = np.sign(score[:, None] - score[None, :])
    return float((0.5 * (1.0 + gap))[higher].sum() / pairs)
