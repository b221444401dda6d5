"""Learning a surrogate: alternating least squares on the logits of a teacher's distributions.

A pair's logits of a rating at or below each answer are ``cutpoint - location``. Given the
cutpoints of its persona, they are one target for the location, weighted by their information; given
the locations, the cutpoints of a persona are a weighted mean. Locations are factorised by weighted
alternating least squares, each side shrunk to a ridge regression on its facts (Agarwal and Chen,
KDD 2009), whose penalty scikit-learn selects by leave-one-out error. One thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from scipy.special import logit

from pipelines.progress import advance
from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.statistical.ordinal import cumulative
from pipelines.raters.surrogate import (
    Memory,
    Side,
    cuts_of,
    facts_of,
    stated_digests,
    text_vectors,
)

#: Share of the pairs that the residual variance and the end of training are judged on.
_INNER = 0.05
#: Least probability of either side of a cutpoint, least gap between two, and least variances.
_LEAST, _GAP, _VARIANCE = 1e-3, 0.02, 1e-6
#: Pairs that the cutpoints of all personas count for, beside a persona's (count).
_DAMPING = 1.0
#: Components of text vectors at most (count), and penalties of the regressions on facts.
_COMPONENTS, _PENALTIES = 32, np.geomspace(1e-1, 1e5, 25)
#: Ratings that the surplus of a memory is shrunken by, as tried (count).
_STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True)
class Pairs:
    """Rated pairs: row numbers of shape (pairs,), and distributions (pairs, answers)."""

    person: Ints
    item: Ints
    target: Floats

    def __len__(self) -> int:
        return len(self.person)

    def take(self, rows: Any) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.person[rows], self.item[rows], self.target[rows])


@dataclass
class Fit:
    """Values of both sides, also of those without pairs, and their regressions on facts."""

    #: Level, factors and log gaps of each persona, of shape (personas, 1 + rank + gaps).
    people: Floats
    #: Level and factors of each item, of shape (items, 1 + rank).
    things: Floats
    #: The same regressed on the facts and a constant, of shape (columns + 1, values).
    people_weights: Floats
    things_weights: Floats
    #: Cutpoint in the middle.
    anchor: float
    #: Divergence from the teacher on the inner validation pairs after each sweep (nats).
    course: list[float] = field(default_factory=list)

    def location(self, pairs: Pairs) -> Floats:
        """Locations of pairs, of shape (pairs,)."""
        width = self.things.shape[1]
        who, what = self.people[pairs.person, :width], self.things[pairs.item]
        return np.asarray(who[:, 0] + what[:, 0] + np.einsum("ij,ij->i", who[:, 1:], what[:, 1:]))

    def cuts(self) -> Floats:
        """Cutpoints of the personas, of shape (personas, answers - 1)."""
        return cuts_of(self.people[:, self.things.shape[1] :], self.anchor)

    def probabilities(self, pairs: Pairs) -> Floats:
        """Distributions of pairs, of shape (pairs, answers)."""
        return cumulative(self.cuts()[pairs.person] - self.location(pairs)[:, None])


def side_of(frame: pl.DataFrame, embeddings: pl.DataFrame | None) -> Side:
    """Columns and text components of the rows that are learned from; their values come later."""
    from sklearn.decomposition import PCA

    facts = facts_of(frame)
    table = np.column_stack([*facts.values(), np.zeros((frame.height, 0))])
    table[:, np.isnan(table).all(axis=0)] = 0.0
    spread = np.nanstd(table, axis=0)
    vectors = text_vectors(frame, embeddings)
    vectors = vectors[vectors.any(axis=1)]
    axes, centre = np.zeros((0, vectors.shape[1])), np.zeros(vectors.shape[1])
    if len(vectors) > 1:
        size = min(_COMPONENTS, len(vectors) - 1, vectors.shape[1])
        components = PCA(size, svd_solver="full").fit(vectors)
        axes, centre = components.components_, components.mean_
    return Side(
        ids=np.array([], dtype=np.str_),
        digests=stated_digests(frame[:0]),
        names=np.array(list(facts), dtype=np.str_),
        mean=np.nanmean(table, axis=0),
        spread=np.where(spread > 1e-9, spread, 1.0),
        centre=centre,
        axes=axes,
        values=np.zeros((0, 0)),
        weights=np.zeros((0, 0)),
    )


def goals(cuts: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Locations (n,) that explain distributions best, given cutpoints, and their weights (n,)."""
    below = np.clip(np.cumsum(target, axis=1)[:, :-1], _LEAST, 1 - _LEAST)
    information = below * (1 - below)
    weight = information.sum(axis=1)
    return (information * (cuts - logit(below))).sum(axis=1) / weight, weight


