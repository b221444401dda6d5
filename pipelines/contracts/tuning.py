"""Contracts of rating models. No release holds them."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import ITEM, Model

__all__ = ["TUNED_DOMAINS", "TUNING"]

#: Domains whose ratings a model is trained on.
TUNED_DOMAINS = ("movies",)


class RatingExamples(Model):
    """Ledger lines that a rating model is trained on: targets, and the context before them."""

    window: pl.String = pa.Field(
        description="Window of one person's consecutive ratings: `<cut>:<user>:<number>`, or "
        "`validation:<user>`."
    )
    position: pl.Int64 = pa.Field(ge=0, description="Position in the window, from 0.")
    user_id: pl.String = pa.Field(description="Human user who rated.")
    item_id: pl.String = pa.Field(description=ITEM)
    rating: pl.Float64 = pa.Field(
        ge=0, le=100, description="Rating on the prompt's scale (an answer of it)."
    )
    split: pl.String = pa.Field(
        isin=["train", "validation", "context"],
        description="`train` and `validation` are targets; `context` is a training rating that "
        "precedes validation targets.",
    )
    shows: pl.String = pa.Field(
        isin=["both", "description", "history"],
        description="What the window shows about its person.",
    )
    votes: pl.Boolean = pa.Field(description="Whether public votes are shown.")
    description: pl.String = pa.Field(
        description="Facts about the person, from ratings before the window; may be empty."
    )
    line: pl.String = pa.Field(description="Facts about the item, up to where the rating goes.")
    after: pl.String = pa.Field(
        description="Text after the rating: the person's mean surplus over others in the lines "
        "shown so far; empty if no line has a mean."
    )
    text_sha256: pl.String = pa.Field(
        str_matches=r"^[0-9a-f]{64}$",
        description="SHA-256 (hex) of the prompt's text up to where the rating goes.",
    )


class RatingModel(Model):
    """Files of a rating model, stored beside the table: a checkpoint that engines open."""

    file: pl.String = pa.Field(unique=True, description="Name of the file.")
    bytes: pl.Int64 = pa.Field(ge=0, description="Size (bytes).")
    sha256: pl.String = pa.Field(
        str_matches=r"^[0-9a-f]{64}$", description="SHA-256 (hex) of its content."
    )


#: The tables by dataset name.
TUNING: dict[str, Contract] = contracts(
    TUNED_DOMAINS,
    rating_examples=(RatingExamples, "window", "position"),
    rating_model=(RatingModel, "file"),
)
