"""Contracts of surrogates of raters. No release holds them."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model, column
from pipelines.contracts.tuning import RatingModel

__all__ = ["SURROGATES", "SURROGATE_DOMAINS"]

#: Domains whose scores a surrogate is learned from.
SURROGATE_DOMAINS = ("movies", "books", "games")


class RatingSurrogate(RatingModel):
    """Files of a surrogate, stored beside the table: arrays, metadata and a card."""


class SurrogateFidelity(Model):
    """A surrogate compared with its teacher on held-out pairs; 95 % intervals over personas."""

    kind: pl.String = column(
        "Whether personas and items were in the training pairs; `visited states` are rated with "
        "memories, and their baseline is the surrogate without memories."
    )
    figure: pl.String = column(
        "`rmse` of expected ratings (units of the scale), `correlation` of these within a persona, "
        "`total_variation` between distributions, `ndcg@10` by the teacher's order.",
        isin=["rmse", "correlation", "total_variation", "ndcg@10"],
    )
    value: pl.Float64 = column("Value for the surrogate; null if undefined.", null=True)
    low: pl.Float64 = column("Lower end of its interval.", null=True)
    high: pl.Float64 = column("Upper end of that interval.", null=True)
    floor: pl.Float64 = column(
        "Value for the baseline: the additive fit of persona and item (both seen), the item's "
        "mean (persona unseen), the persona's mean (item unseen), or a constant.",
        null=True,
    )
    floor_low: pl.Float64 = column("Lower end of its interval.", null=True)
    floor_high: pl.Float64 = column("Upper end of that interval.", null=True)
    difference: pl.Float64 = column("Surrogate minus baseline.", null=True)
    difference_low: pl.Float64 = column("Lower end of its interval (paired).", null=True)
    difference_high: pl.Float64 = column("Upper end of that interval.", null=True)
    pairs: pl.Int64 = column("Held-out pairs (count).", ge=1)
    personas: pl.Int64 = column("Personas of these pairs (count).", ge=1)


#: The tables by dataset name.
SURROGATES: dict[str, Contract] = contracts(
    SURROGATE_DOMAINS,
    rating_surrogate=(RatingSurrogate, "file"),
    surrogate_fidelity=(SurrogateFidelity, "kind", "figure"),
)
