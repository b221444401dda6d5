"""Figures of visits: those of Agent4Rec's Table 2, with intervals, and pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from sim.agents._assumed import ASSUMED_FILE
from sim.agents._protocol import Floats
from sim.agents._run import Simulation
from sim.metrics import RESAMPLES, Figure, mean_with_interval, user_weights

#: Figures by column of a report (Agent4Rec, section 3.3).
FIGURES = {
    "p_view": "share of the shown items that were watched",
    "n_like": "ratings above 3 per agent (count)",
    "p_like": "share of the shown items that were rated above 3",
    "n_exit": "page on which the visit ended",
    "s_sat": "score of the interview, 1-10",
}


@dataclass(frozen=True)
class VisitRow:
    """Figures of the visits of one brain to one recommender."""

    #: Brain name.
    brain: str
    recommender: str
    #: Agents, and those that failed and are in no figure (counts).
    agents: int
    failed: int
    #: By name of `FIGURES`: mean over people, with its 95 % interval over people.
    figures: dict[str, Figure]

    def as_json(self) -> dict[str, Any]:
        """The row as plain values."""
        counts = {name: value for name, value in vars(self).items() if name != "figures"}
        return counts | {name: [f.value, f.low, f.high] for name, f in self.figures.items()}


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
    whole = agents.filter(pl.col("exit_reason") != "failed")
    return whole.join(items, on="agent", how="left", maintain_order="left").select(
        "agent",
        "persona_id",
        p_view=pl.col("watched") / pl.col("shown"),
        n_like=pl.col("liked").cast(pl.Float64),
        p_like=pl.col("liked") / pl.col("shown"),
        n_exit=pl.col("exit_page").cast(pl.Float64),
        s_sat=pl.col("interview").cast(pl.Float64),
    )


def visit_row(run: Simulation) -> VisitRow:
    """Figures of a run."""
    agents = run.table("agents").collect()
    values = visit_values(agents, run.table("views"))
    # Agents that share a person are no independent draws.
    by_person = values.group_by("persona_id").mean().sort("persona_id")
    weights = user_weights(by_person.height, RESAMPLES, 0)
    figures = (
        {name: mean_with_interval(by_person[name].to_numpy(), weights) for name in FIGURES}
        if by_person.height
        else {}
    )
    return VisitRow(
        run.identity["brain"],
        run.identity["recommender"],
        agents.height,
        agents.height - values.height,
        figures,
    )


def markdown(runs: Sequence[Simulation], rows: Sequence[VisitRow]) -> str:
    """The figures as a table, with what each brain assumes."""
    header = ["brain", "recommender", "agents", "failed", *FIGURES]
    cells = [
        [
            row.brain, row.recommender, f"{row.agents:,}", f"{row.failed:,}",
            *(_shown(row.figures.get(name)) for name in FIGURES),
        ]
        for row in rows
    ]  # fmt: skip
    notes = dict.fromkeys(f"`{run.identity['brain']}`: {run.identity['note']}" for run in runs)
    release = runs[0].identity["release"]
    lines = [header, ["---"] * len(header), *cells]
    return "\n\n".join(
        [
            "\n".join(f"| {' | '.join(line)} |" for line in lines),
            f"Release {release}. Means over people with 95 % intervals over people; assumptions "
            f"that are not fitted are in `{ASSUMED_FILE}`.",
            *notes,
        ]
    )


def _shown(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def pictures(
    runs: Sequence[Simulation], rows: Sequence[VisitRow], people: Floats
) -> dict[str, bytes]:
    """Exits by page, ratings beside those of people, satisfaction by recommender, as PNG.

    ``people`` are the shares of people's training ratings 1-5, of shape (5,).
    """
    from matplotlib.figure import Figure as Picture

    names = [f"{row.brain}, {row.recommender}" for row in rows]
    out = {}

    def finish(title: str, key: str, picture: Any, axes: Any) -> None:
        axes.set_title(title)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        picture.tight_layout()
        data = io.BytesIO()
        picture.savefig(data, format="png", dpi=110)
        out[key] = data.getvalue()

    picture = Picture(figsize=(7, 4))
    axes = picture.subplots()
    pages = int(runs[0].identity["pages"])
    width = 0.8 / len(runs)
    for n, (run, name) in enumerate(zip(runs, names, strict=True)):
        ended = run.table("agents").filter(pl.col("exit_reason") != "failed").collect()
        share = np.bincount(ended["exit_page"], minlength=pages + 1)[1:] / max(ended.height, 1)
        axes.bar(np.arange(1, pages + 1) + (n + 0.5) * width - 0.4, share, width, label=name)
    axes.set_xlabel("page on which the visit ended (the last is the limit too)")
    axes.set_ylabel("share of agents")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    finish("Exits by page", "exits_by_page", picture, axes)

    picture = Picture(figsize=(7, 4))
    axes = picture.subplots()
    width = 0.8 / (len(runs) + 1)
    stars = np.arange(1, 6)
    axes.bar(stars + 0.5 * width - 0.4, people, width, label="people", color="black")
    for n, (run, name) in enumerate(zip(runs, names, strict=True)):
        given = run.table("views").filter(pl.col("watched")).select("rating").collect()
        share = np.bincount(given["rating"], minlength=6)[1:] / max(given.height, 1)
        axes.bar(stars + (n + 1.5) * width - 0.4, share, width, label=name)
    axes.set_xlabel("rating (1-5)")
    axes.set_ylabel("share of ratings")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    finish("Ratings beside those of people (training split)", "ratings", picture, axes)

    picture = Picture(figsize=(7, 0.5 * len(rows) + 1.5))
    axes = picture.subplots()
    for n, row in enumerate(rows):
        found = row.figures.get("s_sat")
        if found is not None:
            off = [[found.value - found.low], [found.high - found.value]]
            axes.errorbar(found.value, n, xerr=off, fmt="o", capsize=3)
    axes.set_yticks(range(len(rows)), names)
    axes.set_xlabel("interview (1-10), mean with 95 % interval over people")
    axes.invert_yaxis()
    finish("Satisfaction by recommender", "satisfaction_by_recommender", picture, axes)
    return out
