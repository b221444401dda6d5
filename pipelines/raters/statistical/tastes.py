"""Taste from a rating history: one linear model per person over item features.

A person's surplus over an item's quality is ``features(item) . w + noise`` with ``w`` drawn
from a normal distribution whose covariance is fitted on everybody's training ratings
(expectation maximisation for the random-effects model of Laird and Ware, "Random-effects
models for longitudinal data", Biometrics 38, 1982). The posterior mean of ``w`` given a
history predicts other items by ratings of similar ones: it equals Gaussian-process regression
whose kernel, the similarity of two items, is the product of their features under that
covariance, and shrinks to nothing for a person without history.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import ndtri

from pipelines.raters.protocol import Floats, Ints
from pipelines.seeding import U64, uniform

Singles = npt.NDArray[np.float32]

#: Principal components of the text vectors that enter, chosen on ml-latest-small's and
#: ml-100k's validation ratings among 8, 16 and 32 (set by hand).
COMPONENTS = 12
#: Years that count as one unit (set by hand).
_YEARS = 20.0
#: Prior variance of each weight and of the intercept, in squared rating units, and how many
#: people it counts for (set by hand); it decides only where there are few people.
_PRIOR_VARIANCE, _PRIOR_INTERCEPT, _PRIOR_PEOPLE = 0.02, 0.15, 5.0
#: People that a packaged covariance counts for where a world is too small for its own (set by
#: hand).
POOLED_PEOPLE = 50.0
#: Passes of expectation maximisation (count).
_PASSES = 8
#: People whose matrices are held at once (count).
_CHUNK = 1_000


@dataclass(frozen=True)
class Basis:
    """From an item's attributes to the features of taste; fitted on the items' attributes only."""

    #: Mean genre indicator (genres,).
    genres: Floats
    #: Mean (dimension,) and principal directions (dimension, components) of the vectors, scaled to
    #: a variance of 1 on average.
    centre: Floats
    components: Floats
    #: Means of the year and of log(1 + training ratings).
    year: float
    popularity: float

    @classmethod
    def fit(cls, items: pl.DataFrame, listed: Singles, vectors: Singles, counts: Floats) -> Basis:
        """Centre and scale over the items, each counting as often as it was rated."""
        weight = counts + 1e-6
        weight = weight / weight.sum()
        embedded = np.asarray(vectors.any(axis=1)) if vectors.shape[1] else np.zeros(0, bool)
        centre = np.zeros(vectors.shape[1])
        components = np.zeros((vectors.shape[1], 0))
        if embedded.any():
            share = weight[embedded] / weight[embedded].sum()
            nonzero = vectors[embedded].astype(np.float64)
            centre = share @ nonzero
            off = nonzero - centre
            eigen = np.linalg.eigh((off * share[:, None]).T @ off)
            values, directions = eigen.eigenvalues[::-1], eigen.eigenvectors[:, ::-1]
            rank = min(COMPONENTS, int((values > 1e-9).sum()))
            # The sign of a direction is arbitrary; fixed so that equal input gives equal bits.
            signs = np.sign(directions[np.abs(directions).argmax(axis=0), range(len(values))])
            scale = np.sqrt(max(float(values[:rank].mean()), 1e-9)) if rank else 1.0
            components = (directions * signs)[:, :rank] / scale
        years = _years(items)
        dated = ~np.isnan(years)
        year = float(np.average(years[dated], weights=weight[dated])) if dated.any() else 0.0
        rated = np.log1p(counts)
        return cls(weight @ _lengths(listed), centre, components, year, float(weight @ rated))

    def of(self, items: pl.DataFrame, listed: Singles, vectors: Singles, counts: Floats) -> Floats:
        """Features of shape (items, features); what is unknown of an item is 0."""
        embedded = np.asarray(vectors.any(axis=1), dtype=np.bool_)
        text = np.where(embedded[:, None], (vectors - self.centre) @ self.components, 0.0)
        year = np.nan_to_num((_years(items) - self.year) / _YEARS)
        genres = np.where((listed.sum(axis=1) > 0)[:, None], _lengths(listed) - self.genres, 0.0)
        popularity = np.log1p(counts) - self.popularity
        return np.column_stack([genres, text, year, popularity])


@dataclass(frozen=True)
class Tastes:
    """Beliefs about some people.

    ``mean``: posterior means of shape (people, 1 + features), first the intercept (leniency);
    ``variance``: posterior variance of the surplus over a typical item, of shape (people,), in
    squared rating units.
    """

    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class TasteModel:
    """Covariance of people's weights, of shape (1 + features,) squared, and the noise's variance.

    ``typical`` is the mean product of the features of a rated item, of the same shape.
    """

    covariance: Floats
    noise: float
    typical: Floats

    @property
    def taste_variance(self) -> float:
        """Variance of people's surplus over a typical item beside leniency."""
        return float((self.covariance[1:, 1:] * self.typical[1:, 1:]).sum())

    def posterior(
        self,
        features: Floats,
        people: int,
        person: Ints,
        item: Ints,
        surplus: Floats,
        given: tuple[Floats, Floats] | None = None,
    ) -> Tastes:
        """Beliefs of ``people`` (count) after ratings.

        ``features`` are those of all items, the intercept first, of shape (items, 1 + features).
        ``person``, ``item`` (row of `features`) and ``surplus`` (rating units above what was
        expected) are of shape (ratings,).

        ``given`` is knowledge beside ratings: columns that an observation with a noise of variance
        1 is about, of shape (observations, 1 + features), and which of them there are of each
        person, of shape (people, observations), 0 or 1. They narrow the prior, and are part of what
        was expected.
        """
        size = features.shape[1]
        mean = np.zeros((people, size))
        prior_variance = float((self.covariance * self.typical).sum())
        variance = np.full(people, prior_variance)
        inverse = np.linalg.inv(self.covariance)
        for who, gram, moment, _ in _moments(features, person, item, surplus):
            precision = inverse + gram / self.noise
            if given is not None:
                seen, stated = given
                precision += np.einsum("ng,gi,gj->nij", stated[who], seen, seen, optimize=True)
            spread = np.linalg.inv(precision)
            mean[who] = np.einsum("nij,nj->ni", spread, moment / self.noise)
            variance[who] = np.einsum("nij,ij->n", spread, self.typical)
        return Tastes(mean, variance)


