"""Experiment ``enhancement``: recommenders retrained on what agents watched, and on controls."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from pipelines.seeding import combine, hash_ids
from sim.agents import AgentWorld, Brain, visit, visit_values
from sim.experiments._context import ExperimentContext
from sim.experiments._feedback import (
    Bools,
    Ints,
    drawn,
    item_table,
    numbers,
    rated,
    retrained,
    shuffled,
)
from sim.experiments._figures import bars, paired, person_figures
from sim.experiments._protocol import Result, Row, TooFew
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
#: Bumped whenever the same key gives other cells.
_VERSION = 3
_FIGURES = {
    "recall": "share of the person's test items in a list of 20, 0-1",
    "ndcg": "NDCG of the person's test items in a list of 20, 0-1",
    "n_exit": "page on which a second visit, to the retrained recommender, ended, from 1",
    "s_sat": "score of the interview after the second visit, 1-10",
    "p_like": "share of the items shown in the second visit that were rated above 3, 0-1",
}


@dataclass(frozen=True)
class EnhancementSettings:
    """Settings of ``enhancement``."""

    #: Names of those that are retrained; ``als`` stands for the papers' MF.
    recommenders: tuple[str, ...] = ("als", "ease")
    #: Length of the offline lists (items).
    k: int = 20
    #: People with a test item that figures need (count).
    min_people: int = 10


class Enhancement:
    """Retraining on simulated feedback: accuracy on held-out items of real users."""

    name = "enhancement"
    question = (
        "Does a recommender get better for the real person when what its agent watched is added "
        "to the training data?"
    )
    anchor = "Agent4Rec, Table 3"
    figures = _FIGURES

    def __init__(self, settings: EnhancementSettings | None = None) -> None:
        self.settings = settings or EnhancementSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Visit, retrain by arm, evaluate on the test split and visit again."""
        rows: list[Row] = []
        comparisons = []
        counts: dict[str, int] = {}
        for brain in context.brains:
            mind = context.brain(brain)
            world = context.world_of(mind)
            people = min(context.agents_of(mind), len(world))
            tested = _tested(world, people)
            if tested < self.settings.min_people:
                raise TooFew(
                    "people with a test item",
                    found=tested,
                    needed=self.settings.min_people,
                    where=f"experiment {self.name}, {context.release.ref}",
                    hint="more --agents, or a release with more matched people",
                )
            for name in self.settings.recommenders:
                key = {
                    "version": _VERSION,
                    **context.identity(mind),
                    "agents": people,
                    "seed": context.seed,
                    "recommender": name,
                    "settings": asdict(self.settings),
                }
                frame = context.cell(
                    self.name,
                    key,
                    lambda w=world, b=mind, n=name, p=people: self._compute(  # type: ignore[misc]
                        w, b, n, p, context.seed
                    ),
                )
                sides = {}
                for arm, text in ARMS.items():
                    part = frame.filter(pl.col("arm") == arm)
                    labels = {"brain": brain, "recommender": name, "added": arm}
                    row = Row(
                        labels,
                        context.source(mind),
                        person_figures(part, list(_FIGURES)),
                        part.height,
                        f"Trained on the training split and {text}.",
                    )
                    rows.append(row)
                    sides[arm] = row, part
                    counts[f"rows added, {row.title}"] = int(part["added"].sum())
                failed = sides["origin"][1]["failed"].sum()
                counts[f"visits failed, {brain}, {name}"] = int(failed)
                for left, right in _COMPARED:
                    for figure in ("recall", "ndcg", "s_sat"):
                        found = paired(sides[left], sides[right], figure, seed=context.seed)
                        comparisons += [] if found is None else [found]
        return Result(rows, comparisons, _NOTES, {"ndcg": _picture(rows)}, counts)

    def _compute(
        self, world: AgentWorld, brain: Brain, name: str, people: int, seed: int
    ) -> pl.DataFrame:
        """Figures by person and arm, means over both halves of the items."""
        origin = retrained(world, name)
        of_half = half_of(world.catalogue.ids)
        frames = [
            self._fold(world, brain, name, origin, of_half == half, people, seed)
            for half in range(2)
        ]
        means = [pl.col(n).cast(pl.Float64).fill_nan(None).mean() for n in _FIGURES]
        sums = [pl.col(n).sum() for n in ("added", "failed")]
        return (
            pl.concat(frames)
            .group_by("persona_id", "arm")
            .agg(*means, *sums)
            .sort("persona_id", "arm")
        )

    def _fold(
        self,
        world: AgentWorld,
        brain: Brain,
        name: str,
        origin: Recommender,
        shown_half: Bools,
        people: int,
        seed: int,
    ) -> pl.DataFrame:
        """Feedback on one half of the items, figures on the other."""
        everybody = np.arange(people)
        personas = world.people["persona"].to_numpy()[everybody]
        first = visit(world, brain, MaskedRecommender(origin, ~shown_half), everybody, seed=seed)
        failed = first["agents"].filter(pl.col("exit_reason") == "failed")["agent"]
        views = first["views"].filter(~pl.col("agent").is_in(failed.implode()))
        free = ~rated(world, ("train",)) & shown_half
        ids = world.people["persona_id"].to_list()
        watched = item_table(world, views.filter(pl.col("watched")))
        arms = feedback_arms(item_table(world, views), watched, free, ids, seed=seed)
        real = rated(world, ("validation", "test")) & shown_half
        real[people:] = False
        arms["rated"] = real
        arms["rated, shuffled"] = shuffled(real, ids, seed=seed) & free
        tested = rated(world, ("test",))[:people] & ~shown_half
        past = numbers(rated(world, ("train", "validation")))[:people]
        frames = []
        for arm, feedback in arms.items():
            fitted = origin if arm == "origin" else retrained(world, name, feedback)
            other = MaskedRecommender(fitted, shown_half)
            lists = other.recommend(personas, self.settings.k, seen=past)
            hits = np.take_along_axis(tested, np.maximum(lists, 0), axis=1) & (lists >= 0)
            second = visit(world, brain, other, everybody, seed=seed)
            values = visit_values(second["agents"], second["views"].lazy())
            offline = pl.DataFrame(
                {
                    "agent": everybody,
                    "persona_id": world.people["persona_id"][:people],
                    "arm": pl.repeat(arm, people, eager=True),
                    "added": feedback[:people].sum(axis=1),
                    "failed": np.isin(everybody, failed.to_numpy()),
                    "recall": recall(hits, tested.sum(axis=1), self.settings.k),
                    "ndcg": ndcg(hits, tested.sum(axis=1), self.settings.k),
                }
            )
            visited = values.select("agent", "n_exit", "s_sat", "p_like")
            frames.append(offline.join(visited, on="agent", how="left", maintain_order="left"))
        return pl.concat(frames).drop("agent")


