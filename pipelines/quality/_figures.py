"""Headline figures of published tables, as numbers that can be plotted from version to version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pipelines.config import Settings
    from pipelines.store import Snapshot

Figures = dict[str, float | None]


def _rater_report(snapshot: Snapshot, _: Settings) -> Figures:
    rows = snapshot.read().filter(pl.col("metric").is_in(["rmse", "pairwise"]))
    # Raters of known people first: the baselines follow.
    rows = rows.sort(
        pl.col("kind") != "rater", pl.col("split") != "user", pl.col("metric") != "rmse",
        maintain_order=True,
    )  # fmt: skip
    return {
        f"{row['metric']}, {row['predictor']} ({row['split']})": row["value"]
        for row in rows.iter_rows(named=True)
    }


def _population(snapshot: Snapshot, _: Settings) -> Figures:
    return {
        f"{row['figure']}, {who}": row[f"{who}_value"]
        for row in snapshot.read().iter_rows(named=True)
        for who in ("personas", "people")
    }


def _preference_scores(snapshot: Snapshot, settings: Settings) -> Figures:
    means = snapshot.scan().select(
        entropy=pl.col("entropy").mean(),
        expected_rating=pl.col("expected").mean(),
        failed_share=(pl.col("status") != "ok").mean(),
    )
    figures: Figures = dict(means.collect().row(0, named=True))
    serving = settings.serving
    for cohort, facts in snapshot.manifest.stats.get("scoring", {}).items():
        pairs = facts.get("scored_now") or 0
        figures[f"seconds per pair, {cohort}"] = facts["seconds"] / pairs if pairs else None
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "calls"):
            figures[f"{name}, {cohort}"] = facts.get(name)
        if "prompt_tokens" in facts:
            figures[f"cost, {cohort}"] = (
                facts["prompt_tokens"] * serving.input_price
                + facts["completion_tokens"] * serving.output_price
            ) / 1e6
    return figures


def _item_similarity(snapshot: Snapshot, _: Settings) -> Figures:
    columns = {"similarity": "score", "path_similarity": "path_score", "text_similarity": "cosine"}
    present = {k: v for k, v in columns.items() if v in snapshot.scan().collect_schema()}
    means = snapshot.scan().select(pl.col(column).mean().alias(n) for n, column in present.items())
    return {f"mean {name}": value for name, value in means.collect().row(0, named=True).items()}


_FIGURES: dict[str, Callable[[Snapshot, Settings], Figures]] = {
    "rater_report": _rater_report,
    "population": _population,
    "preference_scores": _preference_scores,
    "item_similarity": _item_similarity,
}


def figures_for(dataset: str, snapshot: Snapshot, settings: Settings) -> Figures:
    """Headline figures of a dataset by name (four digits); those that are unknown are left out."""
    figures = _FIGURES.get(dataset.rpartition(".")[2])
    values = figures(snapshot, settings) if figures and snapshot.rows else {}
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None
    }
