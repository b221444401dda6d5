"""Learning a surrogate: penalised maximum likelihood by alternating least squares.

Every pair has the teacher's whole distribution, so that a pass is one step of Fisher scoring
(McCullagh and Nelder, "Generalized linear models", 1989, section 2.5): a weighted least-squares
problem in the location, solved for all personas given the items and for all items given the
personas, each shrunk to a regression on their facts. The variances of that shrinkage are fitted as
in the expectation-maximisation of Agarwal and Chen (KDD 2009), the residual variance on pairs that
no step has seen. One thread, no randomness but the inner validation pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.progress import advance
from pipelines.raters import Memory, cuts_of, ordinal
from pipelines.raters.protocol import Floats, Ints

#: Pairs whose distributions are computed at once (count).
_CHUNK = 131_072
#: Share of the pairs that the residual variance and the end of training are judged on.
_INNER = 0.05
#: Least probability in a quotient, bounds of a step, of log gaps, and of variances.
_LEAST, _STEP, _GAPS, _VARIANCE = 1e-7, 2.0, (-6.0, 4.0), 1e-6
#: Penalties of the regressions on facts that are tried (generalised to all values of a side).
_PENALTIES = np.geomspace(1e-1, 1e5, 25)
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
    """A fit: values of both sides (also of those without pairs) and regressions on facts."""

    #: Level, factors and log gaps of each persona, of shape (personas, 1 + rank + gaps).
    people: Floats
    #: Level and factors of each item, of shape (items, 1 + rank).
    things: Floats
    #: Weights of the same values, regressed on the facts and a constant, of shape (columns + 1,
    #: values).
    people_weights: Floats
    things_weights: Floats
    #: Cutpoint in the middle.
    anchor: float
    #: Loss on the inner validation pairs after each sweep (nats).
    course: list[float] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """Factors (count)."""
        return int(self.things.shape[1]) - 1

    def location(self, pairs: Pairs) -> Floats:
        """Locations of pairs, of shape (pairs,)."""
        width = 1 + self.rank
        who, what = self.people[pairs.person, :width], self.things[pairs.item]
        return np.asarray(who[:, 0] + what[:, 0] + np.einsum("ij,ij->i", who[:, 1:], what[:, 1:]))

    def probabilities(self, pairs: Pairs) -> Floats:
        """Distributions of pairs, of shape (pairs, answers)."""
        cuts = cuts_of(self.people[:, 1 + self.rank :], self.anchor)
        return ordinal(cuts[pairs.person], self.location(pairs))


class _Ridge:
    """Regressions of many values on the same facts; penalties by leave-one-out error."""

    def __init__(self, columns: Floats, rows: Ints) -> None:
        self._columns, self._rows = columns, rows
        used = columns[rows]
        self._centre = used.mean(axis=0)
        self._left, self._sizes, self._right = np.linalg.svd(
            used - self._centre, full_matrices=False
        )

    def fit(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights (columns + 1, values), values of every row, and leave-one-out variances."""
        own = values[self._rows]
        mean, count = own.mean(axis=0), len(own)
        turned = self._left.T @ (own - mean)
        best = np.full(own.shape[1], np.inf)
        weights = np.zeros((self._columns.shape[1], own.shape[1]))
        for penalty in _PENALTIES:
            shrunk = self._sizes**2 / (self._sizes**2 + penalty)
            fitted = self._left @ (shrunk[:, None] * turned)
            leverage = (self._left**2) @ shrunk + 1 / count
            out = (own - mean - fitted) / np.maximum(1 - leverage, 1e-2)[:, None]
            error = (out**2).mean(axis=0)
            better = error < best
            best = np.where(better, error, best)
            slope = self._right.T @ ((shrunk / np.maximum(self._sizes, 1e-12))[:, None] * turned)
            weights[:, better] = slope[:, better]
        constant = mean - self._centre @ weights
        return np.vstack([weights, constant]), self._columns @ weights + constant, best


