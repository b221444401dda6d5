"""Metrics of recommendations, of SUBER's appendix F.1, with intervals.

Single metrics take arrays and give one value per user (personalization: one value), so that
they can be read beside their formulas; :func:`evaluate` gives all of them with 95 % intervals
over users and over seeds.

>>> import numpy as np
>>> relevance = np.array([[True, False, True]])
>>> average_precision(relevance, k=3).round(4)  # (1/1 + 2/3) / 3
array([0.5556])
"""

from pipelines.study import (
    RESAMPLES,
    Figure,
    false_discovery,
    mean_with_interval,
    over_seeds,
    paired_permutation,
    user_weights,
)
from sim.metrics._evaluation import FIGURES, Played, evaluate
from sim.metrics._headroom import headroom_share
from sim.metrics._lists import (
    average_precision,
    average_reward,
    genre_share,
    liked_and_disliked,
    ndcg,
    personalization,
    recall,
    reciprocal_rank,
    relevant,
)

__all__ = [
    "FIGURES",
    "RESAMPLES",
    "Figure",
    "Played",
    "average_precision",
    "average_reward",
    "evaluate",
    "false_discovery",
    "genre_share",
    "headroom_share",
    "liked_and_disliked",
    "mean_with_interval",
    "ndcg",
    "over_seeds",
    "paired_permutation",
    "personalization",
    "recall",
    "reciprocal_rank",
    "relevant",
    "user_weights",
]
