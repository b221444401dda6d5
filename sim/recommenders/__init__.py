"""Recommenders behind one seam: baselines, library-backed models, and your own.

>>> from sim import open_release
>>> from sim.recommenders import open_recommender
>>> popular = open_recommender("popular").fit(open_release("movies@latest"))  # doctest: +SKIP
>>> popular.recommend([0, 1], 10)  # item numbers, of shape (2, 10)           # doctest: +SKIP
"""

from sim.environment import known_items, persona_users
from sim.recommenders._audience import LIST, Audience
from sim.recommenders._baselines import (
    CommonListRecommender,
    ContentRecommender,
    MaskedRecommender,
    MeanRatingRecommender,
    OracleRecommender,
    PopularRecommender,
    RandomRecommender,
    genre_tables,
    rating_stats,
    text_vectors,
    with_feedback,
)
from sim.recommenders._interactions import InteractionMatrix
from sim.recommenders._leaderboard import Leaderboard, leaderboard
from sim.recommenders._libraries import CollaborativeRecommender
from sim.recommenders._offline import OfflineReport, OfflineRow, evaluate_offline, people_release
from sim.recommenders._protocol import Floats, Ints, Recommender, ScoredRecommender
from sim.recommenders._registry import (
    BASELINES,
    RECOMMENDERS,
    CheckedRecommender,
    open_recommender,
    recommender,
)

__all__ = [
    "BASELINES",
    "LIST",
    "RECOMMENDERS",
    "Audience",
    "CheckedRecommender",
    "CollaborativeRecommender",
    "CommonListRecommender",
    "ContentRecommender",
    "Floats",
    "InteractionMatrix",
    "Ints",
    "Leaderboard",
    "MaskedRecommender",
    "MeanRatingRecommender",
    "OfflineReport",
    "OfflineRow",
    "OracleRecommender",
    "PopularRecommender",
    "RandomRecommender",
    "Recommender",
    "ScoredRecommender",
    "evaluate_offline",
    "genre_tables",
    "known_items",
    "leaderboard",
    "open_recommender",
    "people_release",
    "persona_users",
    "rating_stats",
    "recommender",
    "text_vectors",
    "with_feedback",
]