def fit_pairs(
    pairs: Pairs,
    people: Floats,
    things: Floats,
    *,
    rank: int,
    sweeps: int,
    seed: int,
) -> Fit:
    """Fit a surrogate to a teacher's distributions.

    ``people`` and ``things`` are facts of all personas and items, of shape (rows, columns), also of
    those without pairs. There are ``rank`` factors and at most ``sweeps`` passes over the pairs;
    training ends when the inner validation loss stops falling. ``seed`` draws the inner validation
    pairs and factors beyond the facts.
    """
    rng = np.random.default_rng(seed)
    order = np.argsort(pairs.person, kind="stable")
    inner = rng.random(len(pairs)) < _INNER
    train, judged = pairs.take(order[~inner[order]]), pairs.take(order[inner[order]])
    if not len(judged):
        judged = train
    by_item = np.argsort(train.item, kind="stable")
    sides = _Ridge(people, np.unique(train.person)), _Ridge(things, np.unique(train.item))
    fit = _start(train, people, things, rank, rng)
    noise, kept, stale = 1.0, fit, 0
    spread = np.ones(1 + rank), np.ones(1 + rank), np.ones(fit.people.shape[1] - 1 - rank)
    means = [np.zeros((len(people), 1 + rank)), fit.things.copy(), fit.people[:, 1 + rank :].copy()]
    width = 1 + rank
    for sweep in range(sweeps):
        weight, goal, _ = _scores(fit, train)
        solved, variance = _half(
            fit.things, train.item, train.person, np.arange(len(train)), len(people),
            weight, goal, noise, means[0], spread[0],
        )  # fmt: skip
        fit.people[:, :width] = solved
        own, means[0], spread[0][:] = sides[0].fit(solved)
        spread[0][:] = np.maximum(_around(solved, means[0], train.person) + variance, _VARIANCE)
        fit.people_weights[:, :width] = own
        weight, goal, _ = _scores(fit, train)
        solved, variance = _half(
            fit.people[:, :width], train.person, train.item, by_item, len(things),
            weight, goal, noise, means[1], spread[1],
        )  # fmt: skip
        fit.things = solved
        fit.things_weights, means[1], spread[1][:] = sides[1].fit(solved)
        spread[1][:] = np.maximum(_around(solved, means[1], train.item) + variance, _VARIANCE)
        _, _, sums = _scores(fit, train, cuts=True)
        assert sums is not None
        gaps, variance = _gaps(fit.people[:, width:], sums, noise, means[2], spread[2])
        fit.people[:, width:] = gaps
        own, means[2], spread[2][:] = sides[0].fit(gaps)
        spread[2][:] = np.maximum(_around(gaps, means[2], train.person) + variance, _VARIANCE)
        fit.people_weights[:, width:] = own
        # Who has no pairs is what the facts say.
        for values, mean, rows in (
            (fit.people, np.hstack([means[0], means[2]]), train.person),
            (fit.things, means[1], train.item),
        ):
            bare = np.setdiff1d(np.arange(len(values)), rows)
            values[bare] = mean[bare]
        loss = float(_loss(fit, judged))
        weight, goal, _ = _scores(fit, judged)
        noise = max(float((weight * (goal - fit.location(judged)) ** 2).mean()), 1e-5)
        better = not fit.course or loss < min(fit.course) - 1e-6
        fit.course.append(loss)
        if better:
            kept = Fit(
                fit.people.copy(), fit.things.copy(), fit.people_weights.copy(),
                fit.things_weights.copy(), fit.anchor,
            )  # fmt: skip
            stale = 0
        else:
            stale += 1
        advance("learning", sweep + 1, sweeps)
        if stale >= 2:
            break
    kept.course = fit.course
    return kept


def _around(values: Floats, mean: Floats, rows: Ints) -> Floats:
    own = np.unique(rows)
    return np.asarray(((values - mean)[own] ** 2).mean(axis=0))