def fit_pairs(
    pairs: Pairs, people: Floats, things: Floats, *, rank: int, sweeps: int, seed: int
) -> Fit:
    """Fit a surrogate to a teacher's distributions.

    ``people`` and ``things`` are facts of all personas and items, of shape (rows, columns), also of
    those without pairs. There are ``rank`` factors and at most ``sweeps`` passes over the pairs;
    training ends when the inner validation loss stops falling. ``seed`` draws the inner validation
    pairs and factors beyond the facts.
    """
    rng = np.random.default_rng(seed)
    inner = rng.random(len(pairs)) < _INNER
    train, judged = pairs.take(~inner), pairs.take(inner) if inner.any() else pairs
    fit = best = _start(train, people, things, rank, rng)
    width, noise = 1 + rank, 1.0
    means = [np.zeros((len(people), width)), fit.things]
    spreads = [np.ones(width), np.ones(width)]
    course: list[float] = []
    for sweep in range(sweeps):
        goal, weight = goals(fit.cuts()[train.person], train.target)
        persona_values, spreads[0] = _half(
            fit.things, train.item, train.person, weight, goal, noise, means[0], spreads[0]
        )
        values, spreads[1] = _half(
            persona_values, train.person, train.item, weight, goal, noise, means[1], spreads[1]
        )
        fit = Fit(np.hstack([persona_values, fit.people[:, width:]]), values, fit.people_weights,
                  fit.things_weights, fit.anchor)  # fmt: skip
        fit.people[:, width:] = _gaps(fit, train)
        predicted, fit.people_weights = _regressed(people, fit.people, train.person)
        means[0] = predicted[:, :width]
        means[1], fit.things_weights = _regressed(things, fit.things, train.item)
        goal, weight = goals(fit.cuts()[judged.person], judged.target)
        noise = max(float((weight * (goal - fit.location(judged)) ** 2).mean()), 1e-5)
        given = np.maximum(fit.probabilities(judged), 1e-12)
        shares = judged.target * np.log(np.maximum(judged.target, 1e-12) / given)
        course.append(float(shares.sum(axis=1).mean()))
        advance("learning", sweep + 1, sweeps)
        if course[-1] <= min(course):
            best = fit
        elif len(course) > 2 and course[-2] > min(course):
            break
    best.course = course
    return best


def _start(train: Pairs, people: Floats, things: Floats, rank: int, rng: Any) -> Fit:
    """Cutpoints of the mean distribution; items' factors are principal components of their facts.

    Factors beyond these are small and random: with zeros on both sides no step would leave zero.
    """
    below = np.clip(np.cumsum(train.target.mean(axis=0))[:-1], _LEAST, 1 - _LEAST)
    gaps = np.log(np.maximum(np.diff(logit(below)), 0.05))
    factors = 0.1 * rng.normal(size=(len(things), rank))
    left, sizes, _ = np.linalg.svd(things - things.mean(axis=0), full_matrices=False)
    used = min(rank, int((sizes > 1e-6 * sizes[0]).sum()))
    factors[:, :used] = left[:, :used] * np.sqrt(len(things) * sizes[:used] / sizes[:1])
    start = np.hstack([np.zeros((len(people), 1 + rank)), np.tile(gaps, (len(people), 1))])
    return Fit(
        start,
        np.column_stack([np.zeros(len(things)), factors]),
        np.zeros((people.shape[1] + 1, start.shape[1])),
        np.zeros((things.shape[1] + 1, 1 + rank)),
        float(logit(below)[len(gaps) // 2]),
    )


def _half(
    others: Floats, other: Ints, owner: Ints, weight: Floats, goal: Floats, noise: float,
    mean: Floats, spread: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Values of one side given the other, and the variances of their prior for the next sweep.

    Rows without pairs get ``mean``, that of the prior; ``spread`` is its variance.
    """
    values, variance = mean.copy(), np.zeros(len(spread))
    order = np.argsort(owner, kind="stable")
    rated, first = np.unique(owner[order], return_index=True)
    for n, rows in zip(rated.tolist(), np.split(order, first[1:]), strict=True):
        design = others[other[rows]]
        residual = goal[rows] - design[:, 0]
        design[:, 0] = 1.0
        weighted = design * (weight[rows, None] / noise)
        inverse = np.linalg.inv(design.T @ weighted + np.diag(1 / spread))
        values[n] = inverse @ (weighted.T @ residual + mean[n] / spread)
        variance += np.diag(inverse)
    apart = ((values - mean)[rated] ** 2).mean(axis=0)
    return values, np.maximum(apart + variance / len(rated), _VARIANCE)


def _gaps(fit: Fit, train: Pairs) -> Floats:
    """Log gaps of every persona's mean cutpoints, given the locations."""
    below = np.clip(np.cumsum(train.target, axis=1)[:, :-1], _LEAST, 1 - _LEAST)
    information = below * (1 - below)
    cuts = information * (logit(below) + fit.location(train)[:, None])

    def by_persona(columns: Floats) -> Floats:
        size = len(fit.people)
        return np.stack([np.bincount(train.person, c, minlength=size) for c in columns.T], axis=1)

    usual = cuts.sum(axis=0) / information.sum(axis=0)
    mean = (by_persona(cuts) + _DAMPING * usual) / (by_persona(information) + _DAMPING)
    return np.asarray(np.log(np.maximum(np.diff(mean, axis=1), _GAP)))


def _regressed(facts: Floats, values: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """Values of every row by ridge regression on facts of `rows`, and its weights."""
    from sklearn.linear_model import RidgeCV

    distinct = np.unique(rows)
    ridge = RidgeCV(_PENALTIES, alpha_per_target=True).fit(facts[distinct], values[distinct])
    weights = np.vstack([np.atleast_2d(ridge.coef_).T, ridge.intercept_])
    return facts @ weights[:-1] + weights[-1], weights


def fit_memory(
    location: Floats, cuts: Floats, target: Floats, surplus: Callable[[float], Floats]
) -> Memory:
    """Fit the effect of memories on a teacher's answers to states with histories.

    ``location`` and ``cuts`` are those of the states without their memories, of shape (n,) and (n,
    answers - 1), ``target`` the teacher's distributions, of shape (n, answers). ``surplus`` returns
    the two features of the memories for a strength of shrinkage, of shape (n, 2).
    """
    goal, weight = goals(cuts, target)
    root, fits = np.sqrt(weight), []
    for strength in _STRENGTHS:
        features = surplus(strength)
        effect, *_ = np.linalg.lstsq(root[:, None] * features, root * (goal - location))
        error = float((weight * (goal - location - features @ effect) ** 2).sum())
        fits.append((error, Memory(float(effect[0]), float(effect[1]), strength)))
    return min(fits, key=lambda candidate: candidate[0])[1]