def genre_beliefs(
    model: TasteModel, features: Floats, contrasts: Floats, rows: tuple[Ints, Ints, Floats]
) -> tuple[Ints, Floats, Floats]:
    """Posterior mean and mean square of people's affinities to genres, each (people, genres).

    ``contrasts`` are the taste columns that an affinity is the product with, of shape (genres, 1 +
    features); ``rows`` person, item and surplus of each rating. Returns first who has a rating.
    """
    inverse = np.linalg.inv(model.covariance)
    who, means, squares = [], [], []
    for people, gram, moment, _ in _moments(features, *rows):
        spread = np.linalg.inv(inverse + gram / model.noise)
        mean = np.einsum("nij,nj->ni", spread, moment / model.noise) @ contrasts.T
        who.append(people)
        means.append(mean)
        squares.append(mean**2 + np.einsum("gi,nij,gj->ng", contrasts, spread, contrasts))
    return np.concatenate(who), np.concatenate(means), np.concatenate(squares)


def fit_tastes(
    features: Floats,
    person: Ints,
    item: Ints,
    surplus: Floats,
    *,
    start: TasteModel | None = None,
    pooled: Floats | None = None,
) -> TasteModel:
    """Covariance and noise under which the surpluses are most likely, or nearly so.

    Few passes of expectation maximisation are used on purpose: stopping early keeps directions that
    the ratings say little about near the prior. ``pooled`` is a covariance that the fit is pooled
    with, counting for `POOLED_PEOPLE`; the others are as for :meth:`TasteModel.posterior`.
    """
    size = features.shape[1]
    prior, prior_people = pooled, POOLED_PEOPLE
    if prior is None:
        prior = np.diag([_PRIOR_INTERCEPT, *[_PRIOR_VARIANCE] * (size - 1)])
        prior_people = _PRIOR_PEOPLE
    seen = features[item]
    typical = seen.T @ seen / max(len(item), 1)
    covariance, noise = (start.covariance, start.noise) if start else (prior, 0.75)
    for _ in range(_PASSES):
        inverse = np.linalg.inv(covariance)
        outer, wrong, people = np.zeros((size, size)), 0.0, 0
        for who, gram, moment, square in _moments(features, person, item, surplus):
            spread = np.linalg.inv(inverse + gram / noise)
            mean = np.einsum("nij,nj->ni", spread, moment / noise)
            outer += spread.sum(axis=0) + mean.T @ mean
            fitted = np.einsum("nij,nj->ni", gram, mean)
            wrong += float(square.sum() - 2 * (mean * moment).sum() + (mean * fitted).sum())
            wrong += float((spread * gram).sum())
            people += len(who)
        covariance = (outer + prior_people * prior) / (people + prior_people)
        # The prior's people also give ten ratings each: no world is without noise.
        weight = 10.0 * _PRIOR_PEOPLE
        noise = (wrong + weight * 0.75) / (len(item) + weight)
    return TasteModel(covariance, noise, typical)


