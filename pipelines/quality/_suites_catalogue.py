"""Suites of the tables that come from the sources."""

from __future__ import annotations

from pipelines.quality._declare import between, row_count
from pipelines.quality._spec import Expectation, Fact, Setting

__all__ = ["HUMAN_USERS", "INTERACTIONS", "ITEMS", "ITEM_STATS", "SPLITS", "USER_TRAITS"]

ITEMS = (
    between(
        "plot_coverage",
        "error",
        "linked",
        "plot_characters",
        "share of items with a plot text",
        min_value=1,
        mostly=Setting("quality.min_tmdb_coverage"),
    ),
    between(
        "cast_coverage",
        "warn",
        "linked",
        "cast",
        "share of items with a cast",
        min_value=1,
        mostly=Setting("quality.min_tmdb_coverage"),
    ),
    between(
        "director_coverage",
        "warn",
        "linked",
        "directors",
        "share of items with a director",
        min_value=1,
        mostly=Setting("quality.min_tmdb_coverage"),
    ),
    # 8 % of ml-25m's films are listed without a genre.
    between(
        "genre_coverage",
        "error",
        "items",
        "genres",
        "share of items with a genre",
        min_value=1,
        mostly=0.85,
    ),
    between(
        "genre_share",
        "error",
        "genres",
        "share",
        "largest share of items that one genre has",
        max_value=0.9,
    ),
    row_count("genre_variety", "error", "genres", "different genres", min_value=5),
    between(
        "year_coverage",
        "error",
        "items",
        "year",
        "share of items with a year",
        min_value=1,
        mostly=0.95,
    ),
    Expectation(
        "year_median",
        "error",
        "years",
        "ExpectColumnMedianToBeBetween",
        {"column": "year", "min_value": 1930, "max_value": 2035},
        "median year of release",
    ),
    between(
        "year_concentration",
        "error",
        "per_year",
        "share",
        "largest share of items of one year",
        max_value=Fact("max_share"),
    ),
    # ML-100K lists 18 of its 1,682 films twice.
    Expectation(
        "titles_distinct",
        "error",
        "items",
        "ExpectCompoundColumnsToBeUnique",
        {"column_list": ["title", "year"], "mostly": 0.97},
        "share of items whose title and year no other item has",
    ),
)

INTERACTIONS = (
    between("row_count", "error", "ratings", "rows", "ratings", min_value=100),
    between("user_count", "error", "ratings", "users", "users with a rating", min_value=5),
    between("item_count", "error", "ratings", "items", "items with a rating", min_value=10),
    between(
        "rating_mean",
        "error",
        "ratings",
        "mean_rating",
        "mean rating (stars)",
        min_value=2.5,
        max_value=4.5,
    ),
    between(
        "rating_concentration",
        "error",
        "values",
        "share",
        "largest share that one rating value has",
        max_value=0.8,
    ),
    row_count("rating_variety", "error", "values", "different rating values", min_value=3),
    between(
        "popularity_long_tail",
        "error",
        "ratings",
        "gini",
        "Gini coefficient of ratings per item",
        min_value=Fact("min_gini"),
    ),
    between(
        "user_share",
        "error",
        "users",
        "share",
        "share of the ratings that one user gave",
        max_value=Fact("max_user_share"),
    ),
    # Seconds taken for microseconds put every rating in 1970.
    between(
        "rated_from", "error", "ratings", "first_year", "year of the first rating", min_value=1990
    ),
)

SPLITS = (
    between(
        "train_share",
        "error",
        "parts",
        "train_share",
        "share of the training part",
        min_value=Fact("min_train"),
        max_value=Fact("max_train"),
    ),
    between(
        "validation_share",
        "error",
        "parts",
        "validation_share",
        "share of the validation part",
        min_value=Fact("min_validation"),
        max_value=Fact("max_validation"),
    ),
    between(
        "test_share",
        "error",
        "parts",
        "test_share",
        "share of the test part",
        min_value=Fact("min_test"),
        max_value=Fact("max_test"),
    ),
)

ITEM_STATS = (
    between(
        "rated_share",
        "error",
        "items",
        "rated_share",
        "share of items with a rating",
        min_value=0.5,
    ),
    between(
        "train_share",
        "error",
        "items",
        "train_share",
        "share of the ratings that count for training",
        min_value=Fact("min_train"),
        max_value=Fact("max_train"),
    ),
    between(
        "mean_spread",
        "warn",
        "items",
        "mean_spread",
        "standard deviation of mean ratings of items with five or more (stars)",
        min_value=0.05,
    ),
    between(
        "train_shift",
        "warn",
        "items",
        "train_shift",
        "distance of the mean training rating from the mean rating (stars)",
        max_value=0.25,
    ),
)

HUMAN_USERS = (
    between("user_count", "error", "users", "users", "users", min_value=5),
    between(
        "mean_spread",
        "warn",
        "users",
        "mean_spread",
        "standard deviation of mean ratings of users with five or more (stars)",
        min_value=0.05,
    ),
)

USER_TRAITS = (
    row_count("activity_tiers", "warn", "activity", "tiers of activity with a user", min_value=2),
    row_count(
        "conformity_tiers", "error", "conformity", "tiers of conformity with a user", min_value=2
    ),
    row_count(
        "pickiness_kinds", "warn", "pickiness", "kinds of pickiness with a user", min_value=2
    ),
)
