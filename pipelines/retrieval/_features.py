"""Retrieval by what items are: genres, people, mean rating.

SUBER (Corecco et al. 2024, section 3.3 and appendix) compares films by their genres, main
actors, directors and mean ratings. The similarity here is the mean of

- the Sørensen-Dice coefficient of the genres,
- the Sørensen-Dice coefficient of the two main actors,
- 1 - |difference of the mean ratings| / range of the scale,
- 1 if the two have a director in common, else 0,

over those terms that both items state: a feature that either lacks is left out of the mean, so
that two items of which nothing is known are not alike. Books have authors in the directors'
place and no actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.retrieval._protocol import Floats, Ints, SimilarityRetriever
from pipelines.scales import SCALES, RatingScale

#: Main actors (count), and directors or authors of an item that are looked at (count).
_ACTORS, _MAKERS = 2, 2
#: Pairs that are compared at once (count).
_PAIRS = 200_000


@dataclass(frozen=True)
class ItemFeatures:
    """Attributes by which items are compared."""

    #: 0 or 1, of shape (items, genres).
    genres: npt.NDArray[np.float32]
    #: Numbers of the main actors, and of directors or authors, -1 where there is none, each of
    #: shape (items, 2).
    actors: Ints
    makers: Ints
    #: Mean ratings, NaN where unknown, of shape (items,).
    means: Floats
    #: Highest minus lowest rating of their scale.
    reach: float

    @classmethod
    def of(
        cls,
        items: pl.DataFrame,
        item_stats: pl.DataFrame | None = None,
        scale: RatingScale = SCALES["0.5-5"],
    ) -> ItemFeatures:
        """Features of rows of an `items` contract.

        A column of ``genres``, ``actors``, ``directors``, ``authors`` that is not there is a
        feature that no item states. `item_stats` holds training means (``train_mean_rating``) on
        `scale`.
        """
        means = np.full(items.height, np.nan)
        if item_stats is not None:
            means = (
                items.select("item_id")
                .join(
                    item_stats.select("item_id", "train_mean_rating"),
                    on="item_id",
                    how="left",
                    maintain_order="left",
                    validate="1:1",
                )["train_mean_rating"]
                .cast(pl.Float64)
                .fill_null(float("nan"))
                .to_numpy()
            )
        makers = "directors" if "directors" in items.columns else "authors"
        return cls(
            _indicators(_lists(items, "genres")),
            _codes(_lists(items, "actors"), _ACTORS),
            _codes(_lists(items, makers), _MAKERS),
            means,
            scale.high - scale.low,
        )

    def similarity(self, left: Ints, right: Ints) -> Floats:
        """Similarity of items, 0 to 1, NaN where no term is known of both; the two broadcast."""
        left, right = np.broadcast_arrays(left, right)
        genres = self.genres.sum(axis=1)
        shared = np.vecdot(self.genres[left], self.genres[right])
        terms = [_dice(shared, genres[left], genres[right])]
        actors = (self.actors >= 0).sum(axis=1)
        common = _common(self.actors[left], self.actors[right])
        terms.append(_dice(common, actors[left], actors[right]))
        gap = np.abs(self.means[left] - self.means[right])
        terms.append(1.0 - gap / self.reach)
        stated = self.makers[:, 0] >= 0
        same_maker = (_common(self.makers[left], self.makers[right]) > 0).astype(np.float64)
        terms.append(np.where(stated[left] & stated[right], same_maker, np.nan))
        count = sum((~np.isnan(term)).astype(np.float64) for term in terms)
        total = sum(np.nan_to_num(term) for term in terms)
        return np.where(count > 0, total / np.maximum(count, 1.0), np.nan)


class FeatureRetriever(SimilarityRetriever):
    """Selects the items most like the query by :class:`ItemFeatures`, of equal ones the newest."""

    name = "features"

    def __init__(self, features: ItemFeatures) -> None:
        self._features = features

    def similarity(self, items: Ints, others: Ints) -> Floats:
        """Similarity of each item and its row of others, of shape (n, h)."""
        out = np.empty(others.shape)
        step = max(1, _PAIRS // max(1, others.shape[1]))
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            out[part] = self._features.similarity(items[part, None], others[part])
        return out


def _dice(shared: npt.NDArray[np.floating], left: npt.ArrayLike, right: npt.ArrayLike) -> Floats:
    """Sørensen-Dice from set sizes; NaN where either set is empty."""
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    defined = (a > 0) & (b > 0)
    return np.where(defined, 2.0 * shared / np.where(defined, a + b, 1.0), np.nan)


def _common(left: Ints, right: Ints) -> Floats:
    """Number of common values of two rows of distinct numbers; -1 is none."""
    same = (left[..., :, None] == right[..., None, :]) & (left[..., :, None] >= 0)
    return np.asarray(same.sum(axis=(-1, -2)), np.float64)


def _lists(items: pl.DataFrame, column: str) -> pl.Series:
    if column in items.columns:
        return items[column]
    return pl.Series(column, [[]] * items.height, dtype=pl.List(pl.String))


def _indicators(lists: pl.Series) -> npt.NDArray[np.float32]:
    names: Sequence[str] = lists.explode().drop_nulls().unique().sort().to_list()
    column = {name: n for n, name in enumerate(names)}
    out = np.zeros((len(lists), len(names)), np.float32)
    long = pl.DataFrame({"row": np.arange(len(lists)), "name": lists}).explode("name").drop_nulls()
    if long.height:
        columns = long["name"].replace_strict(column, return_dtype=pl.Int64)
        out[long["row"].to_numpy(), columns.to_numpy()] = 1.0
    return out


def _codes(lists: pl.Series, most: int) -> Ints:
    """Numbers of the first distinct names of each list, -1 padding, of shape (items, most)."""
    out = np.full((len(lists), most), -1, np.int64)
    long = (
        pl.DataFrame({"row": np.arange(len(lists)), "name": lists})
        .explode("name")
        .drop_nulls()
        .unique(maintain_order=True)
        .with_columns(place=pl.int_range(pl.len()).over("row"))
        .filter(pl.col("place") < most)
    )
    if long.height:
        number = long["name"].rank("dense").cast(pl.Int64).to_numpy() - 1
        out[long["row"].to_numpy(), long["place"].to_numpy()] = number
    return out