def _moments(
    features: Floats, person: Ints, item: Ints, surplus: Floats
) -> Iterator[tuple[Ints, Floats, Floats, Floats]]:
    """Per chunk of people: who, X'X (n, d, d), X'y (n, d) and y'y (n,) of their ratings."""
    order = np.argsort(person, kind="stable")
    item, surplus = item[order], surplus[order]
    people, first = np.unique(person[order], return_index=True)
    last = np.append(first[1:], len(order))
    size = features.shape[1]
    for start in range(0, len(people), _CHUNK):
        part = slice(start, start + _CHUNK)
        who = people[part]
        gram = np.empty((len(who), size, size))
        moment, square = np.empty((len(who), size)), np.empty(len(who))
        for n, (a, b) in enumerate(zip(first[part], last[part], strict=True)):
            x, y = features[item[a:b]], surplus[a:b]
            gram[n], moment[n], square[n] = x.T @ x, x.T @ y, y @ y
        yield who, gram, moment, square


def _lengths(listed: Singles) -> Floats:
    """Indicators of unit length, so that an item of many genres is none of them fully."""
    return np.asarray(
        listed / np.sqrt(np.maximum(listed.sum(axis=1, keepdims=True), 1)), np.float64
    )


def _years(items: pl.DataFrame) -> Floats:
    if "year" not in items.columns:
        return np.full(items.height, np.nan)
    return items["year"].cast(pl.Float64).fill_null(float("nan")).to_numpy()


#: Other ratings that an item needs before a rating is compared with their mean (count).
_MIN_OTHERS = 4
#: Ratings of one rater above which its pairs of ratings count for less: about as many as tell
#: its taste (set by hand; decides the spread of an estimate, not its expectation).
_MANY = 50.0


def other_means(item: Ints, rating: Floats) -> Floats:
    """Mean of the item's other ratings, of shape (ratings,); NaN with fewer than four."""
    count = np.bincount(item)[item]
    total = np.bincount(item, rating)[item]
    others = np.where(count > _MIN_OTHERS, count - 1, np.nan)
    return np.asarray((total - rating) / others)


