"""Suite of the table of similar items."""

from __future__ import annotations

from pipelines.quality._declare import between, row_count

__all__ = ["SIMILARITY"]

SIMILARITY = (
    row_count("items_covered", "error", "uncovered", "items without a similar item", max_value=0),
    row_count("neighbours_known", "error", "unknown", "neighbours that are no item", max_value=0),
    row_count("no_self", "error", "selves", "items that are their own neighbour", max_value=0),
    row_count(
        "ranks_complete",
        "error",
        "ranks",
        "items whose ranks are not 1 to the number of their neighbours, or are too many",
        max_value=0,
    ),
    row_count(
        "scores_descend",
        "error",
        "rises",
        "neighbours with a higher score than the one ranked before",
        max_value=0,
    ),
    row_count(
        "score_is_its_parts",
        "error",
        "sums",
        "rows whose score is not the weighted sum of their similarities",
        max_value=0,
    ),
    row_count(
        "similarity_is_mutual",
        "error",
        "mutual",
        "pairs whose similarity by paths is above 1 or differs by direction",
        max_value=0,
    ),
    between(
        "reached_by_paths",
        "warn",
        "bases",
        "by_paths",
        "share of items that a path joins to a neighbour",
        min_value=1,
        mostly=0.9,
    ),
)
