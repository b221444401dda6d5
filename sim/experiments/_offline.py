"""Experiment ``offline``: recommenders ranked by test items and by agents' likes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from sim.agents import AgentWorld, Brain
from sim.environment import known_items
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import Floats, finish_picture, mean_figure, paired
from sim.experiments._held_out import held_out_pairs, interval, judged
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.metrics import RESAMPLES, Figure, ndcg, user_weights

Ints = npt.NDArray[np.int64]
#: Meanings of the figures by name.
_FIGURES = {
    "ndcg": "NDCG@k of the lists, 0-1",
    "f1": "harmonic mean of precision@k and recall@k, 0-1",
    "tau_ndcg": "Kendall's tau between the systems' order in NDCG@k by test items and by likes, "
    "-1 to 1; interval over systems and people",
    "tau_f1": "the same for F1@k, -1 to 1",
}
#: Recommenders beside those of the context, as far as their libraries are installed.
_SYSTEMS = {
    "random": None,
    "popular": None,
    "mean-rating": None,
    "item-knn": None,
    "ease": None,
    "als": "implicit",
    "bpr": "implicit",
    "multvae": "cornac",
    "lightgcn": "torch_geometric",
}
_TEST = "test items"
_EXCHANGED = ", exchanged between people"


@dataclass(frozen=True)
class OfflineSettings:
    """Settings of ``offline``."""

    #: Length of the lists (items).
    k: int = 10
    #: Names of recommenders; none: those of the context and all of ours that are installed.
    systems: tuple[str, ...] = ()
    #: Systems that a rank correlation needs (count): of three, one order in six is the same.
    min_systems: int = 8
    #: People with a relevant item that figures need (count).
    min_people: int = 10
    #: A watched item with a rating above this is liked.
    liked_above: float = 3.0


class Offline:
    """Rank agreement of recommenders by simulated likes and by held-out items."""

    name = "offline"
    question = (
        "Do the likes of agents rank recommender systems in the order in which the held-out items "
        "of the same people rank them?"
    )
    anchor = "SimUSER, Table 6"
    figures = _FIGURES

    def __init__(self, settings: OfflineSettings | None = None) -> None:
        self.settings = settings or OfflineSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Judge the lists of every system by test items and by the likes of each brain."""
        chosen = self.settings
        systems = chosen.systems or _installed(context.recommenders)
        if len(systems) < chosen.min_systems:
            raise TooFew(
                "recommender systems",
                found=len(systems),
                needed=chosen.min_systems,
                where=f"experiment {self.name}",
                hint="few systems have the same order by chance: name more, or install their "
                "libraries (docs/recommenders.md)",
            )
        world = context.world()
        people = np.arange(min(len(world), context.agents))
        lists = {name: self._lists(context, world, name, people) for name in systems}
        truth = held_out_pairs(world, people=len(people))
        relevant = {_TEST: _matrix(truth["person"], truth["item"], world, len(people))}
        sources, notes_of = {_TEST: "people"}, {_TEST: "Held-out interactions of people."}
        counts: dict[str, int] = {}
        asked: set[str] = set()
        for name in context.brains:
            mind = context.brain(name)
            likes, failed, judgements = self._likes(context, mind, lists)
            title = f"likes of {name}"
            relevant[title], sources[title] = likes, context.source(mind)
            if context.source(mind) == "model":
                asked.add(title)
            notes_of[title] = mind.note
            counts |= {f"judgements, {title}": judgements, f"failed, {title}": failed}
            if context.source(mind) != "baseline":
                other = title + _EXCHANGED
                relevant[other] = likes_exchanged(likes, seed=context.seed)
                sources[other] = "baseline"
                notes_of[other] = "Control: the likes of somebody else."
        values: dict[str, Floats] = {}
        short: list[Row] = []
        for title, liked in relevant.items():
            try:
                values[title] = self._values(lists, liked, title)
            except TooFew as few:
                # The sample of a model is small by choice: the other rows stand.
                if title.removesuffix(_EXCHANGED) not in asked:
                    raise
                labels = {"recommender": f"{len(systems)} systems", "relevance": title}
                short.append(Row(labels, sources[title], dict.fromkeys(_FIGURES), 0, few.what))
        rows, frames = self._rows(world, systems, values, sources)
        for title, found in values.items():
            counts[f"people, {title}"] = int(_known(found[0, 0]).sum())
        overall = f"{len(systems)} systems"
        for title, found in values.items():
            if title != _TEST:
                taus = agreement(values[_TEST], found)
                figures: dict[str, Figure | float | None] = dict(
                    zip(("tau_ndcg", "tau_f1"), taus, strict=True)
                )
                labels = {"recommender": overall, "relevance": title}
                note = f"n is of systems. {notes_of[title]}"
                rows.append(Row(labels, sources[title], figures, len(systems), note))
        rows += short
        comparisons = self._comparisons(context, frames)
        notes = [
            f"Lists of {chosen.k} items without those of training and validation. Likes are asked "
            "about every item in anybody's list for a person (pooled, as in TREC), so that no "
            "system is judged by items that another one chose alone; what no system lists counts "
            "as not liked, which test items do not share.",
            "The intervals of tau draw systems and people with replacement. An order that the "
            "likes of other people give as well is popularity, not taste.",
            "SimUSER compares three systems (MF, MultVAE, LightGCN): any two orders of three are "
            "equal with probability 1/6.",
        ]
        picture = _picture(values, systems)
        return Result(rows, comparisons, notes, {"ranking": picture}, counts)

    def _lists(
        self, context: ExperimentContext, world: AgentWorld, name: str, people: Ints
    ) -> Ints:
        """Lists of k items for people, of shape (people, k); kept."""
        k = min(self.settings.k, len(world.catalogue))

        def compute() -> pl.DataFrame:
            personas = world.people["persona"].to_numpy()[people]
            seen = known_items(world.release, ("train", "validation"))[personas]
            found = context.recommender(name).recommend(personas, k, seen=seen)
            return pl.DataFrame(found, schema=[f"place{n}" for n in range(k)])

        key = {"lists": name, "k": k, "people": len(people)}
        return context.cell(self.name, key, compute).to_numpy().astype(np.int64)

    def _likes(
        self, context: ExperimentContext, brain: Brain, lists: dict[str, Ints]
    ) -> tuple[npt.NDArray[np.bool_], int, int]:
        """Liked items of people, of shape (people, items), failed judgements, judgements."""
        world = context.world_of(brain)
        people = len(next(iter(lists.values())))
        asked = people
        if context.source(brain) == "model":
            asked = min(people, context.agents_of(brain))
        pool = np.concatenate([found[:asked] for found in lists.values()], axis=1)
        person = np.repeat(np.arange(asked), pool.shape[1])
        pairs = pl.DataFrame({"person": person, "item": pool.ravel()})
        pairs = pairs.filter(pl.col("item") >= 0).unique().sort("person", "item")
        frame = judged(context, brain, pairs, key={"pool": "offline"}, experienced=False)
        liked = frame.filter(pl.col("watched") & (pl.col("rating") > self.settings.liked_above))
        failed = int((frame["status"] != "ok").sum())
        return _matrix(liked["person"], liked["item"], world, people), failed, frame.height

    def _values(
        self, lists: dict[str, Ints], relevant: npt.NDArray[np.bool_], title: str
    ) -> Floats:
        """NDCG@k and F1@k, of shape (2, systems, people); NaN without a relevant item."""
        number = relevant.sum(axis=1)
        people = int((number > 0).sum())
        if people < self.settings.min_people:
            raise TooFew(
                "people with a relevant item",
                found=people,
                needed=self.settings.min_people,
                where=f"experiment {self.name}, {title}",
                hint="more --agents",
            )
        out = []
        for found in lists.values():
            hits = np.take_along_axis(relevant, np.maximum(found, 0), axis=1) & (found >= 0)
            out.append((ndcg(hits, number, self.settings.k), f1(hits, number, found)))
        return np.stack(out, axis=1)

    def _rows(
        self,
        world: AgentWorld,
        systems: Sequence[str],
        values: dict[str, Floats],
        sources: dict[str, str],
    ) -> tuple[list[Row], dict[tuple[str, str], tuple[Row, pl.DataFrame]]]:
        rows, frames = [], {}
        ids = world.people["persona_id"]
        for title, found in values.items():
            for n, name in enumerate(systems):
                own = found[:, n]
                figures: dict[str, Figure | float | None] = {
                    "ndcg": mean_figure(own[0]),
                    "f1": mean_figure(own[1]),
                }
                number = int((~np.isnan(own[0])).sum())
                row = Row(
                    {"recommender": name, "relevance": title}, sources[title], figures, number
                )
                rows.append(row)
                frame = pl.DataFrame({"persona_id": ids[: own.shape[1]], "ndcg": own[0]})
                frames[title, name] = row, frame.with_columns(pl.col("ndcg").fill_nan(None))
        return rows, frames

    def _comparisons(
        self, context: ExperimentContext, frames: dict[tuple[str, str], tuple[Row, pl.DataFrame]]
    ) -> list[Comparison]:
        """NDCG@k by likes of a brain less that by test items, per system."""
        out = []
        for (title, name), side in frames.items():
            if title != _TEST and "exchanged" not in title:
                found = paired(side, frames[_TEST, name], "ndcg", seed=context.seed)
                out += [] if found is None else [found]
        return out


