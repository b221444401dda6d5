"""Feedback of visits as tables of people and items, and controls of the same size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.seeding import combine, hash_ids, uniform
from sim.environment import histories, split_rows
from sim.recommenders import Recommender, open_recommender, with_feedback

if TYPE_CHECKING:
    from sim.agents import AgentWorld

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def item_table(world: AgentWorld, views: pl.DataFrame) -> Bools:
    """True for each item of the views, by person, of shape (people, items)."""
    numbers = pl.DataFrame({"item_id": world.catalogue.ids}).with_row_index("item")
    found = views.select("agent", "item_id").join(numbers, on="item_id", maintain_order="left")
    out = np.zeros((len(world), len(world.catalogue)), np.bool_)
    out[found["agent"].to_numpy() % len(world), found["item"].to_numpy()] = True
    return out


def rated(world: AgentWorld, splits: tuple[str, ...]) -> Bools:
    """True where a person has rated an item in one of the splits, of shape (people, items)."""
    users = world.people["user_id"].to_list()
    items = histories(split_rows(world.release, splits), users, world.catalogue.ids)
    out = np.zeros((len(users), len(world.catalogue)), np.bool_)
    row, place = np.nonzero(items >= 0)
    out[row, items[row, place]] = True
    return out


def numbers(table: Bools) -> Ints:
    """Item numbers of each row, ascending, padded with -1.

    >>> numbers(np.array([[True, False, True], [False, False, False]])).tolist()
    [[0, 2], [-1, -1]]
    """
    counts = table.sum(axis=1)
    out = np.full((len(table), int(counts.max(initial=0))), -1, np.int64)
    out[np.arange(out.shape[1]) < counts[:, None]] = np.nonzero(table)[1]
    return out


def drawn(candidates: Bools, counts: npt.ArrayLike, *, seed: int) -> Bools:
    """Candidates of each row drawn at random, at most as many as counted.

    ``candidates`` are of shape (n, items), ``counts`` of shape (n,); draws belong to (seed, row,
    item).
    """
    rows, items = candidates.shape
    order = uniform(seed, np.arange(rows)[:, None], np.arange(items)[None, :])
    ranked = np.argsort(np.where(candidates, order, 2.0), axis=1, kind="stable")
    place = np.empty_like(ranked)
    np.put_along_axis(place, ranked, np.tile(np.arange(items), (rows, 1)), axis=1)
    return np.asarray(candidates & (place < np.asarray(counts, np.int64)[:, None]))


def shuffled(feedback: Bools, ids: list[str], *, seed: int) -> Bools:
    """Everybody's feedback given to another person: rows moved by one along a random circle.

    ``feedback`` is of shape (people, items), of at least two people with these ``ids``.
    """
    order = np.argsort(combine(seed, hash_ids(ids)), kind="stable")
    out = np.zeros_like(feedback)
    out[order] = feedback[np.roll(order, 1)]
    return out


def retrained(
    world: AgentWorld, name: str, feedback: Bools | None = None, **options: Any
) -> Recommender:
    """A recommender fitted on the training split and feedback, of shape (people, items)."""
    recommender = open_recommender(name, **options)
    if feedback is None:
        return recommender.fit(world.release)
    person, item = np.nonzero(feedback)
    users = [world.graph_users[n] for n in person.tolist()]
    return recommender.fit(world.release, interactions=with_feedback(world.release, users, item))
