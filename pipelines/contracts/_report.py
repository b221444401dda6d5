"""Contracts of the reports on raters and personas; the same in every domain that personas rate."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, Model, column


class RaterReport(Model):
    """Figures of raters and baselines on held-out human ratings, with 95 % intervals."""

    split: pl.String = column(
        "Held-out ratings: `user`, the latest tenth of each person's ratings, with the earlier "
        "ones as history; `cold`, the same without any information on the person; `time`, ratings "
        "after one point in time for everybody.",
        isin=["user", "cold", "time"],
    )
    predictor: pl.String = column(
        "Rater or baseline; `no votes`: fitted without public votes (TMDB's)."
    )
    kind: pl.String = column(
        "`rater`; `baseline`, fitted on the same people; `floor`, a baseline that knows nothing "
        "of the person.",
        isin=["rater", "baseline", "floor"],
    )
    metric: pl.String = column(
        "`rmse` and `mae` in stars; `ndcg@10` and `pairwise` (share of a user's "
        "pairs in the right order) by user; `ece`, the calibration error, of predictors with "
        "probabilities; `similarity`, 1 - total variation of the distributions; "
        "`nll`, the mean negative log-likelihood (nats per rating); "
        "`rmse_difference`, the RMSE minus that of the user and item bias on the same ratings.",
        isin=["rmse", "mae", "ndcg@10", "pairwise", "ece", "similarity", "nll", "rmse_difference"],
    )
    # A log-likelihood of 21 nats per rating is that of a probability of one in a billion.
    value: pl.Float64 = column("Value of the metric.", ge=-5, le=21)
    low: pl.Float64 = column("Lower end of its 95 % interval (bootstrap over users).", ge=-5, le=21)
    high: pl.Float64 = column("Upper end of its 95 % interval.", ge=-5, le=21)
    ratings: pl.Int64 = column("Held-out ratings predicted (count).", ge=1)
    users: pl.Int64 = column("Users who gave these ratings (count).", ge=1)
    failed: pl.Int64 = column(
        "Ratings without an answer of the rater, excluded from the figures (count).", ge=0
    )
    statistical: pl.Boolean = column("Whether the predictor needs no language model.")


#: The contract; a domain's dataset is ``<domain>.rater_report``.
RATER_REPORT = Contract("rater_report", RaterReport, ("split", "predictor", "metric"))


class Population(Model):
    """Personas versus people: figures with 95 % intervals, null where lists are too short."""

    figure: pl.String = column(
        "Figure: shares of the variance of ratings (`item_person_share` is taste), covariance of "
        "users' genre deviations between random halves of their ratings beyond chance, liked minus "
        "disliked genres, users' means and standard deviations with KS distances, slope on "
        "popularity, 1 - total variation, agreement of the correlations between genres, and the "
        "mean rating of ten items: each persona's own best (`oracle`), the best common list, any; "
        "`headroom` is the first minus the second. `watched` is the mean rating of what people "
        "watched, by personas who would watch it (`_any`: by all equally), `choice_gap` people's "
        "mean minus it; `exposure_` figures are areas under the ROC curve of held-out choices, "
        "next to those of popularity alone.",
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
    )
    unit: pl.String = column(
        "Unit; points are on the scores' scale.",
        isin=["share", "points", "points²", "distance", "correlation", "slope"],
    )
    personas_value: pl.Float64 = column("Value for personas.", null=True)
    personas_low: pl.Float64 = column(
        "Lower end of its 95 % interval (bootstrap over personas).", null=True
    )
    personas_high: pl.Float64 = column("Upper end of that interval.", null=True)
    people_value: pl.Float64 = column(
        "Value for people; for distances, `similarity` and `genre_correlation`, the value between "
        "random halves of the people.",
        null=True,
    )
    people_low: pl.Float64 = column(
        "Lower end of its 95 % interval (bootstrap over people).", null=True
    )
    people_high: pl.Float64 = column("Upper end of that interval.", null=True)
    ratio: pl.Float64 = column(
        "Personas' value divided by people's, for figures that a check bounds.", null=True
    )
    ratio_low: pl.Float64 = column("Lower end of its 95 % interval.", null=True)
    ratio_high: pl.Float64 = column("Upper end of its 95 % interval.", null=True)
    chance: pl.Float64 = column(
        "Value of personas by chance: with personas shuffled among the scores of each item; of "
        "`split_half_covariance`, which is beyond it, with items shuffled within each persona.",
        null=True,
    )
    personas: pl.Int64 = column("Personas compared (count).", ge=1)
    people: pl.Int64 = column("People compared (count).", ge=1)
    ratings: pl.Int64 = column("Ratings of these people (count).", ge=1)


#: The contract; a domain's dataset is ``<domain>.population``.
POPULATION = Contract("population", Population, ("figure",))