def f1(hits: npt.NDArray[np.bool_], relevant: Ints, lists: Ints) -> Floats:
    """F1 of each person's list; NaN for a person without a relevant item.

    ``hits`` marks the relevant items of ``lists`` (item numbers, -1 where a list ends), both of
    shape (people, k); ``relevant`` counts each person's relevant items.

    >>> f1(np.array([[True, False, True, False]]), np.array([6]), np.array([[1, 2, 3, 4]]))
    array([0.4])
    """
    length = (lists >= 0).sum(axis=1)
    found = 2.0 * hits.sum(axis=1) / np.maximum(length + relevant, 1)
    return np.asarray(np.where(relevant > 0, found, np.nan))


def tau(left: Floats, right: Floats, weights: Floats | None = None) -> float:
    """Kendall's tau-a of two lists of values; a tie counts as neither order.

    A pair counts by the product of its weights; NaN where no pair of different places has any.

    >>> tau(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])).__round__(4)
    0.6667
    """
    order = np.sign(left[:, None] - left) * np.sign(right[:, None] - right)
    w = np.ones(len(left)) if weights is None else weights
    both = np.triu(w[:, None] * w, 1)
    return float((order * both).sum() / both.sum()) if both.sum() else float("nan")


def agreement(left: Floats, right: Floats) -> tuple[Figure, ...]:
    """Kendall's tau between the systems' means, for each figure.

    Values are of shape (figures, systems, people), NaN for people who count on neither side.
    Intervals draw people, the same on both sides, and systems, with replacement.
    """
    systems, people = left.shape[1:]
    draws = user_weights(people, RESAMPLES, 0)
    chosen = user_weights(systems, RESAMPLES, 1)
    out = []
    for a, b in zip(left, right, strict=True):
        means = [_means(side, draws) for side in (a, b)]
        order = np.sign(means[0][:, :, None] - means[0][:, None, :])
        order *= np.sign(means[1][:, :, None] - means[1][:, None, :])
        both = np.triu(chosen[:, :, None] * chosen[:, None, :], 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = (order * both).sum(axis=(1, 2)) / both.sum(axis=(1, 2))
        once = np.ones((1, people))
        value = tau(_means(a, once)[0], _means(b, once)[0])
        out.append(interval(value, drawn))
    return tuple(out)


def likes_exchanged(likes: npt.NDArray[np.bool_], *, seed: int) -> npt.NDArray[np.bool_]:
    """The likes with those of another person in each person's place."""
    liking = np.flatnonzero(likes.any(axis=1))
    ring = np.random.default_rng(seed).permutation(liking)
    out = likes.copy()
    out[ring] = likes[np.roll(ring, 1)]
    return out


def _means(values: Floats, weights: Floats) -> Floats:
    """Means over people of each draw, of shape (draws, systems); NaN is left out."""
    known = _known(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights @ np.nan_to_num(values).T) / (weights @ known.T))


