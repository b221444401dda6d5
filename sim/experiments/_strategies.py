"""Experiment ``strategies``: how much agents watch, like and stay, by recommender."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from sim.agents import FIGURES, AgentWorld, Simulation, page_lists, visit_values
from sim.environment import split_rows
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import bars, paired, person_figures
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.recommenders import Recommender

#: Figures of a visit, and likes of watched items.
_NAMES = (*FIGURES, "like_of_watched")

_FIGURES = {
    "p_view": "share of the shown items that were watched, 0-1",
    "n_like": "ratings above 3 per agent (count)",
    "p_like": "share of the shown items that were rated above 3, 0-1",
    "n_exit": "page on which the visit ended, from 1",
    "s_sat": "score of the interview, 1-10",
    "like_of_watched": "share of the watched items that were rated above 3, 0-1",
}


@dataclass(frozen=True)
class StrategiesSettings:
    """Settings of ``strategies``."""

    #: Recommender that the others are compared with.
    reference: str = "popular"
    #: Recommenders that a comparison needs (count).
    min_recommenders: int = 2


class Strategies:
    """Engagement and satisfaction of agents by recommender."""

    name = "strategies"
    question = "Do agents watch, like and stay more with recommenders that find what people rate?"
    anchor = "Agent4Rec, Table 2; SimUSER, Table 3"
    figures = _FIGURES

    def __init__(self, settings: StrategiesSettings | None = None) -> None:
        self.settings = settings or StrategiesSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Play visits to every recommender with every brain."""
        names = context.recommenders
        if len(names) < self.settings.min_recommenders:
            raise TooFew(
                "recommenders",
                found=len(names),
                needed=self.settings.min_recommenders,
                where=f"experiment {self.name}",
                hint="name more with --recommender",
            )
        cells: dict[tuple[str, str], tuple[Row, pl.DataFrame]] = {}
        world = context.world()
        for name in names:
            recommender = context.recommender(name)
            frame = context.cell(
                self.name,
                {
                    "people": len(world),
                    "shown": world.pages * world.per_page,
                    "recommender": recommender.name,
                    "note": recommender.note,
                },
                lambda r=recommender: _of_people(world, r),  # type: ignore[misc]
            )
            labels = {"brain": "people (held out)", "recommender": name}
            figures = person_figures(frame, ("p_view", "p_like", "like_of_watched"))
            note = "Shares of the list that the person rated, and liked, in the test split."
            row = Row(labels, "people", figures, frame.height, note)
            cells["people (held out)", name] = row, frame
        counts: dict[str, int] = {}
        for brain in context.brains:
            mind = context.brain(brain)
            for name in names:
                run = context.visits(mind, name)
                frame = context.cell(
                    self.name,
                    {"visits": run.identity, **asdict(self.settings)},
                    lambda run=run: _values(run),  # type: ignore[misc]
                )
                labels = {"brain": brain, "recommender": name}
                people = frame["persona_id"].n_unique()
                figures = person_figures(frame, _NAMES)
                row = Row(labels, context.source(mind), figures, people)
                cells[brain, name] = row, frame
                agents = run.table("agents").select("exit_reason").collect()
                counts[f"agents, {row.title}"] = agents.height
                counts[f"failed, {row.title}"] = agents.height - frame.height
        comparisons = self._comparisons(cells, names, context.seed)
        rows = [row for row, _ in cells.values()]
        return Result(rows, comparisons, _NOTES, {"p_like": _picture(cells, names)}, counts)

    def _comparisons(
        self,
        cells: dict[tuple[str, str], tuple[Row, pl.DataFrame]],
        names: tuple[str, ...],
        seed: int,
    ) -> list[Comparison]:
        against = self.settings.reference if self.settings.reference in names else names[0]
        out = []
        for brain in dict.fromkeys(brain for brain, _ in cells):
            for name in names:
                if name != against:
                    sides = cells[brain, name], cells[brain, against]
                    found = paired(*sides, "p_like", seed=seed)
                    out += [] if found is None else [found]
        return out


_NOTES = [
    "Rows of people are a lower bound: nearly all that people would watch they have not rated. "
    "Their order is what the order of the agents is to be compared with.",
    "The statistical brain's exits and interviews follow from likes by assumption: `n_exit` and "
    "`s_sat` say nothing that `p_like` does not.",
    "`like_of_watched` is over agents that watched something.",
]


def _values(run: Simulation) -> pl.DataFrame:
    """Figures of every agent that did not fail."""
    found = visit_values(run.table("agents").collect(), run.table("views"))
    return found.with_columns(
        like_of_watched=pl.when(pl.col("p_view") > 0).then(pl.col("p_like") / pl.col("p_view"))
    )


def _of_people(world: AgentWorld, recommender: Recommender) -> pl.DataFrame:
    """Shares of each person's list that it rated, and liked, in the test split."""
    from pipelines.raters import rescale, scale_named, source_scale

    everybody = np.arange(len(world))
    lists = page_lists(world, recommender, everybody).reshape(len(world), -1)
    row, place = np.nonzero(lists >= 0)
    ids = pl.Series(world.catalogue.ids, dtype=pl.String)
    shown = pl.DataFrame(
        {
            "persona_id": world.people["persona_id"].gather(row),
            "user_id": world.people["user_id"].gather(row),
            "item_id": ids.gather(lists[row, place]),
        }
    )
    rows = split_rows(world.release, ("test",))
    scale = source_scale(world.release["interactions"].lazy())
    stars = rescale(rows["rating"].to_numpy(), scale, scale_named("1-5"))
    found = shown.join(
        rows.select("user_id", "item_id").with_columns(stars=pl.Series(stars, dtype=pl.Float64)),
        on=["user_id", "item_id"],
        how="left",
    )
    liked = (pl.col("stars") > 3).fill_null(False)
    return (
        found.group_by("persona_id")
        .agg(p_view=pl.col("stars").is_not_null().mean(), p_like=liked.mean())
        .with_columns(
            like_of_watched=pl.when(pl.col("p_view") > 0).then(pl.col("p_like") / pl.col("p_view"))
        )
        .sort("persona_id")
    )


def _picture(
    cells: dict[tuple[str, str], tuple[Row, pl.DataFrame]], names: tuple[str, ...]
) -> bytes:
    brains = dict.fromkeys(brain for brain, _ in cells)
    series = {b: [cells[b, name][0].figures["p_like"] for name in names] for b in brains}
    return bars("Likes of shown items by recommender", names, series, "share of shown items (0-1)")
