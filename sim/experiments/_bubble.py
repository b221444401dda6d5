"""Experiment ``bubble``: genres of recommendations over rounds of retraining."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.seeding import combine, hash_ids
from pipelines.study import Study
from sim.agents import AgentWorld, Brain, visit
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Floats, Ints, drawn, item_table, rated, retrained
from sim.experiments._experiment import experiment, page
from sim.recommenders import MaskedRecommender

#: Rows that the recommender is trained on from round to round.
FEEDBACK = {
    "none": "nothing",
    "watched": "what the agent watched",
    "random items": "as many items of the round's part drawn at random",
}
_SLOPES = ("p_top1_slope", "n_genres_slope")


@experiment(
    question="Do recommendations narrow to fewer genres from round to round as the recommender is "
    "retrained on what agents watched?",
    paper="Agent4Rec, Fig. 8",
    conditions=("brain", "feedback", "round"),
    **page("bubble"),
)
def bubble(
    study: Study,
    context: ExperimentContext,
    *,
    recommender: str = "als",  # that is retrained; ``als`` stands for Agent4Rec's MF
    rounds: int = 4,  # and parts of the items (count)
    min_items: int = 20,  # of a part that a round needs (count)
) -> None:
    """Recommend, visit and retrain, round by round."""
    world = context.world()
    parts, _ = parts_of_rounds(world, rounds)
    smallest = int(np.bincount(parts, minlength=rounds).min())
    study.require(
        f"items in the smallest of {rounds} parts", smallest, min_items, "a release with more items"
    )
    first = context.brain(context.brains[0])
    variants = [("none", first, "baseline", "none")]
    variants += [(*player, f) for player in context.players() for f in list(FEEDBACK)[1:]]
    for name, brain, source, feedback in variants:
        opened = context.world_of(brain)
        number = len(opened) if name == "none" else min(context.agents_of(brain), len(opened))
        # Without feedback nothing but the lists decides the figures.
        key: dict[str, object] = {"shown": [opened.pages, opened.per_page]}
        if name != "none":
            key = {"brain": context.identity(brain)}
        key |= {"feedback": feedback, "agents": number}
        arguments = brain, feedback, number, recommender, rounds, context.seed
        frame = context.cell(study, key, partial(played_rounds, opened, *arguments))
        of_round = frame.partition_by("round", maintain_order=True)
        for place, rows in enumerate(of_round, 1):
            study.add((name, feedback, str(place)), source, rows, names=("p_top1", "n_genres"))
        note = f"Retrained on the training split and {FEEDBACK[feedback]}."
        slope = (name, feedback, "slope")
        row = study.add(slope, source, of_round[0], names=_SLOPES, note=note)
        study.counts[f"rows added, {row.title}"] = int(frame["added"].sum())
    for row in study.rows:
        if row.labels["feedback"] == "watched":
            study.against(*_SLOPES, rows=[row], brain="none", feedback="none")
            study.against(*_SLOPES, rows=[row], feedback="random items")


def played_rounds(
    world: AgentWorld,
    brain: Brain,
    feedback: str,
    people: int,
    recommender: str,
    rounds: int,
    seed: int,
) -> pl.DataFrame:
    """Figures by person and round; slopes stand in every round."""
    of_items, begin = parts_of_rounds(world, rounds)
    everybody = np.arange(people)
    personas = world.people["persona"].to_numpy()
    trained = rated(world, "train")
    gathered = np.zeros_like(trained)
    fitted = retrained(world, recommender)
    mask = np.ones((int(world.release["personas"].rows), trained.shape[1]), np.bool_)
    frames = []
    for number in range(rounds):
        part = (begin[:, None] + number) % rounds == of_items[None, :]
        mask[personas] = ~part
        shown = MaskedRecommender(fitted, mask)
        length = world.pages * world.per_page
        lists = shown.recommend(personas[:people], length, seen=world.known[:people])
        top, genres = genre_figures(lists, world.genres)
        frames.append(
            pl.DataFrame(
                {"persona_id": world.people["persona_id"][:people], "p_top1": top,
                 "n_genres": genres, "added": gathered[:people].sum(axis=1)}
            ).with_columns(round=pl.lit(number + 1))
        )  # fmt: skip
        if feedback == "none" or number + 1 == rounds:
            continue
        views = visit(world, brain, shown, everybody, seed=seed + number)["views"]
        watched = item_table(world, views.filter(pl.col("watched")))
        if feedback == "random items":
            watched = drawn(part & ~trained, watched.sum(axis=1), seed=seed + number)
        gathered |= watched
        fitted = retrained(world, recommender, gathered)
    steep = {
        f"{name}_slope": pl.Series(slopes(np.stack([f[name] for f in frames], axis=1)))
        for name in ("p_top1", "n_genres")
    }
    return pl.concat(frame.with_columns(**steep) for frame in frames)


def genre_figures(lists: npt.ArrayLike, genres: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Share of the commonest genre, and number of genres, of recommended lists, of shape (n,).

    ``lists`` has item numbers, -1 where a list ends, of shape (n, k); ``genres`` is 1 where an item
    has a genre, of shape (items, genres). An item counts one divided by its genres for each of
    them; items without a genre are left out. NaN for a list without a genre.

    >>> share, number = genre_figures([[0, 1, 2, 3]], [[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]])
    >>> float(share[0]), float(number[0])  # A: (1 + 1/2 + 1) / 4
    (0.625, 3.0)
    """
    items, flags = np.asarray(lists, np.int64), np.asarray(genres, np.float64)
    sizes = flags.sum(axis=1)
    parts = flags / np.maximum(sizes, 1.0)[:, None]
    counted = (items >= 0) & (sizes[items] > 0)
    weights = np.where(counted[:, :, None], parts[items], 0.0).sum(axis=1)
    count = np.where(counted.any(axis=1), counted.sum(axis=1), np.nan)
    return weights.max(axis=1, initial=0.0) / count, (weights > 0).sum(axis=1) + 0 * count


def slopes(values: npt.ArrayLike) -> Floats:
    """Least-squares slope over equidistant rounds, per row of shape (n, rounds).

    >>> slopes([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]]).tolist()
    [1.0, 0.0]
    """
    rows = np.asarray(values, np.float64)
    time = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    return np.asarray(rows @ time / (time @ time))


def parts_of_rounds(world: AgentWorld, parts: int) -> tuple[Ints, Ints]:
    """Part of each item, and the part that each person begins with; both by a hash of the id.

    Person p is recommended part (start of p + r) mod `parts` in round r, so that each part is in
    every round equally often and no trend comes from what films a part happens to hold.
    """
    of_items = hash_ids(world.catalogue.ids) % np.uint64(parts)
    of_people = combine(hash_ids(world.people["persona_id"]), 1) % np.uint64(parts)
    return of_items.astype(np.int64), of_people.astype(np.int64)
