"""Recommenders behind one seam, and the baselines that every learnt policy is compared with.

>>> from sim import open_release
>>> from sim.recommenders import open_recommender
>>> popular = open_recommender("popular").fit(open_release("movies@latest"))  # doctest: +SKIP
>>> popular.recommend([0, 1], 10)  # item numbers, of shape (2, 10)           # doctest: +SKIP
"""

from sim.recommenders._baselines import MeanRatingRecommender, PopularRecommender, RandomRecommender
from sim.recommenders._content import ContentRecommender
from sim.recommenders._protocol import BASELINES, Recommender, ScoredRecommender, open_recommender

__all__ = [
    "BASELINES",
    "ContentRecommender",
    "MeanRatingRecommender",
    "PopularRecommender",
    "RandomRecommender",
    "Recommender",
    "ScoredRecommender",
    "open_recommender",
]
