"""Rating models trained on people's ratings (docs/rating-model.md)."""

from pipelines.tuning._adapt import Base, open_base
from pipelines.tuning._build import RatingModel, calibrate_model, save_model, train_rating_model
from pipelines.tuning._examples import MIN_RATINGS, HeldOut, rating_examples, training_rows
from pipelines.tuning._judge import Judged, check_predictable, judge_model
from pipelines.tuning._scratch import CONTEXT, make_model, train_tokenizer
from pipelines.tuning._train import Encoder, Packed, Recipe, Trained, pack, train, windows_of

__all__ = [
    "CONTEXT",
    "MIN_RATINGS",
    "Base",
    "Encoder",
    "HeldOut",
    "Judged",
    "Packed",
    "RatingModel",
    "Recipe",
    "Trained",
    "calibrate_model",
    "check_predictable",
    "judge_model",
    "make_model",
    "open_base",
    "pack",
    "rating_examples",
    "save_model",
    "train",
    "train_rating_model",
    "train_tokenizer",
    "training_rows",
    "windows_of",
]
