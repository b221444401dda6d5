"""Rating models trained on people's ratings (docs/rating-model.md)."""

from pipelines.tuning._examples import MIN_RATINGS, HeldOut, rating_examples, training_rows
from pipelines.tuning._judge import (
    Judged,
    calibrate_model,
    check_predictable,
    judge_model,
    save_model,
)
from pipelines.tuning._recipe import (
    RECIPE,
    Base,
    RatingModel,
    Recipe,
    make_model,
    open_base,
    tokenizer_of,
    train_rating_model,
    train_tokenizer,
)
from pipelines.tuning._windows import CONTEXT, Prompts, Window, batch_of

__all__ = [
    "CONTEXT",
    "MIN_RATINGS",
    "RECIPE",
    "Base",
    "HeldOut",
    "Judged",
    "Prompts",
    "RatingModel",
    "Recipe",
    "Window",
    "batch_of",
    "calibrate_model",
    "check_predictable",
    "judge_model",
    "make_model",
    "open_base",
    "rating_examples",
    "save_model",
    "tokenizer_of",
    "train_rating_model",
    "train_tokenizer",
    "training_rows",
]
