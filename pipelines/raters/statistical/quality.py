"""Quality of items: the mean rating, shrunk towards the prediction from their attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from pipelines.raters.protocol import Floats

#: TMDB votes at which a film's vote counts half (set by hand).
VOTES_HALF = 50.0
#: Strength of the pull of the attributes' weights to 0, in ratings (set by hand).
_RIDGE = 20.0
#: Bounds of the pseudo-ratings that the prior counts for (set by hand).
_WEAKEST, _STRONGEST = 1.0, 100.0


@dataclass(frozen=True)
class QualityModel:
    """Empirical-Bayes item means, in the source's rating units."""

    #: Mean of all training ratings.
    mean: float
    #: Rating units per point of TMDB vote above `vote_mean`, before any rating is seen; 0 in a
    #: domain without votes.
    vote_weight: float
    vote_mean: float
    #: Rating units per unit of each other feature, of shape (features,).
    weights: Floats
    #: Pseudo-ratings that the prior counts for.
    strength: float

    def prior(self, table: ItemTable, features: Floats) -> Floats:
        """Quality before any rating, relative to `mean`, of shape (items,)."""
        signal = _vote_signal(table, self.vote_mean)
        return np.asarray(self.vote_weight * signal + features @ self.weights)

    def of(self, table: ItemTable, features: Floats) -> Floats:
        """Quality of each item relative to `mean`, of shape (items,).

        `features` are those of :class:`pipelines.raters.statistical.tastes.Basis`.
        """
        surplus = table.totals - table.counts * self.mean
        prior = self.strength * self.prior(table, features)
        return np.asarray((surplus + prior) / (table.counts + self.strength))


@dataclass(frozen=True)
class ItemTable:
    """Per item, all of shape (items,): training ratings, their sum, TMDB vote and votes."""

    counts: Floats
    totals: Floats
    votes: Floats
    vote_counts: Floats

    def without(self, counts: Floats, totals: Floats) -> ItemTable:
        """The table without these ratings."""
        return replace(self, counts=self.counts - counts, totals=self.totals - totals)

    def beyond(self, sampled: Floats, explained: Floats) -> ItemTable:
        """The table with what its raters' leniency and taste explain taken off the sums.

        Per item, of shape (items,): the ratings that are explained (count) and the sum of what is
        explained. Where only a part of an item's ratings was sampled, that part speaks for the rest
        as far as five ratings or more do.
        """
        part = np.divide(sampled, self.counts, out=np.ones_like(sampled), where=self.counts > 0)
        share = sampled + 5.0 * np.clip(1.0 - part, 0.0, 1.0)
        mean = np.divide(explained, share, out=np.zeros_like(explained), where=share > 0)
        return replace(self, totals=self.totals - self.counts * mean)


def item_table(items: pl.DataFrame, item_stats: pl.DataFrame | None) -> ItemTable:
    """Ratings and votes of each row of `items`; unknown items have no ratings."""
    size = items.height
    if item_stats is None:
        counts, totals = np.zeros(size), np.zeros(size)
    else:
        joined = items.select("item_id").join(
            item_stats.select("item_id", "train_ratings", "train_mean_rating"),
            on="item_id",
            how="left",
            maintain_order="left",
        )
        counts = joined["train_ratings"].fill_null(0).cast(pl.Float64).to_numpy()
        totals = counts * joined["train_mean_rating"].fill_null(0.0).to_numpy()
    return ItemTable(counts, totals, _column(items, "vote_average"), _column(items, "vote_count"))


def fit_quality(table: ItemTable, features: Floats, noise: float, mean: float) -> QualityModel:
    """Estimate the prior's weights by least squares and its strength by the method of moments.

    ``features``: of :class:`pipelines.raters.statistical.tastes.Basis`, shape (items, features);
    ``noise``: variance of one rating around its item's mean; ``mean``: of all training ratings.
    """
    voted = ~np.isnan(table.votes) & (np.nan_to_num(table.vote_counts) > 0)
    vote_mean = float(table.votes[voted].mean()) if voted.any() else 0.0
    blank = QualityModel(mean, 0.0, vote_mean, np.zeros(features.shape[1]), _STRONGEST)
    rated = table.counts > 0
    if not rated.any():
        return blank
    count = table.counts[rated]
    gap = table.totals[rated] / count - mean
    # More ratings of an item carry more information, up to what separates its quality from others'.
    weight = count / (count + 5.0)
    columns = np.column_stack([_vote_signal(table, vote_mean), features])[rated]
    slopes = _ridge(columns, gap, weight)
    if slopes[0] < 0:
        # A better vote never makes a film worse.
        columns[:, 0] = 0.0
        slopes = _ridge(columns, gap, weight)
    residual = gap - columns @ slopes
    spread = float((weight * (residual**2 - noise / count)).sum() / weight.sum())
    strength = float(np.clip(noise / max(spread, 1e-9), _WEAKEST, _STRONGEST))
    return replace(blank, vote_weight=float(slopes[0]), weights=slopes[1:], strength=strength)


def _ridge(columns: Floats, target: Floats, weight: Floats) -> Floats:
    weighed = columns * weight[:, None]
    pull = _RIDGE * np.eye(columns.shape[1])
    return np.asarray(np.linalg.solve(weighed.T @ columns + pull, weighed.T @ target))


def _vote_signal(table: ItemTable, vote_mean: float) -> Floats:
    """Votes above their mean, as far as there are enough of them; 0 where there are none."""
    count = np.nan_to_num(table.vote_counts)
    return np.asarray(np.nan_to_num(table.votes - vote_mean) * count / (count + VOTES_HALF))


def _column(frame: pl.DataFrame, name: str) -> Floats:
    if name not in frame.columns:
        return np.full(frame.height, np.nan)
    return frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
