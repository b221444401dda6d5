"""Contracts of the reports on raters and personas; the same in every domain that personas rate."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract
from pipelines.contracts._columns import Model

__all__ = ["POPULATION", "RATER_REPORT"]


class RaterReport(Model):
    """Figures of raters and baselines on held-out human ratings, with 95 % intervals."""

    split: pl.String = pa.Field(
        isin=["user", "cold", "time"],
        description="Which ratings are held out: `user`, the latest tenth of each person's, the "
        "earlier ones being its history; `cold`, the same with nothing known of the person; "
        "`time`, those after one point in time for everybody.",
    )
    predictor: pl.String = pa.Field(
        description="Rater or baseline; `no votes`: fitted without the votes of others (TMDB's)."
    )
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
RATER_REPORT = Contract("rater_report", RaterReport, ("split", "predictor", "metric"))


class Population(Model):
    """Personas beside people on the same lists of items: figures with 95 % intervals."""

    figure: pl.String = pa.Field(
        isin=[
            "choice_gap",
            "choice_gap_any",
            "common_list",
            "exposure_matched",
            "exposure_matched_popularity",
            "exposure_slope",
            "exposure_uniform",
            "exposure_uniform_popularity",
            "genre_correlation",
            "genre_gap",
            "genre_gap_items",
            "headroom",
            "item_person_share",
            "item_share",
            "leniency_share",
            "mean_rating",
            "oracle",
            "popularity_slope",
            "random_items",
            "rest_share",
            "similarity",
            "split_half_covariance",
            "table_item_person_share",
            "user_mean_ks",
            "user_mean_spread",
            "user_spread_ks",
            "user_spread_mean",
            "user_spread_spread",
            "watched",
            "watched_any",
        ],
        description="Figure: shares of the variance of ratings (`item_person_share` is taste), "
        "covariance of users' genre deviations between random halves of their ratings, liked minus "
        "disliked genres, users' means and standard deviations with KS distances, slope on "
        "popularity, 1 - total variation, agreement of the correlations between genres, and what "
        "ten items earn: each persona's own best (`oracle`), the best common list, any; `headroom` "
        "is the first minus the second. `watched` is the mean rating of what people watched, by "
        "personas who would watch it (`_any`: by all alike), `choice_gap` people's mean above it; "
        "`exposure_` figures are areas under the ROC curve of held-out choices, beside those of "
        "popularity alone.",
    )
    unit: pl.String = pa.Field(
        isin=["share", "points", "points²", "distance", "correlation", "slope"],
        description="Unit; points are those of the scores' scale.",
    )
    personas_value: pl.Float64 = pa.Field(nullable=True, description="Of personas.")
    personas_low: pl.Float64 = pa.Field(
        nullable=True, description="Lower end of its 95 % interval (bootstrap over personas)."
    )
    personas_high: pl.Float64 = pa.Field(nullable=True, description="Upper end of that interval.")
    people_value: pl.Float64 = pa.Field(
        nullable=True,
        description="Of people; for distances, `similarity` and `genre_correlation` that of random "
        "halves of the people.",
    )
    people_low: pl.Float64 = pa.Field(
        nullable=True, description="Lower end of its 95 % interval (bootstrap over people)."
    )
    people_high: pl.Float64 = pa.Field(nullable=True, description="Upper end of that interval.")
    ratio: pl.Float64 = pa.Field(
        nullable=True, description="Personas' over people's value, of the figures that are bounded."
    )
    ratio_low: pl.Float64 = pa.Field(nullable=True, description="Lower end of its 95 % interval.")
    ratio_high: pl.Float64 = pa.Field(nullable=True, description="Upper end of its 95 % interval.")
    chance: pl.Float64 = pa.Field(
        nullable=True, description="Value with personas shuffled among the scores of each item."
    )
    personas: pl.Int64 = pa.Field(ge=1, description="Personas compared (count).")
    people: pl.Int64 = pa.Field(ge=1, description="People compared (count).")
    ratings: pl.Int64 = pa.Field(ge=1, description="Ratings on either side (count).")


#: The contract; a domain's dataset is ``<domain>.population``.
POPULATION = Contract("population", Population, ("figure",))
