"""The study of visits: figures of Agent4Rec's Table 2, with intervals over people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipelines.study import Plot, Study, draw
from sim.agents._assumed import ASSUMED_FILE
from sim.agents._protocol import Floats
from sim.agents._run import Simulation

#: Figures by column of a report (Agent4Rec, section 3.3).
FIGURES = {
    "p_view": "share of the shown items that were watched",
    "n_like": "ratings above 3 per agent (count)",
    "p_like": "share of the shown items that were rated above 3",
    "n_exit": "page on which the visit ended",
    "s_sat": "score of the interview, 1-10",
}
_SATISFACTION = Plot(
    "Satisfaction by recommender", "interview (1-10)", ("s_sat",), ("recommender",), ("brain",)
)


def source_of(brain: str, metadata: Mapping[str, Any]) -> str:
    """``baseline``, ``statistical`` (no language model) or ``model``: source of a brain's rows."""
    if brain in ("random", "always"):
        return "baseline"
    return "model" if metadata.get("language_model") else "statistical"


def visit_values(agents: pl.DataFrame, views: pl.LazyFrame) -> pl.DataFrame:
    """Figures of every agent that did not fail: ``agent, persona_id`` and those of `FIGURES`.

    An item that was shown again counts once.
    """
    items = (
        views.group_by("agent", "page", "position")
        .agg(watched=pl.col("watched").any(), liked=(pl.col("rating") > 3).any())
        .group_by("agent")
        .agg(
            shown=pl.len(),
            watched=pl.col("watched").sum(),
            liked=pl.col("liked").fill_null(False).sum(),
        )
        .collect()
    )
    completed = agents.filter(pl.col("exit_reason") != "failed")
    return completed.join(items, on="agent", how="left", maintain_order="left").select(
        "agent",
        "persona_id",
        p_view=pl.col("watched") / pl.col("shown"),
        n_like=pl.col("liked").cast(pl.Float64),
        p_like=pl.col("liked") / pl.col("shown"),
        n_exit=pl.col("exit_page").cast(pl.Float64),
        s_sat=pl.col("interview").cast(pl.Float64),
    )


def visit_study(runs: Sequence[Simulation], people: Floats | None = None) -> Study:
    """The study of runs on one release, a row each over the agents that did not fail.

    With pictures if ``people`` are given: shares of people's training ratings 1-5, of shape (5,).
    """
    study = Study(
        "agents",
        "How do simulated users take to recommenders?",
        "Agent4Rec, Table 2",
        FIGURES,
        ("brain", "recommender"),
        legend="Means over people with 95 % intervals over people; n counts agents. Assumptions "
        f"that are not fitted are in `{ASSUMED_FILE}`.",
        notes=list(dict.fromkeys(f"`{r.identity['brain']}`: {r.identity['note']}" for r in runs)),
    )
    for run in runs:
        agents = run.table("agents").collect()
        values = visit_values(agents, run.table("views"))
        failed = agents.height - values.height
        brain, recommender = run.identity["brain"], run.identity["recommender"]
        study.add(
            [brain, recommender],
            source_of(brain, run.identity["brain_metadata"]),
            values,
            n=values.height,
            note=f"{failed:,} more agents failed" if failed else "",
        )
    if people is not None:
        study.draw({"satisfaction_by_recommender": _SATISFACTION})
        study.pictures |= _pictures(study, runs, people)
    return study


def visit_rows(study: Study, runs: Sequence[Simulation]) -> list[dict[str, Any]]:
    """The rows of :func:`visit_study` as plain values, with counts of agents and failed ones."""
    return [
        {
            **row.labels,
            "agents": run.identity["agents"],
            "failed": run.identity["agents"] - (row.n or 0),
            **row.as_json()["figures"],
        }
        for row, run in zip(study.rows, runs, strict=True)
    ]


def _pictures(study: Study, runs: Sequence[Simulation], people: Floats) -> dict[str, bytes]:
    """Exits by page, and ratings beside those of people."""
    exits: dict[str, dict[str, float]] = {}
    ratings = {"people": _shares(people, 1)}
    for row, run in zip(study.rows, runs, strict=True):
        ended = run.table("agents").filter(pl.col("exit_reason") != "failed").collect()
        given = run.table("views").filter(pl.col("watched")).select("rating").collect()
        counts = np.bincount(ended["exit_page"], minlength=int(run.identity["pages"]) + 1)[1:]
        exits[row.title] = _shares(counts, ended.height)
        ratings[row.title] = _shares(np.bincount(given["rating"], minlength=6)[1:], given.height)
    return {
        "exits_by_page": draw(
            {"": exits},
            title="Exits by page",
            x="page on which the visit ended (the last is the limit too)",
            y="share of agents",
        ),
        "ratings": draw(
            {"": ratings},
            title="Ratings beside those of people (training split)",
            x="rating (1-5)",
            y="share of ratings",
        ),
    }


def _shares(counts: Any, total: int) -> dict[str, float]:
    return {str(n): float(count) / max(total, 1) for n, count in enumerate(counts, 1)}