def component_sums(
    user: Ints, item: Ints, surplus: Floats, features: Floats, groups: Sequence[Ints], users: int
) -> Floats:
    """Sums per user that :func:`components` solves, of shape (users, k * k + 2 * k + 1); additive.

    ``user``, ``item`` and ``surplus`` have shape (ratings,), rows with a surplus of NaN are left
    out; ``features`` are of all items, of shape (items, columns); ``groups`` are k lists of columns
    that share a variance each.
    """
    size = len(groups)
    sums = np.zeros((users, size * size + 2 * size + 1))
    finite = np.flatnonzero(np.isfinite(surplus))
    order = finite[np.argsort(user[finite], kind="stable")]
    ends = np.searchsorted(user[order], np.arange(users + 1))
    for n in range(users):
        rows = order[ends[n] : ends[n + 1]]
        if len(rows) < 2:
            continue
        r = surplus[rows]
        parts = [features[np.ix_(item[rows], columns)] for columns in groups]
        norms = np.stack([(x**2).sum(axis=1) for x in parts], axis=1)
        gram = np.array([[((x.T @ y) ** 2).sum() for y in parts] for x in parts])
        moment = np.array([((x.T @ r) ** 2).sum() for x in parts])
        # A rating's product with itself is noise.
        weight = 1.0 / (len(rows) + _MANY) ** 2
        sums[n, : size * size] = weight * (gram - norms.T @ norms).ravel()
        sums[n, size * size : -size - 1] = weight * (moment - norms.T @ r**2)
        sums[n, -size - 1 : -1] = norms.sum(axis=0)
        sums[n, -1] = len(rows)
    return sums


def components(sums: Floats) -> Floats:
    """Variance that each group adds to a typical rating, of shape (rows, groups).

    `sums` are of :func:`component_sums`, added over users, of shape (rows, columns). A variance
    may be negative by chance. A group that does not vary among the items gets nothing.
    """
    size = int(np.sqrt(sums.shape[1])) - 1
    system = sums[:, : size * size].reshape(-1, size, size)
    flat = np.trace(system, axis1=1, axis2=2)[:, None, None] * 1e-9 + 1e-300
    right = sums[:, size * size : -size - 1, None]
    variances = np.linalg.solve(system + flat * np.eye(size), right)[:, :, 0]
    return np.asarray(variances * sums[:, -size - 1 : -1] / np.maximum(sums[:, -1:], 1.0))


#: Genres that a person of the data set states at most: those with the largest and the smallest
#: shrunken surplus (counts, about as many as personas state).
MAX_LIKES, MAX_DISLIKES = 4, 2
#: Parts of a draw, as keys of the generator.
_TASTE, _STATEMENT, _WIDTH, _EXTREMES = 101, 102, 103, 104
#: Observation noises that are tried, in standard deviations of affinity.
_NOISES = np.geomspace(0.1, 4.0, 24)
#: Bounds of the factor by which moments correct a variance of the early-stopped fit.
_LEAST_FACTOR, _MOST_FACTOR = 0.25, 4.0
#: Personas that are conditioned at once (count); bounds memory.
_PERSONAS_AT_ONCE = 4_096


@dataclass(frozen=True)
class StatementModel:
    """Observation model of stated genres."""

    #: Mean taste columns of each genre's rated items minus those of all rated items, of shape
    #: (genres, 1 + features); the first column is 0.
    contrasts: Floats
    #: Observed affinity of a genre that is liked (disliked), in standard deviations of people's
    #: affinities to it.
    liked: float
    disliked: float
    #: Standard deviation of these observations, in the same unit.
    noise: float


@dataclass(frozen=True)
class PersonaTastes:
    """Tastes of personas, over the catalogue's taste columns, each of shape (n, 1 + features)."""

    #: Posterior mean that liked (disliked) genres contribute; their sum is the mean taste.
    liked: Floats
    disliked: Floats
    #: Draw around that mean; zero in expectation.
    drawn: Floats
    #: Variance of the draw's surplus over a typical item, of shape (n,); 0 where nothing is drawn.
    variance: Floats
    #: Factor of the width of each persona's distributions, of shape (n,); the mean of its square
    #: over people is 1.
    width: Floats
    #: Log odds of the scale's end answers beside the average person's, and the variance of such
    #: draws, of shape (n, 2).
    extremes: Floats
    #: Factor of the width of those about whom no more is known, before taste is drawn, (n,).
    level: Floats

    @property
    def mean_and_draw(self) -> Floats:
        """The mean taste with the draw around it, of shape (n, 1 + features)."""
        return self.liked + self.disliked + self.drawn


