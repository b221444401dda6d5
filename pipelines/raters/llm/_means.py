"""Mean ratings of items on the scale of a prompt."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.raters.protocol import Floats
from pipelines.scales import SCALES, RatingScale, rescale

__all__ = ["item_means"]

#: TMDB takes votes from half a star to ten.
_TMDB = RatingScale("0.5-10", 0.5, 10.0, 0.5)
#: What items themselves say: mean, number of ratings behind it, scale.
_OWN = (
    ("vote_average", "vote_count", _TMDB),
    ("average_rating", "rating_number", SCALES["1-5"]),
)


def item_means(
    items: pl.DataFrame,
    item_stats: pl.DataFrame | None,
    source: RatingScale,
    target: RatingScale,
) -> Floats:
    """Mean rating of each item on `target`, NaN where unknown, of shape (items,).

    The training ratings of the source come first, what the item's own row says second.

    Parameters
    ----------
    items
        Rows of the domain's `items`.
    item_stats
        Rows of `item_stats`, whose `train_` columns are used; None if there are none.
    source
        The scale behind `item_stats`.
    target
        The scale of the answer.
    """
    out = np.full(items.height, np.nan)
    for column, count, scale in reversed(_OWN):
        if column in items.columns:
            counted = pl.col(count).fill_null(1) > 0 if count in items.columns else pl.lit(True)
            own = items.select(pl.when(counted).then(pl.col(column).cast(pl.Float64)))
            values = own.to_series().to_numpy()
            known = scale.covers(values)
            out[known] = rescale(values[known], scale, target)
    if item_stats is not None:
        rated = item_stats.filter(pl.col("train_ratings") > 0)
        found = items.select("item_id").join(
            rated.select("item_id", "train_mean_rating"),
            on="item_id",
            how="left",
            maintain_order="left",
        )
        values = found["train_mean_rating"].cast(pl.Float64).to_numpy()
        out = np.where(np.isnan(values), out, rescale(values, source, target))
    return out
