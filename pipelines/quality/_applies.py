"""From how many rows on each check about a distribution applies.

Shares, spreads, tiers and distances of a few rows say nothing: one film without a year is a tenth
of ten films. Below its number a check is not applicable. Checks that are not listed judge single
rows, keys or relations between tables, or allow for chance at any size; they always apply.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["APPLIES_FROM"]

#: By table and check: what is counted (a fact or column of the check's view; ``rows`` of the
#: table), and how many there must be.
APPLIES_FROM: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "movies.items": {
        "plot_coverage": ("rows", 50),
        "cast_coverage": ("rows", 50),
        "director_coverage": ("rows", 50),
        "genre_coverage": ("rows", 100),
        "genre_share": ("rows", 150),
        "genre_variety": ("rows", 150),
        "year_coverage": ("rows", 100),
        "year_median": ("items_with_year", 50),
        "year_concentration": ("items_with_year", 150),
        "titles_distinct": ("rows", 100),
    },
    "items": {
        "prose_coverage": ("rows", 50),
        "genre_coverage": ("rows", 50),
        # A small shop may have a single shelf.
        "genre_share": ("rows", 1000),
        "genre_variety": ("rows", 1000),
        "year_median": ("items_with_year", 50),
        "titles_distinct": ("rows", 100),
    },
    "interactions": {
        "rating_mean": ("rows", 1000),
        "rating_concentration": ("rows", 1000),
        "rating_variety": ("rows", 1000),
        "popularity_long_tail": ("rows", 1000),
        "user_share": ("rows", 1000),
    },
    "splits": {
        "train_share": ("rows", 500),
        "validation_share": ("rows", 500),
        "test_share": ("rows", 500),
    },
    "item_stats": {
        "rated_share": ("rows", 100),
        "train_share": ("ratings", 500),
        "mean_spread": ("items_with_5_ratings", 30),
        "train_shift": ("ratings", 500),
    },
    "human_users": {"mean_spread": ("users_with_5_ratings", 30)},
    "user_traits": {
        "activity_tiers": ("rows", 50),
        "conformity_tiers": ("rows", 50),
        "pickiness_kinds": ("rows", 50),
    },
    "products": {"match_rate": ("asked", 100), "leaf_share": ("rows", 100)},
    "personas": {
        "description_length": ("rows", 50),
        "text_names_the_person": ("rows", 20),
        "likes_not_disliked": ("rows", 50),
    },
    "persona_embeddings": {"not_collapsed": ("rows", 30), "near_duplicates": ("rows", 50)},
    "item_embeddings": {"not_collapsed": ("rows", 30)},
    "score_plan": {"plan_balance": ("largest", 10)},
    "preference_scores": {
        "persona_variance": ("pairs", 100),
        "answer_concentration": ("pairs", 100),
        "human_distance": ("human_ratings", 1000),
    },
    "graph_triples": {"item_coverage": ("items", 100)},
    "item_similarity": {"items_covered": ("items", 2), "reached_by_paths": ("items", 100)},
}
