"""Contracts of the outcomes of experiments on simulated users.

They belong to no release: they are made on one.
"""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model

__all__ = ["EXPERIMENTS"]

_NAME = "Experiment, as on the command line."
_FIGURE = "Figure; docs/experiments.md has its meaning and unit."


class ExperimentFigures(Model):
    """Figures of experiments on simulated users, with the papers' rows."""

    experiment: pl.String = pa.Field(description=_NAME)
    row: pl.Int64 = pa.Field(ge=0, description="Row of the experiment's table, from 0.")
    source: pl.String = pa.Field(
        isin=["people", "baseline", "statistical", "model", "paper"],
        description="Source of the row: real users, baselines, brains without and with a language "
        "model, or published figures.",
    )
    labels: pl.String = pa.Field(description="Labels of the row, as `name: value; name: value`.")
    figure: pl.String = pa.Field(description=_FIGURE)
    value: pl.Float64 = pa.Field(
        nullable=True, description="Mean over people; null if not available."
    )
    low: pl.Float64 = pa.Field(
        nullable=True, description="Lower end of the 95 % interval; null for published figures."
    )
    high: pl.Float64 = pa.Field(
        nullable=True, description="Upper end of the 95 % interval; null for published figures."
    )
    n: pl.Int64 = pa.Field(nullable=True, ge=0, description="People (count); null if not stated.")
    note: pl.String = pa.Field(description="Note on the row; may be empty.")


class ExperimentComparisons(Model):
    """Paired differences between rows of experiments on simulated users."""

    experiment: pl.String = pa.Field(description=_NAME)
    left: pl.String = pa.Field(description="Labels of the left row.")
    right: pl.String = pa.Field(description="Labels of the right row.")
    figure: pl.String = pa.Field(description=_FIGURE)
    difference: pl.Float64 = pa.Field(description="Left minus right over the same people.")
    low: pl.Float64 = pa.Field(description="Lower end of the 95 % interval.")
    high: pl.Float64 = pa.Field(description="Upper end of the 95 % interval.")
    p: pl.Float64 = pa.Field(
        nullable=True, ge=0, le=1, description="p-value of the paired permutation test (two-sided)."
    )
    q: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1,
        description="p-value after the Benjamini-Hochberg correction over the experiment.",
    )
    n: pl.Int64 = pa.Field(ge=0, description="People in both rows (count).")


#: The tables by dataset name.
EXPERIMENTS: dict[str, Contract] = contracts(
    "experiments",
    figures=(ExperimentFigures, "experiment", "row", "figure"),
    comparisons=(ExperimentComparisons, "experiment", "left", "right", "figure"),
)