def _start(train: Pairs, people: Floats, things: Floats, rank: int, rng: Any) -> Fit:
    """Cutpoints of the mean distribution; items' factors are principal components of their facts.

    Factors beyond these are small and random: with zeros on both sides no step would leave zero.
    """
    share = np.clip(np.cumsum(train.target.mean(axis=0))[:-1], 1e-4, 1 - 1e-4)
    cuts = np.maximum.accumulate(np.log(share) - np.log1p(-share))
    gaps = np.log(np.maximum(np.diff(cuts), 0.05))
    left, sizes, _ = np.linalg.svd(things - things.mean(axis=0), full_matrices=False)
    factors = 0.1 * rng.normal(size=(len(things), rank))
    used = min(rank, int((sizes > 1e-6 * sizes[0]).sum())) if len(sizes) else 0
    scaled = left[:, :used] * np.sqrt(len(things)) * np.sqrt(sizes[:used] / sizes[0])
    factors[:, :used] = scaled * np.sign(scaled[np.abs(scaled).argmax(axis=0), np.arange(used)])
    who = np.zeros((len(people), 1 + rank + len(gaps)))
    who[:, 1 + rank :] = gaps
    return Fit(
        who,
        np.column_stack([np.zeros(len(things)), factors]),
        np.zeros((people.shape[1] + 1, who.shape[1])),
        np.zeros((things.shape[1] + 1, 1 + rank)),
        float(cuts[len(gaps) // 2]),
    )


def _loss(fit: Fit, pairs: Pairs) -> float:
    """Mean divergence of the distributions from the teacher's (nats)."""
    total = 0.0
    for start in range(0, len(pairs), _CHUNK):
        part = pairs.take(slice(start, start + _CHUNK))
        quotient = np.maximum(part.target, 1e-12) / np.maximum(fit.probabilities(part), 1e-12)
        total += float((part.target * np.log(quotient)).sum())
    return total / max(len(pairs), 1)


def _scores(
    fit: Fit, pairs: Pairs, *, cuts: bool = False
) -> tuple[Floats, Floats, tuple[Floats, Floats, Floats] | None]:
    """Weights and goals of the locations (pairs,), and sums by persona over cutpoints if asked.

    The sums are the gradient by cutpoint, and diagonal and off-diagonal of the information, of
    shape (personas, answers - 1) and one less; the pairs must be sorted by persona.
    """
    every = cuts_of(fit.people[:, 1 + fit.rank :], fit.anchor)
    weight, goal = np.empty(len(pairs)), np.empty(len(pairs))
    size = every.shape[1]
    sums = np.zeros((len(every), 3 * size - 1)) if cuts else None
    for start in range(0, len(pairs), _CHUNK):
        part = pairs.take(slice(start, start + _CHUNK))
        location = fit.location(part)
        gap = every[part.person]
        p = np.maximum(ordinal(gap, location), _LEAST)
        below = np.cumsum(p, axis=1)[:, :-1]
        slope = below * np.maximum(1 - below, _LEAST)
        ratio = part.target / p
        by_cut = slope * (ratio[:, :-1] - ratio[:, 1:])
        inverse = 1 / p
        across = slope[:, :-1] * slope[:, 1:] * inverse[:, 1:-1]
        diagonal = slope**2 * (inverse[:, :-1] + inverse[:, 1:])
        information = np.maximum(diagonal.sum(axis=1) - 2 * across.sum(axis=1), 1e-6)
        rows = slice(start, start + len(part))
        weight[rows] = information
        step = np.clip(-by_cut.sum(axis=1) / information, -_STEP, _STEP)
        goal[rows] = location + step
        if sums is not None:
            first = np.flatnonzero(np.diff(part.person, prepend=-1))
            stacked = np.concatenate([by_cut, diagonal, across], axis=1)
            sums[part.person[first]] += np.add.reduceat(stacked, first, axis=0)
    split = (
        None if sums is None else (sums[:, :size], sums[:, size : 2 * size], sums[:, 2 * size :])
    )
    return weight, goal, split


def _half(
    others: Floats, other: Ints, own: Ints, order: Ints, count: int,
    weight: Floats, goal: Floats, noise: float, mean: Floats, spread: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Values of one side given the other, and their mean posterior variance.

    ``order`` sorts the pairs by ``own``; ``mean`` and ``spread`` are those of the prior.
    """
    width = others.shape[1]
    design = others.copy()
    design[:, 0] = 1.0
    ends = np.searchsorted(own[order], np.arange(count + 1))
    gram = np.zeros((count, width, width))
    moment = np.zeros((count, width))
    for n in np.flatnonzero(np.diff(ends)).tolist():
        rows = order[ends[n] : ends[n + 1]]
        it = other[rows]
        known = design[it]
        weighted = known * weight[rows, None]
        gram[n] = known.T @ weighted
        moment[n] = weighted.T @ (goal[rows] - others[it, 0])
    rated = np.diff(ends) > 0
    system = gram / noise
    np.einsum("nii->ni", system)[...] += 1 / spread
    inverse = np.linalg.inv(system)
    solved = np.einsum("nij,nj->ni", inverse, moment / noise + mean / spread)
    return solved, np.einsum("nii->ni", inverse)[rated].mean(axis=0)


def _gaps(
    gaps: Floats, sums: tuple[Floats, Floats, Floats], noise: float, mean: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """One step of Fisher scoring in the log gaps of every persona; mean posterior variance."""
    gradient, diagonal, across = sums
    size = gaps.shape[1]
    if not size:
        return gaps, np.zeros(0)
    step = np.exp(gaps)
    # A gap moves the cutpoints between itself and the end, away from the middle.
    above = np.tri(size + 1, size, -1)
    moves = (above - above[size // 2]) * step[:, None, :]
    information = np.zeros((len(gaps), size + 1, size + 1))
    np.einsum("nii->ni", information)[...] = diagonal
    place = np.arange(size)
    information[:, place, place + 1] = information[:, place + 1, place] = -across
    turned = moves.transpose(0, 2, 1)
    system = np.matmul(turned, np.matmul(information, moves)) / noise
    np.einsum("nii->ni", system)[...] += 1 / spread
    slope = np.matmul(turned, gradient[:, :, None])[:, :, 0] / noise + (mean - gaps) / spread
    inverse = np.linalg.inv(system)
    change = np.clip(np.einsum("nij,nj->ni", inverse, slope), -0.5, 0.5)
    rated = diagonal.any(axis=1)
    new = np.clip(gaps + change, *_GAPS)
    return new, np.einsum("nii->ni", inverse)[rated].mean(axis=0)


def fit_memory(
    location: Floats,
    cuts: Floats,
    target: Floats,
    surplus: Callable[[float], tuple[Floats, Floats]],
) -> Memory:
    """Fit the effect of memories on a teacher's answers to states with histories.

    ``location`` and ``cuts`` are those of the states without their memories, of shape (n,) and (n,
    answers - 1), ``target`` the teacher's distributions, of shape (n, answers). ``surplus`` returns
    the two features of the memories for a strength of shrinkage, each of shape (n,).
    """
    best, least = Memory(0.0, 0.0, _STRENGTHS[-1]), np.inf
    for strength in _STRENGTHS:
        features = np.column_stack(surplus(strength))
        weights = np.zeros(2)
        for _ in range(12):
            p = np.maximum(ordinal(cuts, location + features @ weights), _LEAST)
            below = np.cumsum(p, axis=1)[:, :-1]
            padded = np.pad(below * (1 - below), ((0, 0), (1, 1)))
            by_answer = np.diff(padded, axis=1)
            information = (by_answer**2 / p).sum(axis=1)
            slope = -(target / p * by_answer).sum(axis=1)
            system = features.T @ (features * information[:, None]) + 1e-6 * np.eye(2)
            weights = weights + np.clip(np.linalg.solve(system, features.T @ slope), -2, 2)
        p = np.maximum(ordinal(cuts, location + features @ weights), _LEAST)
        loss = -float((target * np.log(p)).sum())
        if loss < least:
            best, least = Memory(float(weights[0]), float(weights[1]), strength), loss
    return best
