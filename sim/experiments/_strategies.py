"""Experiment ``strategies``: how much agents watch, like and stay, by recommender."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl

from pipelines.study import Study
from sim.agents import AgentWorld, Simulation, page_lists, visit_values
from sim.experiments._context import ExperimentContext
from sim.experiments._data import rated_rows
from sim.experiments._experiment import experiment, page
from sim.recommenders import Recommender

_LIKE_OF_WATCHED = (
    pl.when(pl.col("p_view") > 0).then(pl.col("p_like") / pl.col("p_view")).alias("like_of_watched")
)


@experiment(
    question="Do agents watch, like and stay more with recommenders that find what people rate?",
    paper="Agent4Rec, Table 2; SimUSER, Table 3",
    conditions=("brain", "recommender"),
    **page("strategies"),
)
def strategies(
    study: Study,
    context: ExperimentContext,
    *,
    reference: str = "popular",  # recommender that the others are compared with
    min_recommenders: int = 2,  # that a comparison needs (count)
) -> None:
    """Play visits to every recommender with every brain."""
    names = context.recommenders
    study.require("recommenders", len(names), min_recommenders, "name more with --recommender")
    world = context.world()
    for name in names:
        recommender = context.recommender(name)
        key = {
            "people": len(world),
            "shown": world.pages * world.per_page,
            "recommender": recommender.name,
            "note": recommender.note,
        }
        frame = context.cell(study, key, partial(_of_people, world, recommender))
        study.add(
            ("people (held out)", name), "people", frame,
            note="Shares of the list that the person rated, and liked, in the test split.",
            measure="a lower bound, of which only the order counts",
        )  # fmt: skip
    for brain, mind, source in context.players():
        for name in names:
            frame = context.of_visits(study, mind, name, _values)
            row = study.add((brain, name), source, frame)
            agents = int(context.visits(mind, name).identity["agents"])
            study.counts[f"agents, {row.title}"] = agents
            study.counts[f"failed, {row.title}"] = agents - frame.height
    study.against("p_like", recommender=reference if reference in names else names[0])


def _values(run: Simulation) -> pl.DataFrame:
    """Figures of every agent that did not fail."""
    values = visit_values(run.table("agents").collect(), run.table("views"))
    return values.with_columns(_LIKE_OF_WATCHED)


def _of_people(world: AgentWorld, recommender: Recommender) -> pl.DataFrame:
    """Shares of each person's list that it rated, and liked, in the test split."""
    everybody = np.arange(len(world))
    lists = page_lists(world, recommender, everybody).reshape(len(world), -1)
    row, place = np.nonzero(lists >= 0)
    shown = world.people[row].select("persona_id", "user_id", item=lists[row, place])
    rated = shown.join(rated_rows(world, "test"), on=["user_id", "item"], how="left")
    stars = pl.col("truth")
    return (
        rated.group_by("persona_id")
        .agg(p_view=stars.is_not_null().mean(), p_like=(stars > 3).fill_null(False).mean())
        .with_columns(_LIKE_OF_WATCHED)
        .sort("persona_id")
    )