@dataclass(frozen=True)
class Prior:
    """Packaged aggregates of a data set that small worlds are pooled with."""

    source: str
    people: int
    ratings: int
    genres: tuple[str, ...]
    covariance: Floats
    component: float
    noise: float
    statements: tuple[float, float, float]
    width_spread: float
    extremes_spread: float
    terms: str


def genre_contrasts(taste: Floats, listed: Floats, counts: Floats) -> Floats:
    """Mean taste columns of each genre's items minus those of all, weighted by ratings.

    ``taste`` are the items' taste columns, of shape (items, 1 + features), ``listed`` whether an
    item has a genre, of shape (items, genres), ``counts`` the training ratings, of shape (items,).
    """
    weight = counts + 1e-6
    by_genre = listed * weight[:, None]
    total = np.maximum(by_genre.sum(axis=0), 1e-12)
    out = (by_genre.T @ taste) / total[:, None] - weight @ taste / weight.sum()
    out[:, 0] = 0.0
    return np.asarray(out)


def stated_genres(affinity: Floats) -> tuple[Floats, Floats]:
    """Genres that people would state: largest positive and smallest negative affinities.

    ``affinity`` is the shrunken mean surplus by genre, of shape (people, genres), as are likes and
    dislikes, 0 or 1.

    Examples
    --------
    >>> likes, dislikes = stated_genres(np.array([[0.4, -0.2, 0.1, 0.0]]))
    >>> likes.tolist(), dislikes.tolist()
    ([[1.0, 0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0, 0.0]])
    """

    def top(value: Floats, most: int) -> Floats:
        rank = np.argsort(np.argsort(-value, axis=1, kind="stable"), axis=1)
        return np.asarray((rank < most) & (value > 0), np.float64)

    return top(affinity, MAX_LIKES), top(-affinity, MAX_DISLIKES)


