"""Experiment ``hallucination``: ratings of items whose genre the model can't name by the title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.prompts import experiment_prompt_digest, genre_messages
from pipelines.seeding import hash_ids, uniform
from pipelines.study import (
    RESAMPLES,
    Claim,
    Comparison,
    Figure,
    Plot,
    Study,
    interval,
    mean_figure,
    paired_permutation,
    pooled,
    summed,
    user_weights,
)
from sim.agents import AgentWorld, Brain
from sim.experiments._choices import asking_brain, chosen
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment
from sim.experiments._held_out import judged, pairs_of

#: Genres that are none.
_NONE = ("unknown", "(no genres listed)")
_COMMONEST, _RANDOM = "commonest genre", "random genre"
#: Figures of errors.
_ERRORS = ("rmse_known", "rmse_unknown", "gap")
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
#: Judged test pairs of a brain with or without the graph, and the source of its rows.
Frames = Mapping[str, tuple[str, pl.DataFrame]]


@experiment(
    question="Are ratings of items that a model doesn't know worse than of those that it knows, "
    "and does the graph make up for it?",
    paper="SimUSER, Fig. 8",
    conditions=("named by", "rated by"),
    figures={
        "named": "share of the items one of whose genres is named by the title alone, 0-1",
        "chance": "the same of a genre drawn from all with equal probability, 0-1",
        "rmse_known": "root mean squared error of ratings of items named rightly, 0-4",
        "rmse_unknown": "the same of items named wrongly, 0-4",
        "gap": "rmse_unknown less rmse_known",
    },
    claim=Claim(
        "Agents rate items that their model does not know with a larger error, and the graph "
        "makes up for much of it.",
        figure="gap",
        row={},
        control={"named by": _COMMONEST},
        above="Supported: the error on unknown items grows by more than under a division that "
        "knows nothing.",
        below="Contradicted: the error on unknown items grows by less than under a division that "
        "knows nothing.",
        equal="Not found: no gap beyond that of a division that knows nothing. A model's knowledge "
        "is measured only with a brain that has one.",
    ),
    plots={
        "errors": Plot(
            "Error of ratings of known and unknown items", "RMSE (1-5)", _ERRORS[:2],
            ("rated by",), panels=("named by",),
        )
    },
)  # fmt: skip
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
    frames = _frames(study, context, min_people)
    model = asking_brain(context)
    base = "statistical, graph"
    items = np.unique(frames[base][1]["item"].to_numpy())
    items = items[_genres(world, names)[items].any(axis=1)]
    namers: dict[str, tuple[str, Floats]] = {
        _RANDOM: ("baseline", _drawn(world, names, items)),
        _COMMONEST: ("baseline", _commonest(world, names, items)),
    }
    if model is not None:
        asked = [f for f in frames.values() if f[0] == "model"]
        pairs = asked[0][1] if asked else frames[base][1]
        own = np.intersect1d(np.unique(pairs["item"].to_numpy()), items)
        shares = np.full((len(world.catalogue), len(names)), np.nan)
        shares[own] = _named(study, context, model, names, own)
        study.counts["items without an answer"] = int(np.isnan(shares[own]).any(axis=1).sum())
        namers[model.name] = ("model", shares[items])
    divisions: dict[str, dict[int, bool]] = {}
    for namer, (source, shares) in namers.items():
        usable = ~np.isnan(shares).any(axis=1)
        genres = _genres(world, names)[items[usable]]
        right = genres[np.arange(len(genres)), shares[usable].argmax(axis=1)]
        divisions[namer] = dict(zip(items[usable].tolist(), right.tolist(), strict=True))
        if not usable.any():
            continue
        values = pl.DataFrame(
            {"item": items[usable], "named": right.astype(np.float64),
             "chance": chance_level(genres)}
        )  # fmt: skip
        figures = {name: mean_figure(values[name].to_numpy()) for name in ("named", "chance")}
        row = study.add(
            (namer, "(naming)"), source, figures=figures, n=len(right),
            note="Over items; n is of items.",
        )  # fmt: skip
        if source == "model":
            sides = values["named"].to_numpy(), values["chance"].to_numpy()
            difference = mean_figure(sides[0] - sides[1])
            assert difference is not None
            p = paired_permutation(*sides, seed=study.seed)
            first = study.rows[0].title
            study.comparisons.append(
                Comparison(row.title, first, "named", difference, p, len(right))
            )
        study.counts[f"items named by {namer}"] = len(right)
        _add_errors(study, namer, divisions[namer], frames, min_items)
    for namer, known in divisions.items():
        _compare_graph(study, namer, known, frames, min_items)
    study.notes += [
        "An item is known where one of its genres is the answer to its title alone, as SimUSER "
        "tells known items from unknown ones. An answer is right by chance as often as `chance` "
        "says, so that some known items are not. Intervals of errors draw people and items.",
        "Items with more genres, or with the commonest one, are other items: their ratings may be "
        "easier or harder to meet for a brain that reads no title at all. A gap is the model's "
        "only as far as it exceeds those of the divisions by rule.",
    ]
    if model is None:
        study.notes.append(
            "No brain with a language model was asked (it needs `--brain model`): which items a "
            "model knows was not measured, and only the divisions that know nothing stand here."
        )


def _frames(study: Study, context: ExperimentContext, min_people: int) -> Frames:
    """Source and judged test pairs by brain and graph; a baseline has no graph."""
    out: dict[str, tuple[str, pl.DataFrame]] = {}
    for name, brain, source in context.players():
        for graph in (True, False):
            mind = brain
            if not graph:
                pages = context.sample["model_pages"] if source == "model" else None
                mind = context.brain(name, context.world(graph=False, pages=pages))
            pairs = pairs_of(context, mind, context.world_of(mind))
            if source != "model":
                study.require(
                    "people with a test rating", pairs["person"].n_unique(), min_people,
                    "match more users, or ask for more --agents", of=name,
                )  # fmt: skip
            frame = judged(context, mind, pairs, key={"history": "zero"}).drop_nulls("rating")
            if source == "baseline":
                out[name] = source, frame
                break
            out[f"{name}, {'graph' if graph else 'no graph'}"] = source, frame
    return out


def _named(
    study: Study, context: ExperimentContext, brain: Brain, names: Sequence[str], items: Any
) -> Floats:
    """Probabilities of genres for items, of shape (items, genres); kept."""
    world = context.world()

    def compute() -> pl.DataFrame:
        questions = [
            genre_messages(world.release.domain, world.titles[item], names)
            for item in items.tolist()
        ]
        return pl.DataFrame(chosen(brain, questions, names), schema=list(names))

    key = {
        "brain": context.identity(brain),
        "items": items.tolist(),
        "genres": list(names),
        "prompt": experiment_prompt_digest(),
    }
    return context.cell(study, key, compute).to_numpy()


def _add_errors(
    study: Study, namer: str, known: dict[int, bool], frames: Frames, min_items: int
) -> None:
    """Rows of errors on known and unknown items, by brain."""
    for title, (source, frame) in frames.items():
        marked = _marked(frame, known)
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
    study: Study, namer: str, known: dict[int, bool], frames: Frames, min_items: int
) -> None:
    """Error on unknown items with the graph less that without, by brain."""
    for title, (_, frame) in frames.items():
        brain, _, graph = title.rpartition(", ")
        if graph != "graph":
            continue
        other = frames[f"{brain}, no graph"][1].select("person", "item", "rating")
        marked = _marked(frame, known).filter(pl.col("known") == 0)
        both = marked.join(other, on=["person", "item"], suffix="_right")
        people = both["person"].n_unique()
        if both["item"].n_unique() < min_items or people < 2:
            continue
        owner = both["person"].to_numpy()
        sides = [((both[c] - both["truth"]) ** 2).to_numpy() for c in ("rating", "rating_right")]
        difference = pooled(
            owner, [*sides, np.ones(len(owner))],
            lambda s: np.sqrt(s[0] / s[2]) - np.sqrt(s[1] / s[2]),
        )  # fmt: skip
        p = paired_permutation(summed(owner, sides[0]), summed(owner, sides[1]), study.seed)
        left, right = (f"{namer}, {brain}, {side}" for side in ("graph", "no graph"))
        study.comparisons.append(Comparison(left, right, "rmse_unknown", difference, p, people))


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
    known = frame["known"].to_numpy().astype(np.float64)
    error = ((frame["rating"] - frame["truth"]) ** 2).to_numpy()
    sums = np.stack([error * known, known, error * (1 - known), 1 - known])
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
    values = {"rmse_known": inside, "rmse_unknown": outside, "gap": outside - inside}
    return {name: interval(float(v[0]), v[1:]) for name, v in values.items()}


def _marked(frame: pl.DataFrame, known: dict[int, bool]) -> pl.DataFrame:
    """The pairs of named items, with ``known`` (0 or 1)."""
    marks = pl.DataFrame(
        {"item": list(known), "known": [int(v) for v in known.values()]},
        schema={"item": pl.Int64, "known": pl.Int64},
    )
    return frame.join(marks, on="item")


def _genres(world: AgentWorld, names: Sequence[str]) -> Bools:
    places = [world.genre_names.index(name) for name in names]
    return np.asarray(world.genres[:, places] > 0)


def _drawn(world: AgentWorld, names: Sequence[str], items: Any) -> Floats:
    """One genre of all, drawn by a hash of the item, with probability 1."""
    ids = np.asarray(hash_ids(world.catalogue.frame["item_id"].gather(items)))
    place = (uniform(0, ids, 5) * len(names)).astype(np.int64)
    return np.eye(len(names))[place]


def _commonest(world: AgentWorld, names: Sequence[str], items: Any) -> Floats:
    """The commonest genre of the catalogue, for every item."""
    place = int(_genres(world, names).sum(axis=0).argmax())
    return np.asarray(np.eye(len(names))[np.full(len(items), place)])