def _known(values: Floats) -> Floats:
    return (~np.isnan(values)).astype(np.float64)


def _matrix(
    person: pl.Series, item: pl.Series, world: AgentWorld, people: int
) -> npt.NDArray[np.bool_]:
    out = np.zeros((people, len(world.catalogue)), np.bool_)
    out[person.to_numpy(), item.to_numpy()] = True
    return out


def _installed(names: Sequence[str]) -> tuple[str, ...]:
    """The names, then all of ours whose libraries are installed."""
    ours = [n for n, needs in _SYSTEMS.items() if not needs or importlib.util.find_spec(needs)]
    # People state no likes for `content` to read.
    return tuple(n for n in dict.fromkeys([*ours, *names]) if n != "content")


def _picture(values: dict[str, Floats], systems: Sequence[str]) -> bytes:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(8, 4.5))
    axes = picture.subplots()
    order = np.argsort(-np.nanmean(values[_TEST][0], axis=1))
    for title, found in values.items():
        axes.plot(np.nanmean(found[0], axis=1)[order], marker="o", label=title)
    axes.set_xticks(range(len(systems)), [systems[n] for n in order], rotation=20)
    axes.set_ylabel("NDCG@k (0-1)")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return finish_picture(picture, axes, "Recommenders by test items and by likes")