@dataclass(frozen=True)
class Conditioner:
    """Posterior of taste given stated genres, for one covariance and observation model."""

    covariance: Floats
    typical: Floats
    model: StatementModel

    @classmethod
    def of(cls, tastes: TasteModel, model: StatementModel) -> Conditioner:
        """Leave leniency out: it is drawn by itself."""
        covariance = tastes.covariance.copy()
        covariance[0, :] = covariance[:, 0] = 0.0
        return cls(covariance, tastes.typical, model)

    @property
    def scale(self) -> Floats:
        """Standard deviation of people's affinity to each genre, of shape (genres,)."""
        contrasts = self.model.contrasts
        variance = np.einsum("gi,ij,gj->g", contrasts, self.covariance, contrasts)
        return np.asarray(np.sqrt(np.maximum(variance, 1e-12)))

    @property
    def observed(self) -> Floats:
        """Taste columns that a statement on each genre observes with a noise of variance 1."""
        return self.model.contrasts / (self.model.noise * self.scale)[:, None]

    def gains(self, likes: Floats, dislikes: Floats) -> tuple[Floats, Floats, Floats]:
        """Gains of the observations, the observations, and what they leave unknown.

        Arrays of shape (n, 1 + features, genres) and (n, genres), and the posterior variance of the
        surplus over a typical item, of shape (n,).
        """
        model = self.model
        cross = model.contrasts @ self.covariance
        affinity, scale = cross @ model.contrasts.T, self.scale
        stated = ((likes + dislikes) > 0).astype(np.float64)
        system = affinity * stated[:, :, None] * stated[:, None, :]
        # A genre that is not stated is observed with noise only: it changes nothing.
        np.einsum("nii->ni", system)[...] += (model.noise * scale) ** 2 + 1e-9
        inverse = np.linalg.inv(system) * stated[:, :, None] * stated[:, None, :]
        gain = np.matmul(cross.T, inverse)
        value = (likes * model.liked - dislikes * model.disliked) * scale * stated
        explained = np.einsum("nij,ji->n", inverse, cross @ self.typical @ cross.T)
        total = float((self.covariance * self.typical).sum())
        return gain, value, np.maximum(total - explained, 0.0)

    def of_personas(
        self,
        likes: Floats,
        dislikes: Floats,
        ids: U64,
        seed: int,
        *,
        width_spread: float,
        extremes_spread: float = 0.0,
        widths: tuple[Floats, Floats] | None = None,
    ) -> PersonaTastes:
        """Posterior means, and draws fixed by id and seed.

        ``likes`` and ``dislikes`` are stated genres, of shape (n, genres), 0 or 1; ``ids`` hashes
        of the personas' ids, of shape (n,). The spreads are standard deviations of the logarithm of
        people's widths and of their log odds of the end answers. ``widths`` are shares of people
        between which each persona's width is drawn, each of shape (n,); default: all of them.
        """
        size, genres = len(self.covariance), likes.shape[1]
        model = self.model
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        scale = self.scale
        out = [np.empty((len(ids), size)) for _ in range(3)]
        variance = np.empty(len(ids))
        for start in range(0, len(ids), _PERSONAS_AT_ONCE):
            part = slice(start, start + _PERSONAS_AT_ONCE)
            gain, value, variance[part] = self.gains(likes[part], dislikes[part])
            key = ids[part][:, None]
            plain = _normal(seed, key, _TASTE, np.arange(size)) @ root.T
            error = _normal(seed, key, _STATEMENT, np.arange(genres)) * model.noise * scale
            seen = plain @ model.contrasts.T + error
            # The gain of a genre that is not stated is 0.
            out[0][part] = np.einsum("nij,nj->ni", gain, np.maximum(value, 0.0))
            out[1][part] = np.einsum("nij,nj->ni", gain, np.minimum(value, 0.0))
            out[2][part] = plain - np.einsum("nij,nj->ni", gain, seen)
        low, high = widths if widths is not None else (np.zeros(len(ids)), np.ones(len(ids)))
        normal = _normal_of(low + (high - low) * uniform(seed, ids, _WIDTH))
        width = np.exp(width_spread * normal - width_spread**2)
        extremes = np.full((len(ids), 2), extremes_spread**2)
        extremes[:, 0] = extremes_spread * _normal(seed, ids, _EXTREMES)
        return PersonaTastes(out[0], out[1], out[2], variance, width, extremes, np.ones(len(ids)))


def fit_statements(
    tastes: TasteModel, contrasts: Floats, affinity: Floats, mean: Floats, second: Floats
) -> StatementModel:
    """Fit the observation model on people by the method of moments.

    For each observation noise that is tried, the two observed values are those under which the mean
    affinity to stated genres is people's (least squares); the noise is the one under which the mean
    square of these affinities is people's, too.

    ``tastes`` is the prior, ``contrasts`` the genres' (:func:`genre_contrasts`). ``affinity`` is
    the shrunken mean surplus of people by genre, which decides what they state; ``mean`` and
    ``second`` are the posterior mean and mean square of people's affinities, all of shape (people,
    genres).
    """
    likes, dislikes = stated_genres(affinity)
    best, wrong = StatementModel(contrasts, 1.0, 1.0, 1.0), np.inf
    for noise in _NOISES:
        unit = StatementModel(contrasts, 1.0, 1.0, float(noise))
        conditioner = Conditioner.of(tastes, unit)
        gain, _, _ = conditioner.gains(likes, dislikes)
        affine = np.matmul(contrasts, gain)
        scale = conditioner.scale
        by_like = np.einsum("nij,nj->ni", affine, likes * scale) / scale
        by_dislike = -np.einsum("nij,nj->ni", affine, dislikes * scale) / scale
        standard = mean / scale
        rows = np.array([_average(by_like, w) for w in (likes, dislikes)])
        more = np.array([_average(by_dislike, w) for w in (likes, dislikes)])
        goal = np.array([_average(standard, w) for w in (likes, dislikes)])
        solution = np.linalg.lstsq(np.column_stack([rows, more]), goal, rcond=None)[0]
        values = np.maximum(solution, 0.0)
        expected = by_like * values[0] + by_dislike * values[1]
        cross = conditioner.model.contrasts @ conditioner.covariance
        prior = cross @ contrasts.T
        spread = 1.0 - np.einsum("nij,ji->ni", affine, prior) / scale**2
        stated = likes + dislikes
        gap = abs(_average(expected**2 + spread, stated) - _average(second / scale**2, stated))
        if gap < wrong:
            best, wrong = (
                StatementModel(contrasts, float(values[0]), float(values[1]), float(noise)),
                gap,
            )
    return best


