"""Contract of trained policies. They belong to no release: they are trained on one."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract
from pipelines.contracts._columns import Model, column

__all__ = ["TRAINING"]


class TrainedPolicy(Model):
    """Recommendation policies trained in the environment, one per seed, with their evaluation."""

    seed: pl.Int64 = column("Seed of the training.", unique=True, ge=0)
    algo: pl.String = column("Algorithm.", isin=["a2c", "ppo", "trpo", "dqn"])
    steps: pl.Int64 = column("Training steps (count).", ge=1)
    release: pl.String = column("Release used for training, `name@version`.")
    rater: pl.String = column("Rater of the recommended items.")
    language_model: pl.Boolean = column("Whether the rater is a language model.")
    scale: pl.String = column("Scale of the ratings.")
    items_sha256: pl.String = column(
        "Hash of the item ids in their order; the policy works with no others.", str_length=64
    )
    personas_sha256: pl.String = column("Hash of the persona ids in their order.", str_length=64)
    users: pl.Int64 = column("Personas in the evaluation (count).", ge=1)
    average_reward: pl.Float64 = column(
        "Mean rating of ten recommendations.", unit="rating, on `scale`"
    )
    map_at_10: pl.Float64 = column("MAP@10 (SUBER, appendix F.1).", ge=0, le=1)
    mrr_at_10: pl.Float64 = column("MRR@10 (SUBER, appendix F.1).", ge=0, le=1)
    personalization_at_10: pl.Float64 = column(
        "1 - mean pairwise cosine of lists; null for a single user.", null=True, ge=0, le=1.000001
    )
    liked_at_5: pl.Float64 = column("Share of liked genres, top 5.", ge=0, le=1)
    disliked_at_5: pl.Float64 = column("Share of disliked genres, top 5.", ge=0, le=1)
    liked_at_10: pl.Float64 = column("Share of liked genres, top 10.", ge=0, le=1)
    disliked_at_10: pl.Float64 = column("Share of disliked genres, top 10.", ge=0, le=1)
    weights: pl.Binary = column(
        "The policy as a safetensors file; `sim.training.load_policy` opens it."
    )


#: The table by dataset name.
TRAINING: dict[str, Contract] = {
    "trained_policy": Contract("trained_policy", TrainedPolicy, ("seed",))
}
