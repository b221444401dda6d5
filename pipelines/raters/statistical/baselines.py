"""Raters that any other must beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from pipelines.raters.protocol import OK, Floats, Ints, RatingBatch, TableRater
from pipelines.scales import SCALES, RatingScale, rescale


class RandomRater(TableRater):
    """Every answer is as likely as any other."""

    name = "random"

    def __init__(self, scale: RatingScale) -> None:
        self.scale = scale

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """Uniform distributions."""
        del personas, items, past
        shape = (len(pairs), len(self.scale))
        return RatingBatch(self.scale, np.full(shape, 1.0 / shape[1]), [OK] * len(pairs))

    def metadata(self) -> dict[str, Any]:
        """Empty: baselines are not fitted."""
        return self.described()


class MeanRater(TableRater):
    """The item's mean training rating, or the global mean for an item without ratings.

    The distribution lies on the two answers around the mean, so that its expected value is the mean
    and nothing else is claimed. ``source`` is the scale behind the ``train_`` columns of
    `item_stats`, ``scale`` that of the answers.
    """

    name = "mean"
    needs = ("item_stats", "interactions")

    def __init__(
        self, item_stats: pl.DataFrame, scale: RatingScale, source: RatingScale = SCALES["0.5-5"]
    ) -> None:
        self.scale = scale
        rated = item_stats.filter(pl.col("train_ratings") > 0)
        weight = rated["train_ratings"].to_numpy()
        means = rated["train_mean_rating"].to_numpy()
        middle = (source.low + source.high) / 2
        mean = float(np.average(means, weights=weight)) if len(means) else middle
        self._global = float(rescale(mean, source, scale))
        self._means = rated.select(
            "item_id",
            pl.Series("mean", np.asarray(rescale(means, source, scale), dtype=np.float64)),
        )

    def means(self, item_ids: pl.Series) -> Floats:
        """The mean on `scale` that each item is given, of shape (items,)."""
        frame = pl.DataFrame({"item_id": item_ids})
        joined = frame.join(self._means, on="item_id", how="left", maintain_order="left")
        return joined["mean"].fill_null(self._global).to_numpy()

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """Two-point distributions around the means."""
        del personas, past
        mean = self.means(items["item_id"])[pairs[:, 1]]
        steps = np.clip((mean - self.scale.low) / self.scale.step, 0, len(self.scale) - 1)
        lower = np.minimum(np.floor(steps).astype(np.int64), len(self.scale) - 2)
        upper_share = steps - lower
        probabilities = np.zeros((len(pairs), len(self.scale)))
        rows = np.arange(len(pairs))
        probabilities[rows, lower] = 1 - upper_share
        probabilities[rows, lower + 1] = upper_share
        return RatingBatch(self.scale, probabilities, [OK] * len(pairs))

    def metadata(self) -> dict[str, Any]:
        """The global mean; the item means are in `item_stats`."""
        return self.described({"global_mean": self._global, "items_with_mean": self._means.height})
