"""Triples of the movies as one frame."""

from __future__ import annotations

import polars as pl

from pipelines.config import GraphSettings
from pipelines.graph import triple_batches


def movie_triples(
    items: pl.DataFrame,
    interactions: pl.DataFrame,
    splits: pl.DataFrame,
    users: pl.DataFrame,
    settings: GraphSettings,
) -> pl.DataFrame:
    """Every batch of :func:`triple_batches`."""
    tables = {"items": items, "interactions": interactions, "splits": splits, "users": users}
    return pl.concat(triple_batches("movies", tables, settings))
