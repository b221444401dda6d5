"""Contract of the report on raters; the same in every domain that personas rate."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract
from pipelines.contracts._columns import Model

__all__ = ["RATER_REPORT"]


class RaterReport(Model):
    """Figures of raters and baselines on held-out human ratings, with 95 % intervals."""

    predictor: pl.String = pa.Field(description="Rater or baseline.")
    kind: pl.String = pa.Field(
        isin=["rater", "baseline", "floor"],
        description="`rater`; `baseline`, fitted on the same people; `floor`, a rater that knows "
        "nothing of the person.",
    )
    metric: pl.String = pa.Field(
        isin=["rmse", "mae", "ndcg@10", "pairwise", "ece", "similarity", "rmse_difference"],
        description="`rmse` and `mae` in stars; `ndcg@10` and `pairwise` (share of a user's "
        "pairs in the right order) by user; `ece`, the calibration error, of predictors with "
        "probabilities; `similarity`, 1 - total variation of the distributions; "
        "`rmse_difference`, the RMSE minus that of the user and item bias on the same ratings.",
    )
    value: pl.Float64 = pa.Field(ge=-5, le=5, description="The figure.")
    low: pl.Float64 = pa.Field(
        ge=-5, le=5, description="Lower end of its 95 % interval (bootstrap over users)."
    )
    high: pl.Float64 = pa.Field(ge=-5, le=5, description="Upper end of its 95 % interval.")
    ratings: pl.Int64 = pa.Field(ge=1, description="Held-out ratings predicted (count).")
    users: pl.Int64 = pa.Field(ge=1, description="Users who gave them (count).")
    failed: pl.Int64 = pa.Field(
        ge=0, description="Ratings that the rater gave no answer for; not in the figures (count)."
    )
    statistical: pl.Boolean = pa.Field(description="Whether it needs no language model.")


#: The contract; a domain's dataset is ``<domain>.rater_report``.
RATER_REPORT = Contract(
    "rater_report", RaterReport, ("predictor", "metric"), ("predictor", "metric")
)
