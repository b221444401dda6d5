"""Experiment ``enhancement``: recommenders retrained on what agents watched, and on controls."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl

from pipelines.seeding import combine, hash_ids
from pipelines.study import Study
from sim.agents import AgentWorld, Brain, visit, visit_values
from sim.experiments._context import ExperimentContext
from sim.experiments._data import (
    Bools,
    Ints,
    drawn,
    item_table,
    list_hits,
    numbers,
    rated,
    retrained,
    shuffled,
)
from sim.experiments._experiment import experiment, page
from sim.metrics import ndcg, recall
from sim.recommenders import MaskedRecommender, Recommender

#: Rows added to the training split by arm.
ARMS = {
    "origin": "nothing",
    "viewed": "what the agent watched",
    "unviewed": "at most as many items that it was shown and did not watch",
    "random": "as many items drawn at random",
    "shuffled": "what another agent watched",
    "rated": "validation and test items of the person itself: real feedback",
    "rated, shuffled": "validation and test items of another person",
}
_COMPARED = (
    ("viewed", "origin"),
    ("viewed", "unviewed"),
    ("viewed", "random"),
    ("viewed", "shuffled"),
    ("shuffled", "origin"),
    ("rated", "origin"),
    ("rated, shuffled", "origin"),
)


@experiment(
    question="Does a recommender get better for the real person when what its agent watched is "
    "added to the training data?",
    paper="Agent4Rec, Table 3",
    conditions=("brain", "recommender", "added"),
    version="3",
    **page("enhancement"),
)
def enhancement(
    study: Study,
    context: ExperimentContext,
    *,
    recommenders: tuple[str, ...] = ("als", "ease"),  # retrained; ``als`` is the papers' MF
    k: int = 20,  # length of the offline lists (items)
    min_people: int = 10,  # with a test item
) -> None:
    """Visit, retrain by arm, evaluate on the test split and visit again."""
    for brain, mind, source in context.players():
        world = context.world_of(mind)
        people = min(context.agents_of(mind), len(world))
        study.require(
            "people with a test item", int(rated(world, "test")[:people].any(axis=1).sum()),
            min_people, "more --agents, or a release with more matched people",
        )  # fmt: skip
        for name in recommenders:
            frame = context.cell(
                study,
                {**context.identity(mind), "agents": people, "recommender": name},
                partial(_retrained_arms, world, mind, name, people, k, context.seed),
            )
            rows = {}
            for arm, text in ARMS.items():
                part = frame.filter(pl.col("arm") == arm)
                note = f"Trained on the training split and {text}."
                rows[arm] = study.add((brain, name, arm), source, part, note=note)
                study.counts[f"rows added, {rows[arm].title}"] = int(part["added"].sum())
            failed = frame.filter(pl.col("arm") == "origin")["failed"].sum()
            study.counts[f"visits failed, {brain}, {name}"] = int(failed)
            for left, right in _COMPARED:
                study.compare(rows[left], rows[right], "recall", "ndcg", "s_sat")


def _retrained_arms(
    world: AgentWorld, brain: Brain, name: str, people: int, k: int, seed: int
) -> pl.DataFrame:
    """Figures by person and arm, means over both halves of the items."""
    origin = retrained(world, name)
    of_half = half_of(world.catalogue.ids)
    folds = pl.concat(
        one_fold(world, brain, name, origin, of_half == half, people, k, seed) for half in range(2)
    )
    means = pl.col("recall", "ndcg", "n_exit", "s_sat", "p_like").cast(pl.Float64).fill_nan(None)
    sums = pl.col("added", "failed").sum()
    return folds.group_by("persona_id", "arm").agg(means.mean(), sums).sort("persona_id", "arm")


def one_fold(
    world: AgentWorld,
    brain: Brain,
    name: str,
    origin: Recommender,
    shown_half: Bools,
    people: int,
    k: int,
    seed: int,
) -> pl.DataFrame:
    """Feedback on one half of the items, figures on the other."""
    everybody = np.arange(people)
    personas = world.people["persona"].to_numpy()[everybody]
    first = visit(world, brain, MaskedRecommender(origin, ~shown_half), everybody, seed=seed)
    failed = first["agents"].filter(pl.col("exit_reason") == "failed")["agent"]
    views = first["views"].filter(~pl.col("agent").is_in(failed.implode()))
    free = ~rated(world, "train") & shown_half
    ids = world.people["persona_id"].to_list()
    watched = item_table(world, views.filter(pl.col("watched")))
    arms = feedback_arms(item_table(world, views), watched, free, ids, seed=seed)
    real = rated(world, "validation", "test") & shown_half
    real[people:] = False
    arms["rated"] = real
    arms["rated, shuffled"] = shuffled(real, ids, seed=seed) & free
    tested = rated(world, "test")[:people] & ~shown_half
    past = numbers(rated(world, "train", "validation"))[:people]
    frames = []
    for arm, feedback in arms.items():
        fitted = origin if arm == "origin" else retrained(world, name, feedback)
        other = MaskedRecommender(fitted, shown_half)
        lists = other.recommend(personas, k, seen=past)
        hits = list_hits(tested, lists)
        second = visit(world, brain, other, everybody, seed=seed)
        values = visit_values(second["agents"], second["views"].lazy())
        offline = pl.DataFrame(
            {
                "agent": everybody,
                "persona_id": ids[:people],
                "added": feedback[:people].sum(axis=1),
                "failed": np.isin(everybody, failed.to_numpy()),
                "recall": recall(hits, tested.sum(axis=1), k),
                "ndcg": ndcg(hits, tested.sum(axis=1), k),
            }
        )
        visited = values.select("agent", "n_exit", "s_sat", "p_like")
        both = offline.join(visited, on="agent", how="left", maintain_order="left")
        frames.append(both.with_columns(arm=pl.lit(arm)))
    return pl.concat(frames).drop("agent")


def half_of(items: list[str]) -> Ints:
    """Half of each item, by a hash of its id."""
    return np.asarray(combine(hash_ids(items), 2) % np.uint64(2), np.int64)


def feedback_arms(
    shown: Bools, watched: Bools, free: Bools, ids: list[str], *, seed: int
) -> dict[str, Bools]:
    """Items added to the training rows of each person, by arm of `ARMS`.

    ``shown`` and ``watched`` mark items of the visits, ``free`` those that may be drawn, or taken
    over from another agent, all of shape (people, items); ``ids`` are people's.
    """
    counts = watched.sum(axis=1)
    return {
        "origin": np.zeros_like(watched),
        "viewed": watched,
        "unviewed": drawn(shown & ~watched, counts, seed=seed),
        "random": drawn(free & ~shown, counts, seed=seed + 1),
        "shuffled": shuffled(watched, ids, seed=seed) & free,
    }