def half_of(items: list[str]) -> Ints:
    """Half of each item, by a hash of its id."""
    return np.asarray(combine(hash_ids(items), 2) % np.uint64(2), np.int64)


_COMPARED = (
    ("viewed", "origin"),
    ("viewed", "unviewed"),
    ("viewed", "random"),
    ("viewed", "shuffled"),
    ("shuffled", "origin"),
    ("rated", "origin"),
    ("rated, shuffled", "origin"),
)
_NOTES = [
    "Items are halved by a hash. Feedback is on items of one half, lists and second visits are of "
    "the other, and both ways are averaged: all arms rank the same candidates, and none gains by "
    "masking its own additions, which in Agent4Rec's setting are never held-out items.",
    "Gains are read against `shuffled` and `random`: more rows as such, or rows of popular items, "
    "are no knowledge of the person. An interval that holds 0 is a null result; `rated` shows the "
    "gain that real feedback has, and `rated, shuffled` that it vanishes with the person.",
]


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


def _tested(world: AgentWorld, people: int) -> int:
    return int(rated(world, ("test",))[:people].any(axis=1).sum())


def _picture(rows: list[Row]) -> bytes:
    groups = list(dict.fromkeys(f"{r.labels['brain']}, {r.labels['recommender']}" for r in rows))
    series = {arm: [r.figures["ndcg"] for r in rows if r.labels["added"] == arm] for arm in ARMS}
    return bars("NDCG@20 on test by what was added", groups, series, "NDCG (0-1)")
