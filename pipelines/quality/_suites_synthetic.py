"""Suites of the tables that are made here."""

from __future__ import annotations

from pipelines.quality._declare import between, row_count
from pipelines.quality._spec import Expectation, Fact, Setting

__all__ = ["EMBEDDINGS", "GRAPH", "PERSONAS", "PERSONA_EMBEDDINGS", "SCORES", "SCORE_PLAN"]


def _within(name: str, view: str, because: str, *, column: str = "distance") -> Expectation:
    """Every row's figure is at most what the row allows."""
    return Expectation(
        name,
        "error",
        view,
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {"column_A": "allowed", "column_B": column, "or_equal": True},
        because,
    )


PERSONAS = (
    between(
        "cohort_size",
        "error",
        "sizes",
        "off",
        "personas of each cohort more or fewer than planned",
        min_value=0,
        max_value=0,
    ),
    Expectation(
        "descriptions_distinct",
        "error",
        "personas",
        "ExpectColumnValuesToBeUnique",
        {"column": "description_hash"},
        "share of descriptions that no other persona has",
    ),
    between(
        "description_length",
        "error",
        "personas",
        "characters",
        "length of a description (characters)",
        min_value=80,
        max_value=4000,
        mostly=0.98,
    ),
    _within("age_distribution", "ages", "total variation of a cohort's ages against the census"),
    _within(
        "gender_balance", "genders", "total variation of a cohort's genders against the census"
    ),
    _within(
        "name_concentration", "names", "share of a cohort that has one first name", column="share"
    ),
    _within(
        "genre_opinions",
        "genres",
        "favourable share of adults' opinions of each genre against the target",
    ),
    row_count("clean_language", "error", "language", "descriptions with foreign text", max_value=0),
    between(
        "text_names_the_person",
        "error",
        "agreement",
        "named",
        "share of descriptions that name the job or the hobby",
        min_value=1,
        mostly=0.95,
    ),
    between(
        "likes_not_disliked",
        "error",
        "contradictions",
        "share",
        "share of personas whose text speaks ill of a genre they like",
        max_value=0.02,
    ),
    row_count("minors", "error", "minors", "minors with adults' jobs or hobbies", max_value=0),
)

EMBEDDINGS = (
    between(
        "unit_norm",
        "error",
        "vectors",
        "norm",
        "length of each vector",
        min_value=0.999,
        max_value=1.001,
    ),
    Expectation(
        "one_dimension",
        "error",
        "vectors",
        "ExpectColumnUniqueValueCountToBeBetween",
        {"column": "dimension", "min_value": 1, "max_value": 1},
        "different dimensions",
    ),
    row_count("one_model", "error", "models", "different encoders", min_value=1, max_value=1),
    between(
        "not_collapsed",
        "error",
        "spread",
        "mean_cosine",
        "mean cosine of all pairs of vectors",
        max_value=0.9,
    ),
    row_count(
        "ids_covered", "error", "ids", "ids without a vector or vectors without a row", max_value=0
    ),
)

PERSONA_EMBEDDINGS = (
    *EMBEDDINGS,
    between(
        "near_duplicates",
        "error",
        "twins",
        "share",
        "share of personas with another one at a cosine of 0.97 or more",
        max_value=Setting("quality.max_near_duplicates"),
    ),
)

SCORE_PLAN = (
    row_count(
        "personas_planned", "error", "personas", "personas without a planned pair", max_value=0
    ),
    between(
        "plan_balance",
        "error",
        "pairs",
        "share_of_largest",
        "pairs of a persona against the most of any persona of its cohort",
        min_value=0.5,
    ),
)

SCORES = (
    _within(
        "scored_share",
        "scores",
        "share of a cohort's pairs without a score",
        column="unscored_share",
    ),
    _within(
        "refused_share",
        "scores",
        "share of a cohort's pairs that the model declined",
        column="refused_share",
    ),
    _within(
        "invalid_share",
        "scores",
        "share of a cohort's pairs with an invalid, cut or failed answer",
        column="invalid_share",
    ),
    between(
        "values_complete",
        "error",
        "values",
        "pairs",
        "pairs with a status of ok and a value missing, or with a value and another status",
        max_value=0,
    ),
    between(
        "probabilities_sum",
        "error",
        "sums",
        "sum_error",
        "largest distance of a sum of probabilities from 1",
        max_value=Fact("tolerance"),
    ),
    between(
        "plan_covered", "error", "plan", "pairs", "pairs only planned or only scored", max_value=0
    ),
    between(
        "persona_variance",
        "error",
        "personas",
        "flat_share",
        "share of a cohort's personas whose expected ratings hardly differ (a standard deviation "
        "below 1 % of the scale, or below 5 % of the people's own where that is less)",
        max_value=0.05,
    ),
    between(
        "answer_concentration",
        "error",
        "answers",
        "share",
        "largest share of a cohort's pairs with one most probable rating; with one sampled rating "
        "where people themselves nearly all give the same",
        max_value=Fact("most"),
    ),
    between(
        "human_distance",
        "warn",
        "human",
        "distance",
        "total variation of sampled ratings against human ratings",
        max_value=0.35,
    ),
)

GRAPH = (
    Expectation(
        "relation_coverage",
        "error",
        "relations",
        "ExpectColumnDistinctValuesToContainSet",
        {"column": "relation", "value_set": Fact("relations")},
        "relations that the tables have material for",
    ),
    row_count(
        "schema_respected",
        "error",
        "violations",
        "triples whose types the relation does not join",
        max_value=0,
    ),
    row_count("no_leaks", "error", "leaks", "triples made from held-out ratings", max_value=0),
    between(
        "item_coverage",
        "error",
        "items",
        "triples",
        "share of items in the graph",
        min_value=1,
        mostly=0.9,
    ),
)
