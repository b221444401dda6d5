"""A way to break every expectation: (dataset, check) -> change of the good table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import polars as pl

Change = Callable[[pl.DataFrame], pl.DataFrame]


def _some(share: float) -> pl.Expr:
    """The first rows, about that share of them."""
    return pl.int_range(pl.len()) < pl.len() * share


_NO_TEXT = pl.lit(None, pl.String)


def _set(column: str, value: object, share: float = 1.0) -> Change:
    def change(frame: pl.DataFrame) -> pl.DataFrame:
        dtype = frame.schema[column]
        new = pl.when(_some(share)).then(pl.lit(value, dtype)).otherwise(pl.col(column))
        return frame.with_columns(new.alias(column))

    return change


def _uniform_popularity(frame: pl.DataFrame) -> pl.DataFrame:
    film = (pl.int_range(pl.len()) % 150).cast(pl.String)
    return frame.with_columns(item_id=pl.lit("ml:") + film)


def _one_busy_user(frame: pl.DataFrame) -> pl.DataFrame:
    """A user rates 500 items that nobody else does."""
    items = pl.format("ml:{}", pl.int_range(pl.len()) + 1000)
    more = frame.head(500).with_columns(user_id=pl.lit(frame["user_id"][0]), item_id=items)
    return pl.concat([frame, more.select(frame.columns)])


def _said(text: str, share: float) -> Change:
    """Descriptions replaced by a text, made distinct by a number."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        numbered = pl.lit(text) + pl.int_range(pl.len()).cast(pl.String)
        new = pl.when(_some(share)).then(numbered).otherwise(pl.col("description"))
        return frame.with_columns(new.alias("description"))

    return change


def _hates_what_it_likes(frame: pl.DataFrame) -> pl.DataFrame:
    ill = pl.col("description") + " " + pl.col("name") + " can't stand dramas."
    liked = pl.col("likes").list.contains("Drama")
    return frame.with_columns(description=pl.when(liked).then(ill).otherwise("description"))


def _children_with(column: str, value: str) -> Change:
    def change(frame: pl.DataFrame) -> pl.DataFrame:
        child = {"age": 8, "job": "student", "hobby": "finger painting"} | {column: value}
        few = pl.int_range(pl.len()) < 5
        return frame.with_columns(
            pl.when(few).then(pl.lit(v)).otherwise(pl.col(name)).alias(name)
            for name, v in child.items()
        )

    return change


#: A hobby that the packaged list gives to adults only.
_ADULT_HOBBY = "brewing beer at home"


def _copies(vectors: np.ndarray) -> np.ndarray:
    """Every tenth vector is nearly that of its neighbour."""
    out = vectors.copy()
    out[::10] = out[1::10] + 0.001
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def _johns(frame: pl.DataFrame) -> pl.DataFrame:
    # 134 of SUBER's 600.
    return _set("name", "John", 134 / 600)(frame)


def _nobody_likes_comedy(frame: pl.DataFrame) -> pl.DataFrame:
    comedy = pl.col("likes").list.contains("Comedy")
    return frame.with_columns(
        likes=pl.col("likes").list.set_difference(["Comedy"]),
        dislikes=pl.when(comedy)
        .then(pl.col("dislikes").list.set_union(["Comedy"]))
        .otherwise("dislikes"),
    )


def _leniency_by_gender(frame: pl.DataFrame) -> pl.DataFrame:
    harsh = pl.when(pl.col("gender") == "male").then(pl.lit("harsh"))
    return frame.with_columns(leniency=harsh.otherwise(pl.lit("generous")))


