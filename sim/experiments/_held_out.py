"""Ratings that agents give to the test items of the people whom they stand for."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.raters import rescale, source_scale
from pipelines.scales import scale_named
from pipelines.seeding import hash_ids, uniform
from sim.agents import AgentWorld, Brain, judge_pairs
from sim.environment import split_rows
from sim.experiments._context import ExperimentContext

#: Test items per person that a brain with a model is asked about at most (count).
ITEMS_OF_MODEL = 8

Floats = npt.NDArray[np.float64]


def rated_rows(world: AgentWorld, split: str) -> pl.DataFrame:
    """Ratings of a split on 1-5: ``user_id``, ``item`` (number), ``truth``."""
    rows = split_rows(world.release, (split,))
    scale = source_scale(world.release["interactions"].lazy())
    stars = np.asarray(rescale(rows["rating"].to_numpy(), scale, scale_named("1-5")), np.float64)
    items = pl.DataFrame({"item_id": world.catalogue.ids}).with_row_index("item")
    return (
        rows.select("user_id", "item_id", truth=pl.Series(stars))
        .join(items.with_columns(pl.col("item").cast(pl.Int64)), on="item_id")
        .select("user_id", "item", "truth")
        .sort("user_id", "item")
    )


def held_out_pairs(
    world: AgentWorld, *, people: int | None = None, most: int | None = None
) -> pl.DataFrame:
    """Test ratings of the world's people: ``person``, ``item`` (numbers), ``truth`` (1-5).

    Only of the first ``people`` (count) in the order of a hash, and at most ``most`` items of each,
    drawn by a hash.
    """
    numbers = world.people.select("user_id").with_columns(
        person=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    found = rated_rows(world, "test").join(numbers, on="user_id").sort("person", "item")
    if people is not None:
        found = found.filter(pl.col("person") < people)
    if most is not None and found.height:
        ids = np.asarray(hash_ids(found["user_id"]))
        rank = pl.Series("rank", uniform(0, ids, found["item"].to_numpy()))
        order = pl.col("rank").rank("ordinal").over("person")
        found = found.with_columns(rank).filter(order <= most)
    return found.select("person", "item", "truth")


def pairs_of(context: ExperimentContext, brain: Brain, world: AgentWorld) -> pl.DataFrame:
    """Test pairs that a brain is asked about: all, or a sample where a model is asked."""
    if context.source(brain) == "model":
        return held_out_pairs(world, people=context.agents_of(brain), most=ITEMS_OF_MODEL)
    return held_out_pairs(world, people=context.agents)


def judged(
    context: ExperimentContext,
    brain: Brain,
    pairs: pl.DataFrame,
    *,
    key: dict[str, Any] | None = None,
    **asking: Any,
) -> pl.DataFrame:
    """Judgements of pairs by agents that have watched each item; kept.

    ``pairs`` has ``person`` and ``item``; other columns are carried along. ``key`` has further
    determinants of the judgements beside brain and pairs. ``asking`` are arguments of
    `judge_pairs`; a function among them is replaced by its result. Adds ``watched``, ``rating``,
    ``expected``, ``feeling``, ``status``.
    """
    world = context.world_of(brain)

    def compute() -> pl.DataFrame:
        given = {name: v() if callable(v) else v for name, v in asking.items()}
        people, items = pairs["person"].to_numpy(), pairs["item"].to_numpy()
        asked = judge_pairs(
            given.pop("world", world), brain, people, items, seed=context.seed,
            **{"experienced": True, **given},
        )  # fmt: skip
        return pl.concat([pairs, asked.frame.drop("person", "item")], how="horizontal")

    digest = hashlib.sha256(pairs.write_csv().encode()).hexdigest()
    whole = {"brain": context.identity(brain), "pairs": digest, "seed": context.seed, **(key or {})}
    return context.cell("judged", whole, compute)
