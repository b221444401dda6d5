"""Experiment ``hallucination``: ratings of items whose genre the model can't name by the title."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from pipelines.prompts import experiment_prompt_digest, genre_messages
from pipelines.seeding import hash_ids, uniform
from pipelines.study import (
    RESAMPLES,
    Figure,
    Study,
    interval,
    mean_figure,
    user_weights,
)
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Bools, Floats, asking_brain, chosen, judged, pairs_of
from sim.experiments._experiment import experiment, page

#: Genres that are none.
_NONE = ("unknown", "(no genres listed)")
_COMMONEST, _RANDOM = "commonest genre", "random genre"
#: Figures of errors.
_ERRORS = ("rmse_known", "rmse_unknown", "gap")
#: Judged test pairs of a brain with or without the graph, and the source of its rows.
Frames = Mapping[str, tuple[str, pl.DataFrame]]


@experiment(
    question="Are ratings of items that a model doesn't know worse than of those that it knows, "
    "and does the graph make up for it?",
    paper="SimUSER, Fig. 8",
    conditions=("named by", "rated by"),
    **page("hallucination"),
)
def hallucination(
    study: Study,
    context: ExperimentContext,
    *,
    min_people: int = 10,  # with a test rating
    min_items: int = 10,  # on either side of a division that errors need
) -> None:
    """Divide test items by who names a genre of theirs, and compare errors."""
    world = context.world()
    names = [name for name in world.genre_names if name not in _NONE]
    of_item = world.genres[:, [world.genre_names.index(name) for name in names]] > 0
    frames = _frames(study, context, min_people)
    model = asking_brain(context)
    base = "statistical, graph"
    items = np.unique(frames[base][1]["item"].to_numpy())
    items = items[of_item[items].any(axis=1)]
    ids = np.asarray(hash_ids(world.catalogue.frame["item_id"].gather(items)))
    commonest = np.full(len(items), int(of_item.sum(axis=0).argmax()))
    namers: dict[str, tuple[str, Any, Any]] = {
        _RANDOM: ("baseline", items, (uniform(0, ids, 5) * len(names)).astype(np.int64)),
        _COMMONEST: ("baseline", items, commonest),
    }
    if model is not None:
        pairs = next((f for source, f in frames.values() if source == "model"), frames[base][1])
        sample = np.intersect1d(np.unique(pairs["item"].to_numpy()), items)
        titles = world.titles
        questions = [
            genre_messages(world.release.domain, titles[n], names) for n in sample.tolist()
        ]
        shares = chosen(context, model, questions, names, prompt=experiment_prompt_digest())
        usable = ~np.isnan(shares).any(axis=1)
        study.counts["items without an answer"] = int((~usable).sum())
        namers[model.name] = ("model", sample[usable], shares[usable].argmax(axis=1))
    divisions = {}
    for namer, (source, named, genre) in namers.items():
        right = of_item[named, genre]
        divisions[namer] = pl.DataFrame({"item": named, "known": right.astype(np.int64)})
        if not len(named):
            continue
        values = right.astype(np.float64), chance_level(of_item[named])
        figures = {n: mean_figure(v) for n, v in zip(("named", "chance"), values, strict=True)}
        row = study.add(
            (namer, "(naming)"), source, figures=figures, n=len(right),
            note="Over items; n is of items.",
        )  # fmt: skip
        if source == "model":
            study.compare_pooled(row.title, study.rows[0].title, "named", named, values)
        study.counts[f"items named by {namer}"] = len(right)
        _add_errors(study, namer, divisions[namer], frames, min_items)
    for namer, division in divisions.items():
        _compare_graph(study, namer, division, frames, min_items)
    if model is None:
        study.notes.append(
            "No brain with a language model was asked (it needs `--brain model`): which items a "
            "model knows was not measured, and only the divisions that know nothing stand here."
        )


def _frames(study: Study, context: ExperimentContext, min_people: int) -> Frames:
    """Source and judged test pairs by brain and graph; a baseline has no graph."""
    out: dict[str, tuple[str, pl.DataFrame]] = {}
    for name, brain, source in context.players():
        variants = {name: brain}
        if source != "baseline":
            bare = context.world(graph=False, pages=context.world_of(brain).pages)
            variants = {f"{name}, graph": brain, f"{name}, no graph": context.brain(name, bare)}
        for title, mind in variants.items():
            pairs = pairs_of(context, mind)
            if source != "model":
                study.require(
                    "people with a test rating", pairs["person"].n_unique(), min_people,
                    "match more users, or ask for more --agents", of=name,
                )  # fmt: skip
            judgements = judged(context, mind, pairs, key={"history": "zero"})
            out[title] = source, judgements.drop_nulls("rating")
    return out


def _add_errors(
    study: Study, namer: str, division: pl.DataFrame, frames: Frames, min_items: int
) -> None:
    """Rows of errors on known and unknown items, by brain."""
    for title, (source, frame) in frames.items():
        marked = frame.join(division, on="item")
        sides = [marked.filter(pl.col("known") == side)["item"].n_unique() for side in (1, 0)]
        if min(sides) < min_items:
            note = (
                f"{sides[0]} known and {sides[1]} unknown items were rated, at least {min_items} "
                "of each are needed."
            )
            study.counts[f"too few items, {namer}, {title}"] = min(sides)
            none = dict.fromkeys(_ERRORS)
            study.add((namer, title), source, figures=none, n=0, note=note)
            continue
        people = marked["person"].n_unique()
        study.add((namer, title), source, figures=gap_figures(marked), n=people)


def _compare_graph(
    study: Study, namer: str, division: pl.DataFrame, frames: Frames, min_items: int
) -> None:
    """Error on unknown items with the graph less that without, by brain."""
    for title, (_, frame) in frames.items():
        brain, _, graph = title.rpartition(", ")
        if graph != "graph":
            continue
        other = frames[f"{brain}, no graph"][1].select("person", "item", "rating")
        marked = frame.join(division.filter(pl.col("known") == 0), on="item")
        both = marked.join(other, on=["person", "item"], suffix="_right")
        if both["item"].n_unique() < min_items or both["person"].n_unique() < 2:
            continue
        left, right = (
            ((both[c] - both["truth"]) ** 2).to_numpy() for c in ("rating", "rating_right")
        )
        study.compare_pooled(
            f"{namer}, {title}", f"{namer}, {brain}, no graph", "rmse_unknown",
            both["person"].to_numpy(), (left, right), np.sqrt,
        )  # fmt: skip


def chance_level(genres: Bools) -> Floats:
    """Probability that a genre drawn from all is one of an item's, of shape (items,).

    >>> chance_level(np.array([[True, True, False, False], [True, False, False, False]]))
    array([0.5 , 0.25])
    """
    return np.asarray(genres.mean(axis=1), np.float64)


def gap_figures(frame: pl.DataFrame) -> dict[str, Figure]:
    """RMSE on known and unknown items and their difference.

    ``frame`` has ``person``, ``item``, ``truth``, ``rating`` and ``known`` (0 or 1). Intervals draw
    people and items, both with replacement: the division is of items.
    """
    is_known = frame["known"].to_numpy().astype(np.float64)
    error = ((frame["rating"] - frame["truth"]) ** 2).to_numpy()
    sums = np.stack([error * is_known, is_known, error * (1 - is_known), 1 - is_known])
    drawn = [sums.sum(axis=1)[:, None]]
    places = [np.unique(frame[n].to_numpy(), return_inverse=True)[1] for n in ("person", "item")]
    draws = [user_weights(int(p.max()) + 1, RESAMPLES, n) for n, p in enumerate(places)]
    # In parts: the weights are of shape (draws, rows).
    for start in range(0, RESAMPLES, 100):
        part = [w[start : start + 100][:, p] for w, p in zip(draws, places, strict=True)]
        drawn.append(sums @ (part[0] * part[1]).T)
    s = np.concatenate(drawn, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside, outside = np.sqrt(s[0] / s[1]), np.sqrt(s[2] / s[3])
    values = (inside, outside, outside - inside)
    return {n: interval(float(v[0]), v[1:]) for n, v in zip(_ERRORS, values, strict=True)}
