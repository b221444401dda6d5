"""Evaluation of raters on held-out ratings of people, and summaries of scores."""

from pipelines.raters.report._held_out import persona_rows
from pipelines.raters.report._metrics import (
    HeldOut,
    Predictions,
    evaluate,
    paired_difference,
    reliability,
)
from pipelines.raters.report._population import (
    Headroom,
    VarianceShares,
    genre_gap,
    headroom,
    ks_distance,
    split_half_covariance,
    user_moments,
    variance_shares,
)
from pipelines.raters.report._predictors import BASELINES, BIAS
from pipelines.raters.report._report import CONTEXT, RaterReport, rater_report, reliability_plot
from pipelines.raters.report._summary import quality_summary, similarity

__all__ = [
    "BASELINES",
    "BIAS",
    "CONTEXT",
    "Headroom",
    "HeldOut",
    "Predictions",
    "RaterReport",
    "VarianceShares",
    "evaluate",
    "genre_gap",
    "headroom",
    "ks_distance",
    "paired_difference",
    "persona_rows",
    "quality_summary",
    "rater_report",
    "reliability",
    "reliability_plot",
    "similarity",
    "split_half_covariance",
    "user_moments",
    "variance_shares",
]