def drawn_covariance(
    tastes: TasteModel,
    features: Floats,
    groups: Sequence[Ints],
    rows: tuple[Ints, Ints, Floats],
    users: int,
) -> Floats:
    """Covariance that tastes are drawn from: fitted correlations, variances by moments.

    Expectation maximisation is stopped early, which serves the prediction of people's ratings and
    leaves variances near where they started. Moments have no such pull: each group's variance is
    scaled to theirs.

    ``features`` are the taste columns of all items, ``groups`` columns that share a factor each,
    ``rows`` user, item and rating of people's ratings; ``users`` is a count.
    """
    user, item, rating = rows
    column_groups = [np.array([0]), *groups]
    surplus = rating - other_means(item, rating)
    sums = component_sums(user, item, surplus, features, column_groups, users)
    variances = components(sums.sum(axis=0, keepdims=True))[0]
    factor = np.ones(len(tastes.covariance))
    for columns, variance in zip(groups, variances[1:], strict=True):
        fitted = float((np.diag(tastes.covariance) * np.diag(tastes.typical))[columns].sum())
        ratio = np.clip(variance / max(fitted, 1e-9), _LEAST_FACTOR, _MOST_FACTOR)
        factor[columns] = np.sqrt(ratio)
    return np.asarray(tastes.covariance * factor[:, None] * factor[None, :])


@cache
def packaged_prior() -> Prior:
    """Aggregates fitted on ml-latest-small (``benchmarks/raters/package_prior.py``)."""
    text = files("pipelines.raters.statistical").joinpath("data/taste_prior.json").read_text()
    content = json.loads(text)
    for name in ("genres", "statements"):
        content[name] = tuple(content[name])
    content["covariance"] = np.array(content["covariance"])
    return Prior(**content)


def pooled_covariance(prior: Prior, genres: Sequence[str], components: int) -> Floats:
    """The packaged covariance for the taste columns of another world.

    Columns are the intercept, `genres`, text components, year, popularity and quality. Genres
    that the packaged fit does not have get the mean variance of its genres and no covariance,
    text components (which differ between worlds) the packaged components' mean variance.
    """
    place = {name: n + 1 for n, name in enumerate(prior.genres)}
    genre_count = len(prior.genres)
    source = [
        0,
        *(place.get(g, -1) for g in genres),
        *[-2] * components,
        *range(genre_count + 1, genre_count + 4),
    ]
    usual = float(np.diag(prior.covariance)[1 : genre_count + 1].mean())
    index = np.array(source)
    both = (index[:, None] >= 0) & (index[None, :] >= 0)
    out = np.where(both, prior.covariance[np.ix_(index, index)], 0.0)
    diagonal = np.where(index == -1, usual, np.where(index == -2, prior.component, 0.0))
    return np.asarray(out + np.diag(diagonal))


def _average(values: Floats, weight: Floats) -> float:
    return float((values * weight).sum() / max(float(weight.sum()), 1.0))


def _normal(*keys: Any) -> Floats:
    """Standard normal numbers that depend on the keys only."""
    return _normal_of(uniform(*keys))


def _normal_of(share: Floats) -> Floats:
    """Standard normal quantiles."""
    return np.asarray(ndtri(np.clip(share, 2**-53, 1 - 2**-53)))
