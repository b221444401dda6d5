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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.raters.protocol import Floats, Ints

Singles = npt.NDArray[np.float32]

#: Principal components of the text vectors that enter, chosen on ml-latest-small's and
#: ml-100k's validation ratings among 8, 16 and 32 (set by hand).
COMPONENTS = 12
#: Years that count as one unit (set by hand).
_YEARS = 20.0
#: Prior variance of each weight and of the intercept, in squared rating units, and how many
#: people it counts for (set by hand); it decides only where there are few people.
_PRIOR_VARIANCE, _PRIOR_INTERCEPT, _PRIOR_PEOPLE = 0.02, 0.15, 5.0
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
    passes: int = _PASSES,
    prior: Floats | None = None,
    prior_people: float = _PRIOR_PEOPLE,
) -> TasteModel:
    """Covariance and noise under which the surpluses are most likely, or nearly so.

    Few passes of expectation maximisation are used on purpose: stopping early keeps directions that
    the ratings say little about near the prior. ``prior`` is a covariance that the fit is pooled
    with, counting for ``prior_people``; the others are as for :meth:`TasteModel.posterior`.
    """
    size = features.shape[1]
    if prior is None:
        prior = np.diag([_PRIOR_INTERCEPT, *[_PRIOR_VARIANCE] * (size - 1)])
    seen = features[item]
    typical = seen.T @ seen / max(len(item), 1)
    covariance, noise = (start.covariance, start.noise) if start else (prior, 0.75)
    for _ in range(passes):
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
