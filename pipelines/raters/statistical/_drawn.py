"""Tastes of personas: drawn from the covariance of people's, given the genres that are stated.

People's weights over item features are normal with a fitted covariance
(:mod:`pipelines.raters.statistical._tastes`). A stated genre is a noisy observation of the
persona's affinity to that genre, in standard deviations of people's affinities; its value and
noise are fitted on people, whose statements are the genres with their largest shrunken
surpluses. The draw conditions a draw from the prior on these observations (Matheron's rule:
Journel and Huijbregts, "Mining Geostatistics", 1978, section VII.A.1), which gives exact draws
from the posterior without a factorisation per persona.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.special import ndtri

from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.statistical._tastes import TasteModel
from pipelines.seeding import U64, uniform

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
_CHUNK = 4_096


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
    terms: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


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
        for start in range(0, len(ids), _CHUNK):
            part = slice(start, start + _CHUNK)
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
    return Prior(
        content["source"],
        content["people"],
        content["ratings"],
        tuple(content["genres"]),
        np.array(content["covariance"]),
        content["component"],
        content["noise"],
        tuple(content["statements"]),
        content["width_spread"],
        content["extremes_spread"],
        content["terms"],
    )


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
