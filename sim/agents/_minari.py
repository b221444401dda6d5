"""Visits as a Minari dataset: the slate as action, likes as reward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from sim.agents._run import Simulation
from sim.agents._world import AgentWorld


def write_visits(run: Simulation, world: AgentWorld, root: Path | str) -> Path:
    """Write one episode per agent that did not fail, and return the dataset's folder.

    A step is a page that was opened. Action: item numbers by position, the number of items where
    the page ends, of shape (per_page,). Reward: items that were newly rated above 3 before the next
    page. Observation: ``page`` (of the last step, 0 at first), ``watched`` and ``ratings`` by
    position on it (0 where there is none). An agent that left is terminated; one at the limit is
    truncated.

    The run is finished and was played on ``world``. In ``root``, the folder of datasets, the id is
    ``understudy/<domain>-agents-<brain>-<recommender>-v0``.

    Raises
    ------
    ConfigError
        If every agent failed, the dataset is there already, or Minari is not installed.
    StoreError
        If it can't be written.
    """
    from gymnasium import spaces

    from sim.episodes import Episode, EpisodeLog, write_minari

    size, none = world.per_page, len(world.catalogue)
    log = EpisodeLog(
        metadata=run.identity,
        observation_space=spaces.Dict(
            {
                "page": spaces.Box(0, world.pages, (1,), np.int64),
                "watched": spaces.MultiBinary(size),
                "ratings": spaces.Box(0.0, 5.0, (size,), np.float64),
            }
        ),
        action_space=spaces.MultiDiscrete([none + 1] * size),
        env_id="",
    )
    numbers = pl.DataFrame({"item_id": world.catalogue.ids}).with_row_index("item").lazy()
    clicks = run.table("views").select("agent", "view", "clicked").unique()
    opened = (
        run.table("pages")
        .join(clicks, on=["agent", "view"], how="left")
        .sort("agent", "view")
        .with_columns(step=(~pl.col("clicked").fill_null(False)).cum_sum().over("agent") - 1)
    )
    rows = run.table("views").join(numbers, on="item_id")
    rows = rows.join(opened.select("agent", "view", "step"), on=["agent", "view"]).sort(
        "agent", "view", "position"
    )
    agents = run.table("agents").filter(pl.col("exit_reason") != "failed").collect()
    steps = opened.filter(~pl.col("clicked")).collect().partition_by("agent", as_dict=True)
    parts = rows.collect().partition_by("agent", as_dict=True)
    for agent in agents.iter_rows(named=True):
        mine, pages = parts[agent["agent"],], steps[agent["agent"],]
        length = pages.height
        step, place = mine["step"].to_numpy(), mine["position"].to_numpy()
        actions = np.full((length, size), none)
        actions[step, place] = mine["item"].to_numpy()
        watched = np.zeros((length + 1, size), np.int8)
        ratings = np.zeros((length + 1, size))
        stars = mine["rating"].fill_null(0).to_numpy()
        np.maximum.at(ratings, (step + 1, place), stars)
        watched[1:] = ratings[1:] > 0
        chosen = agent["exit_reason"] == "chosen"
        last = np.arange(length) == length - 1
        log.episodes.append(
            Episode(
                persona_id=agent["persona_id"],
                seed=int(run.identity["seed"]),
                observations={
                    "page": np.concatenate([[0], pages["page"].to_numpy()])[:, None],
                    "watched": watched,
                    "ratings": ratings,
                },
                actions=actions,
                rewards=(ratings[1:] > 3).sum(axis=1).astype(np.float64),
                terminated=last & chosen,
                truncated=last & ~np.bool_(chosen),
                infos={"emotion": np.array(pages["emotion"].fill_null("").to_list(), object)},
            )
        )
    name = "-".join((run.identity["brain"], run.identity["recommender"])).lower()
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
    dataset = f"understudy/{world.release.domain}-agents-{safe}-v0"
    return write_minari(log, root, dataset, algorithm=run.identity["recommender"])