def _vectors(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def apply(frame: pl.DataFrame) -> pl.DataFrame:
        matrix = change(np.array(frame["vector"].to_list(), dtype=np.float32))
        return frame.with_columns(vector=pl.Series(matrix.tolist(), dtype=pl.List(pl.Float32)))

    return apply


def _nan_in_one(matrix: np.ndarray) -> np.ndarray:
    matrix[3, 0] = np.nan
    return matrix


def _one_short(frame: pl.DataFrame) -> pl.DataFrame:
    short = pl.when(_some(0.01)).then(pl.col("vector").list.head(15)).otherwise("vector")
    return frame.with_columns(vector=short)


def _refused(frame: pl.DataFrame) -> pl.DataFrame:
    failed = _some(0.02)
    nulls = ("probabilities", "expected", "mode", "sample", "entropy")
    return frame.with_columns(
        pl.when(failed).then(pl.lit("refused")).otherwise("status").alias("status"),
        *(pl.when(failed).then(None).otherwise(pl.col(c)).alias(c) for c in nulls),
    )


def _failed(status: str) -> Change:
    """More rows without a score than a cohort may have, marked as they should be."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        return _refused(frame).with_columns(
            status=pl.when(pl.col("status") == "refused")
            .then(pl.lit(status))
            .otherwise(pl.col("status"))
        )

    return change


def _with_held_out_rating(frame: pl.DataFrame) -> pl.DataFrame:
    """An edge more, of a film that user 0 rated only after the training part."""
    held_out = "ml:22"
    edge = pl.DataFrame(
        [["ml-user:0", "User", "liked", held_out, "Movie"]], schema=frame.schema, orient="row"
    )
    return pl.concat([frame, edge])


def _with_held_out_rating_node(frame: pl.DataFrame) -> pl.DataFrame:
    """The same film among those that user 0 gave a four."""
    edge = pl.DataFrame(
        [["rating:ml-user:0:4", "Rating", "given-to", "ml:22", "Movie"]],
        schema=frame.schema,
        orient="row",
    )
    return pl.concat([frame, edge])


def _without_films(frame: pl.DataFrame) -> pl.DataFrame:
    gone = pl.col("head", "tail").is_in([f"ml:{n}" for n in range(100, 150)])
    return frame.filter(~pl.any_horizontal(gone))


EMBEDDINGS: dict[str, list[Change]] = {
    "unit_norm": [_vectors(lambda m: m * 2), _vectors(_nan_in_one), _vectors(lambda m: m * 0)],
    "one_dimension": [_one_short],
    "one_model": [_set("model", "another@1", 0.5)],
    "not_collapsed": [_vectors(lambda m: m * 0 + m[0]), _one_short],
    "ids_covered": [lambda f: f.head(f.height - 1)],
}


def _alike(report: pl.DataFrame) -> pl.DataFrame:
    """A report of personas without a taste of their own."""
    return report.with_columns(ratio=pl.lit(0.02), ratio_low=pl.lit(0.01), ratio_high=pl.lit(0.03))


BAD: dict[str, dict[str, list[Change]]] = {
    "movies.items": {
        "plot_coverage": [_set("overview", None, 0.7), _set("overview", "  ", 0.7)],
        "cast_coverage": [_set("actors", [], 0.7)],
        "director_coverage": [_set("directors", [], 0.7)],
        "genre_coverage": [_set("genres", [], 0.2)],
        "genre_share": [_set("genres", ["Drama"], 0.95)],
        "genre_variety": [_set("genres", ["Drama"]), _set("genres", [])],
        "year_coverage": [_set("year", None, 0.1)],
        "year_median": [lambda f: f.with_columns(pl.col("year") - 80)],
        "year_concentration": [_set("year", 1999, 0.4)],
        "titles_distinct": [lambda f: _set("year", 1999, 0.05)(_set("title", "Untitled", 0.05)(f))],
    },
    "movies.interactions": {
        "row_count": [lambda f: f.head(99), lambda f: f.head(0)],
        "user_count": [lambda f: f.head(100)],
        "item_count": [lambda f: f.filter(pl.col("item_id").is_in([f"ml:{n}" for n in range(8)]))],
        "rating_mean": [
            lambda f: f.with_columns(pl.max_horizontal(pl.col("rating"), pl.lit(4.5))),
            lambda f: f.with_columns(pl.min_horizontal(pl.col("rating"), pl.lit(2.0))),
            lambda f: f.head(0),
        ],
        "rating_concentration": [_set("rating", 4.0, 0.9)],
        "rating_variety": [
            lambda f: f.with_columns(rating=pl.when(pl.col("rating") > 3).then(4.0).otherwise(2.0))
        ],
        "popularity_long_tail": [_uniform_popularity],
        "user_share": [_one_busy_user],
        "rated_from": [lambda f: f.with_columns(pl.col("rated_at") - timedelta(days=365.25 * 30))],
    },
    "movies.splits": {
        "train_share": [_set("split", "test", 0.5)],
        "validation_share": [_set("split", "train"), _set("split", "validation", 0.4)],
        "test_share": [_set("split", "train"), _set("split", "test", 0.4)],
    },
    "movies.item_stats": {
        "rated_share": [_set("ratings", 0, 0.6)],
        "train_share": [lambda f: f.with_columns(pl.col("train_ratings") // 2)],
        "mean_spread": [_set("mean_rating", 3.5)],
        "train_shift": [lambda f: f.with_columns((pl.col("train_mean_rating") - 0.5).clip(0.5))],
    },
    "movies.user_traits": {
        "activity_tiers": [_set("activity_tier", "low")],
        "conformity_tiers": [_set("conformity_tier", "low"), lambda f: f.head(0)],
        "pickiness_kinds": [_set("pickiness", "not_picky")],
    },
    "movies.training_traits": {
        "activity_tiers": [_set("activity_tier", "low")],
        "conformity_tiers": [_set("conformity_tier", "low"), lambda f: f.head(0)],
        "pickiness_kinds": [_set("pickiness", "not_picky")],
    },
    "movies.population": {"item_person_share": [_alike], "split_half_covariance": [_alike]},
    "movies.matched_personas": {
        "one_persona_per_user": [lambda f: f.with_columns(user_id=pl.col("user_id").first())],
        "training_rows_only": [
            lambda f: f.with_columns(pl.col("history") + 1),
            lambda f: f.with_columns(pl.col("activity") + 1),
        ],
        "null_share_by_basis": [
            _set("openness", 2),
            lambda f: f.with_columns(age_band=_NO_TEXT, occupation=_NO_TEXT),
            _set("basis", "none"),
            _set("basis", "model"),
        ],
    },
    "movies.persona_candidates": {
        "scores_recomputable": [
            lambda f: f.with_columns(pl.col("score") + 0.01),
            _set("status", "invalid"),
            lambda f: f.with_columns(own=pl.lit(None, pl.Float64)),
        ],
        "best_is_chosen": [
            lambda f: f.with_columns(~pl.col("chosen")),
            lambda f: f.with_columns(chosen=pl.lit(value=False)),
            lambda f: f.with_columns(pl.col("score") * -1),
        ],
        "users_matched": [lambda f: f.filter(pl.col("user_id") != pl.col("user_id").first())],
    },
    "movies.human_users": {
        "user_count": [lambda f: f.head(4)],
        "mean_spread": [_set("mean_rating", 3.5)],
    },
    "movies.personas": {
        "cohort_size": [
            lambda f: f.head(299),
            lambda f: f.head(0),
            _set("cohort", "another"),
        ],
        "descriptions_distinct": [_set("description", "The same words for two people. " * 3, 0.01)],
        "age_distribution": [_set("age", 30, 0.5), _set("age", 97, 0.5)],
        "gender_balance": [_set("gender", "male", 0.6)],
        "name_concentration": [_johns],
        "genre_opinions": [_nobody_likes_comedy],
        "joint_shares": [_leniency_by_gender],
        "description_length": [_said("She is one of the people who say little here.", 0.05)],
        "clean_language": [
            _said(text, 1 / 300)
            for text in (
                "Ann is 30 and likes dramas.<|im_end|> " * 3,
                "Ann is 30.\x07 She likes dramas and works as a nurse in a small town. " * 2,
                "Here is the description of the person you asked for: Ann is 30 years old. " * 2,
                "{name} is 30 years old and likes dramas because they are slow. " * 2,
                "As an AI language model I can't know who Ann is, but she likes dramas. " * 2,
            )
        ],
        "text_names_the_person": [
            _said("Somebody lives somewhere and does something or other all day long. " * 2, 0.1)
        ],
        "likes_not_disliked": [_hates_what_it_likes],
        "minors": [_children_with("job", "plumber"), _children_with("hobby", _ADULT_HOBBY)],
    },
    "movies.persona_embeddings": {
        **EMBEDDINGS,
        "near_duplicates": [_vectors(_copies)],
    },
    "movies.item_embeddings": EMBEDDINGS,
    "movies.score_plan": {
        "personas_planned": [lambda f: f.filter(pl.col("persona_id") != "persona:default:0000004")],
        "plan_balance": [
            lambda f: f.filter(
                (pl.col("persona_id") != "persona:default:0000004")
                | (pl.int_range(pl.len()).over("persona_id") < 5)
            )
        ],
    },
    "movies.preference_scores": {
        "scored_share": [_refused],
        "refused_share": [_refused],
        "invalid_share": [_failed("invalid"), _failed("truncated"), _failed("engine_error")],
        "values_complete": [
            _set("expected", None, 0.001),
            _set("mode", None, 0.001),
            _set("status", "invalid", 0.001),
        ],
        "probabilities_sum": [
            _set("probabilities", [0.5, 0.4], 0.001),
            _set("probabilities", None, 0.001),
        ],
        "plan_covered": [lambda f: f.head(f.height - 1)],
        "persona_variance": [
            _set("expected", 7.0, 0.2),
            _set("expected", 7.0),
            _set("status", "refused", 0.2),
        ],
        "answer_concentration": [_set("mode", 7, 0.95)],
        "human_distance": [_set("sample", 10, 0.6)],
    },
    "movies.graph_triples": {
        "relation_coverage": [
            lambda f: f.filter(pl.col("relation") != "directed-by"),
            lambda f: f.filter(pl.col("relation") != "liked"),
        ],
        "schema_respected": [
            lambda f: _set("tail_type", "Genre", 1 / len(f))(f),
            lambda f: _set("relation", "written-by", 1 / len(f))(f),
        ],
        "no_leaks": [_with_held_out_rating, _with_held_out_rating_node],
        "item_coverage": [_without_films],
    },
    "movies.item_similarity": {
        "items_covered": [lambda f: f.filter(pl.col("item_id") != "ml:3")],
        "neighbours_known": [lambda f: _set("neighbour_id", "ml:9999", 1 / len(f))(f)],
        "no_self": [
            lambda f: f.with_columns(
                neighbour_id=pl.when(pl.col("rank") == 1)
                .then(pl.col("item_id"))
                .otherwise(pl.col("neighbour_id"))
            )
        ],
        "ranks_complete": [
            lambda f: f.filter((pl.col("item_id") != "ml:3") | (pl.col("rank") != 1)),
            lambda f: f.filter((pl.col("item_id") != "ml:3") | (pl.col("rank") != 2)),
        ],
        "scores_descend": [lambda f: f.with_columns(score=-pl.col("score"))],
        "score_is_its_parts": [
            lambda f: f.with_columns(score=pl.col("score") + 0.01),
            lambda f: f.with_columns(cosine=pl.lit(None, pl.Float64)),
        ],
        "similarity_is_mutual": [
            lambda f: f.with_columns(pathsim=pl.lit(1.5)),
            lambda f: f.with_columns(
                pathsim=pl.when(pl.col("item_id") < pl.col("neighbour_id"))
                .then(pl.col("pathsim"))
                .otherwise(pl.col("pathsim") / 2)
            ),
        ],
        "reached_by_paths": [_set("basis", "embedding", 0.5)],
    },
}
