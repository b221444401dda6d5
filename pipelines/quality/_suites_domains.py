"""Suites of the domains whose items are sold: books, games, products.

Their sources differ in what they tell: an expectation about a feature that no item has is not
judged, and says so. Reviews of what people chose to buy are mostly kind, so that the bounds of
ratings are wider than those of films.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.quality._declare import between, row_count
from pipelines.quality._spec import Expectation, Fact
from pipelines.quality._suites_catalogue import HUMAN_USERS, SPLITS, USER_TRAITS
from pipelines.quality._suites_graph import SIMILARITY
from pipelines.quality._suites_synthetic import EMBEDDINGS, GRAPH, SCORE_PLAN, SCORES

__all__ = ["domain_suites"]

_ITEMS = (
    between(
        "prose_coverage",
        "warn",
        "prose",
        "characters",
        "share of items with a plot or description",
        min_value=1,
        mostly=0.5,
    ),
    between(
        "genre_coverage",
        "warn",
        "genre_counts",
        "genres",
        "share of items with a genre",
        min_value=1,
        mostly=0.5,
    ),
    between(
        "genre_share",
        "error",
        "genres",
        "share",
        "largest share of items that one genre has",
        max_value=0.98,
    ),
    row_count("genre_variety", "error", "genres", "different genres", min_value=3),
    Expectation(
        "year_median",
        "error",
        "years",
        "ExpectColumnMedianToBeBetween",
        {"column": "year", "min_value": 1930, "max_value": 2035},
        "median year of publication",
    ),
    Expectation(
        "titles_distinct",
        "warn",
        "titles",
        "ExpectCompoundColumnsToBeUnique",
        {"column_list": ["title", "year"], "mostly": 0.9},
        "share of items whose title and year no other item has",
    ),
)

_INTERACTIONS = (
    between("row_count", "error", "ratings", "rows", "ratings", min_value=100),
    between("user_count", "error", "ratings", "users", "users with a rating", min_value=5),
    between("item_count", "error", "ratings", "items", "items with a rating", min_value=10),
    between(
        "rating_mean",
        "error",
        "ratings",
        "mean_rating",
        "mean rating (stars)",
        min_value=1.5,
        max_value=4.9,
    ),
    between(
        "rating_concentration",
        "error",
        "values",
        "share",
        "largest share that one rating value has",
        max_value=0.95,
    ),
    row_count("rating_variety", "error", "values", "different rating values", min_value=2),
    between(
        "popularity_long_tail",
        "warn",
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
    # Milliseconds taken for seconds, or seconds for milliseconds, leave these years.
    between(
        "rated_from", "error", "ratings", "first_year", "year of the first rating", min_value=1990
    ),
    between("rated_to", "error", "ratings", "last_year", "year of the last rating", max_value=2035),
)

_ITEM_STATS = (
    # Most of what a shop lists is hardly ever rated.
    between(
        "rated_share",
        "error",
        "items",
        "rated_share",
        "share of items with a rating",
        min_value=0.01,
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
)


def domain_suites(
    domain: str, *, graph: bool = True, personas: bool = True
) -> Mapping[str, tuple[Expectation, ...]]:
    """Expectations of a domain's tables by dataset, in the order in which they are made.

    Parameters
    ----------
    domain
        Such as ``books``.
    graph
        Whether it has a knowledge graph.
    personas
        Whether personas rate its items.

    Examples
    --------
    >>> list(domain_suites("products", graph=False, personas=False))[-2:]
    ['products.user_traits', 'products.item_embeddings']
    """
    tables: dict[str, tuple[Expectation, ...]] = {
        "items": _ITEMS,
        "interactions": _INTERACTIONS,
        "splits": SPLITS,
        "item_stats": _ITEM_STATS,
        "human_users": HUMAN_USERS,
        "user_traits": USER_TRAITS,
        "item_embeddings": EMBEDDINGS,
    }
    if personas:
        tables |= {"score_plan": SCORE_PLAN, "preference_scores": SCORES}
    if graph:
        tables |= {"graph_triples": GRAPH, "item_similarity": SIMILARITY}
    return {f"{domain}.{table}": suite for table, suite in tables.items()}
