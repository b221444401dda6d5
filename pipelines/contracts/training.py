"""Contract of trained policies. They belong to no release: they are trained on one."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract
from pipelines.contracts._columns import Model

__all__ = ["TRAINING"]


class TrainedPolicy(Model):
    """Recommendation policies trained in the environment, one per seed, with how good they are."""

    seed: pl.Int64 = pa.Field(unique=True, ge=0, description="Seed of the training.")
    algo: pl.String = pa.Field(isin=["a2c", "ppo", "trpo", "dqn"], description="Algorithm.")
    steps: pl.Int64 = pa.Field(ge=1, description="Steps that it was trained for (count).")
    release: pl.String = pa.Field(description="Release that it was trained on, `name@version`.")
    rater: pl.String = pa.Field(description="Who rated its recommendations.")
    language_model: pl.Boolean = pa.Field(description="Whether a language model rated.")
    scale: pl.String = pa.Field(description="Scale of the ratings.")
    items_sha256: pl.String = pa.Field(
        str_length=64, description="Hash of the item ids in their order; it is of no use on others."
    )
    personas_sha256: pl.String = pa.Field(
        str_length=64, description="Hash of the persona ids in their order."
    )
    users: pl.Int64 = pa.Field(ge=1, description="Personas that it was evaluated on (count).")
    average_reward: pl.Float64 = pa.Field(
        description="Mean rating of ten recommendations.", metadata={"unit": "rating, on `scale`"}
    )
    map_at_10: pl.Float64 = pa.Field(ge=0, le=1, description="MAP@10 (SUBER, appendix F.1).")
    mrr_at_10: pl.Float64 = pa.Field(ge=0, le=1, description="MRR@10 (SUBER, appendix F.1).")
    personalization_at_10: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1.000001,
        description="1 - mean pairwise cosine of lists; null for a single user.",
    )
    liked_at_5: pl.Float64 = pa.Field(ge=0, le=1, description="Share of liked genres, top 5.")
    disliked_at_5: pl.Float64 = pa.Field(ge=0, le=1, description="Share of disliked genres, top 5.")
    liked_at_10: pl.Float64 = pa.Field(ge=0, le=1, description="Share of liked genres, top 10.")
    disliked_at_10: pl.Float64 = pa.Field(
        ge=0, le=1, description="Share of disliked genres, top 10."
    )
    weights: pl.Binary = pa.Field(
        description="The policy as a safetensors file; `sim.training.load_policy` opens it."
    )


#: The table by dataset name.
TRAINING: dict[str, Contract] = {
    "trained_policy": Contract("trained_policy", TrainedPolicy, ("seed",))
}
