"""Experiment ``hallucination``: ratings of items whose genre the model can't name by the title."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.prompts import experiment_prompt_digest, genre_messages
from pipelines.seeding import hash_ids, uniform
from sim.agents import AgentWorld, Cards
from sim.experiments._choices import asking_brain, chosen
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import Floats, bars, mean_figure
from sim.experiments._held_out import interval, judged, pairs_of, pooled
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.metrics import RESAMPLES, Figure, paired_permutation, user_weights

#: Meanings of the figures by name.
_FIGURES = {
    "named": "share of the items one of whose genres is named by the title alone, 0-1",
    "chance": "the same of a genre drawn from all with equal probability, 0-1",
    "rmse_known": "root mean squared error of ratings of items named rightly, 0-4",
    "rmse_unknown": "the same of items named wrongly, 0-4",
    "gap": "rmse_unknown less rmse_known",
}
#: Genres that are none.
_NONE = ("unknown", "(no genres listed)")
_COMMONEST, _RANDOM = "commonest genre", "random genre"
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class HallucinationSettings:
    """Settings of ``hallucination``."""

    #: People with a test rating that figures need (count).
    min_people: int = 10
    #: Items on either side of a division that errors need (count).
    min_items: int = 10


class Hallucination:
    """Error of ratings of items that the model recognises by their title, and of others."""

    name = "hallucination"
    question = (
        "Are ratings of items that a model doesn't know worse than of those that it knows, and "
        "does the graph make up for it?"
    )
    anchor = "SimUSER, Fig. 8"
    figures = _FIGURES

    def __init__(self, settings: HallucinationSettings | None = None) -> None:
        self.settings = settings or HallucinationSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Divide test items by who names a genre of theirs, and compare errors."""
        world = context.world()
        names = [name for name in world.genre_names if name not in _NONE]
        frames = self._frames(context)
        model = asking_brain(context)
        rows: list[Row] = []
        comparisons: list[Comparison] = []
        counts: dict[str, int] = {}
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
            found = np.full((len(world.catalogue), len(names)), np.nan)
            found[own] = self._named(context, world, names, own)
            counts["items without an answer"] = int(np.isnan(found[own]).any(axis=1).sum())
            namers[model.name] = ("model", found[items])
        for namer, (source, shares) in namers.items():
            usable = ~np.isnan(shares).any(axis=1)
            if not usable.any():
                continue
            asked_items = items[usable]
            genres = _genres(world, names)[asked_items]
            right = genres[np.arange(len(asked_items)), shares[usable].argmax(axis=1)]
            rows.append(self._naming(namer, source, right, genres))
            if source == "model":
                comparisons += _against_chance(rows[-1], rows[0], right, genres, context.seed)
            counts[f"items named by {namer}"] = len(asked_items)
            known = dict(zip(asked_items.tolist(), right.tolist(), strict=True))
            rows += self._errors(namer, known, frames, counts)
        for namer in namers:
            comparisons += self._graph(namer, namers, items, world, names, frames, context.seed)
        notes = [
            "An item is known where one of its genres is the answer to its title alone, as "
            "SimUSER tells known items from unknown ones. An answer is right by chance as often "
            "as `chance` says, so that some known items are not. Intervals of errors draw people "
            "and items.",
            "Items with more genres, or with the commonest one, are other items: their ratings "
            "may be easier or harder to meet for a brain that reads no title at all. A gap is the "
            "model's only as far as it exceeds those of the divisions by rule.",
        ]
        if model is None:
            notes.append(
                "No brain with a language model was asked (it needs `--brain model`): which items "
                "a model knows was not measured, and only the divisions that know nothing stand "
                "here."
            )
        picture = _picture(rows)
        return Result(rows, comparisons, notes, {"errors": picture}, counts)

    def _frames(self, context: ExperimentContext) -> dict[str, tuple[str, pl.DataFrame]]:
        """Source and judged test pairs by brain and graph; a baseline has no graph."""
        out: dict[str, tuple[str, pl.DataFrame]] = {}
        for name in context.brains:
            mind = context.brain(name)
            source = context.source(mind)
            for graph in (True, False):
                if not graph:
                    pages = context.sample["model_pages"] if source == "model" else None
                    mind = context.brain(name, context.world(graph=False, pages=pages))
                pairs = pairs_of(context, mind, context.world_of(mind))
                people = pairs["person"].n_unique()
                if source != "model" and people < self.settings.min_people:
                    raise TooFew(
                        "people with a test rating",
                        found=people,
                        needed=self.settings.min_people,
                        where=f"experiment {self.name}, {name}",
                        hint="match more users, or ask for more --agents",
                    )
                frame = judged(context, mind, pairs, key={"history": "zero"})
                title = f"{name}, {'graph' if graph else 'no graph'}"
                if source == "baseline":
                    out[name] = source, frame.drop_nulls("rating")
                    break
                out[title] = source, frame.drop_nulls("rating")
        return out

    def _named(
        self, context: ExperimentContext, world: AgentWorld, names: Sequence[str], items: Any
    ) -> Floats:
        """Probabilities of genres for items, of shape (items, genres); kept."""
        brain = asking_brain(context)
        assert brain is not None
        titles = Cards(world).titles

        def compute() -> pl.DataFrame:
            questions = [
                genre_messages(world.release.domain, titles[item], names) for item in items.tolist()
            ]
            return pl.DataFrame(chosen(brain, questions, names), schema=list(names))

        key = {
            "brain": context.identity(brain),
            "items": items.tolist(),
            "genres": list(names),
            "prompt": experiment_prompt_digest(),
        }
        return context.cell(self.name, key, compute).to_numpy()

    def _naming(self, namer: str, source: str, right: Bools, genres: Bools) -> Row:
        figures: dict[str, Figure | float | None] = {
            "named": mean_figure(right.astype(np.float64)),
            "chance": mean_figure(chance_level(genres)),
        }
        labels = {"named by": namer, "rated by": "(naming)"}
        return Row(labels, source, figures, len(right), "Over items; n is of items.")

    def _errors(
        self,
        namer: str,
        known: dict[int, bool],
        frames: dict[str, tuple[str, pl.DataFrame]],
        counts: dict[str, int],
    ) -> list[Row]:
        rows = []
        for title, (source, frame) in frames.items():
            marked = _marked(frame, known)
            sides = [marked.filter(pl.col("known") == side)["item"].n_unique() for side in (1, 0)]
            labels = {"named by": namer, "rated by": title}
            if min(sides) < self.settings.min_items:
                note = (
                    f"{sides[0]} known and {sides[1]} unknown items were rated, at least "
                    f"{self.settings.min_items} of each are needed."
                )
                counts[f"too few items, {namer}, {title}"] = min(sides)
                none = dict.fromkeys(("rmse_known", "rmse_unknown", "gap"))
                rows.append(Row(labels, source, none, 0, note))
                continue
            figures: dict[str, Figure | float | None] = dict(gap_figures(marked))
            rows.append(Row(labels, source, figures, marked["person"].n_unique()))
        return rows

    def _graph(
        self,
        namer: str,
        namers: dict[str, tuple[str, Floats]],
        items: Any,
        world: AgentWorld,
        names: Sequence[str],
        frames: dict[str, tuple[str, pl.DataFrame]],
        seed: int,
    ) -> list[Comparison]:
        """Error on unknown items with the graph less that without, by brain."""
        shares = namers[namer][1]
        usable = ~np.isnan(shares).any(axis=1)
        genres = _genres(world, names)[items[usable]]
        right = genres[np.arange(len(genres)), shares[usable].argmax(axis=1)]
        known = dict(zip(items[usable].tolist(), right.tolist(), strict=True))
        out = []
        for title, (_, frame) in frames.items():
            brain, _, graph = title.rpartition(", ")
            if graph != "graph":
                continue
            other = frames[f"{brain}, no graph"][1].select("person", "item", "rating")
            marked = _marked(frame, known).filter(pl.col("known") == 0)
            both = marked.join(other, on=["person", "item"], suffix="_right")
            if both["item"].n_unique() < self.settings.min_items or both["person"].n_unique() < 2:
                continue
            owner = both["person"].to_numpy()
            a = ((both["rating"] - both["truth"]) ** 2).to_numpy()
            b = ((both["rating_right"] - both["truth"]) ** 2).to_numpy()
            difference = pooled(
                owner, [a, b, np.ones(len(a))],
                lambda s: np.sqrt(s[0] / s[2]) - np.sqrt(s[1] / s[2]),
            )  # fmt: skip
            _, place = np.unique(owner, return_inverse=True)
            p = paired_permutation(np.bincount(place, a), np.bincount(place, b), seed=seed)
            left, right_title = (f"{namer}, {brain}, {side}" for side in ("graph", "no graph"))
            number = len(np.unique(owner))
            out.append(Comparison(left, right_title, "rmse_unknown", difference, p, number))
        return out


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


def _against_chance(
    left: Row, right: Row, named: Bools, genres: Bools, seed: int
) -> list[Comparison]:
    """Share named rightly less the chance level of the same items."""
    sides = named.astype(np.float64), chance_level(genres)
    difference = mean_figure(sides[0] - sides[1])
    assert difference is not None
    p = paired_permutation(*sides, seed=seed)
    return [Comparison(left.title, right.title, "named", difference, p, len(named))]


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


def _picture(rows: list[Row]) -> bytes:
    chosen_rows = [r for r in rows if "gap" in r.figures]
    names = [row.title.replace(", ", ",\n") for row in chosen_rows]
    series = {
        "known": [row.figures["rmse_known"] for row in chosen_rows],
        "unknown": [row.figures["rmse_unknown"] for row in chosen_rows],
    }
    return bars("Error of ratings of known and unknown items", names, series, "RMSE (1-5)")
