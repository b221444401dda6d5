"""Experiment ``offline``: recommenders ranked by test items and by agents' likes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.study import (
    RESAMPLES,
    Claim,
    Figure,
    Plot,
    Study,
    interval,
    mean_figure,
    user_weights,
)
from sim.agents import Brain
from sim.environment import known_items
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment
from sim.experiments._held_out import held_out_pairs, judged
from sim.metrics import ndcg

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
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
_LEVELS = "by the few items that people rated, only the order counts"


@experiment(
    question="Do the likes of agents rank recommender systems in the order in which the held-out "
    "items of the same people rank them?",
    paper="SimUSER, Table 6",
    conditions=("recommender", "relevance"),
    figures={
        "ndcg": "NDCG@k of the lists, 0-1",
        "f1": "harmonic mean of precision@k and recall@k, 0-1",
        "tau_ndcg": "Kendall's tau between the systems' order in NDCG@k by test items and by "
        "likes, -1 to 1; interval over systems and people",
        "tau_f1": "the same for F1@k, -1 to 1",
    },
    claim=Claim(
        "Agents rank recommenders as held-out items do (three systems).",
        figure="tau_ndcg",
        row={},
        control=0.0,
        above="Supported: the two orders agree more than orders drawn at random.",
        below="Contradicted: the two orders are opposed.",
        equal="Not found: the interval of the agreement holds 0, that of orders drawn at random.",
    ),
    plots={
        "ranking": Plot(
            "Recommenders by test items and by likes", "NDCG@k (0-1)", ("ndcg",),
            ("recommender",), ("relevance",), lines=True,
        )
    },
)  # fmt: skip
def offline(
    study: Study,
    context: ExperimentContext,
    *,
    k: int = 10,  # length of the lists (items)
    systems: tuple[str, ...] = (),  # recommenders; none: the context's and ours as far as installed
    min_systems: int = 8,  # that a rank correlation needs: of three, one order in six is the same
    min_people: int = 10,  # with a relevant item
    liked_above: float = 3.0,  # a watched item with a higher rating is liked
) -> None:
    """Judge the lists of every system by test items and by the likes of each brain."""
    systems = systems or _installed(context.recommenders)
    study.require(
        "recommender systems", len(systems), min_systems,
        "few systems have the same order by chance: name more, or install their libraries "
        "(docs/recommenders.md)",
    )  # fmt: skip
    world = context.world()
    people = np.arange(min(len(world), context.agents))
    shape = len(people), len(world.catalogue)
    lists = {name: _lists(context, name, people, min(k, shape[1])) for name in systems}
    truth = held_out_pairs(world, people=len(people))
    relevant = {_TEST: _matrix(truth["person"], truth["item"], shape)}
    sources, notes_of = {_TEST: "people"}, {_TEST: "Held-out interactions of people."}
    for name, brain, source in context.players():
        title, other = f"likes of {name}", f"likes of {name}{_EXCHANGED}"
        judgements = _judgements(context, brain, lists)
        liked = judgements.filter(pl.col("watched") & (pl.col("rating") > liked_above))
        relevant[title] = _matrix(liked["person"], liked["item"], shape)
        sources[title], notes_of[title] = source, brain.note
        study.counts[f"judgements, {title}"] = judgements.height
        study.counts[f"failed, {title}"] = int((judgements["status"] != "ok").sum())
        if source != "baseline":
            relevant[other] = likes_exchanged(relevant[title], seed=context.seed)
            sources[other], notes_of[other] = "baseline", "Control: the likes of somebody else."
    values: dict[str, Floats] = {}
    short: list[str] = []
    for title, table in relevant.items():
        number = int(table.any(axis=1).sum())
        if number >= min_people:
            values[title] = _values(lists, table, k)
            continue
        # The sample of a model is small by choice: the other rows stand.
        if sources[title.removesuffix(_EXCHANGED)] != "model":
            study.require("people with a relevant item", number, min_people, "more --agents",
                          of=title)  # fmt: skip
        short.append(title)
    ids = world.people["persona_id"][: len(people)]
    for title, own in values.items():
        for n, name in enumerate(systems):
            figures = {"ndcg": mean_figure(own[0, n]), "f1": mean_figure(own[1, n])}
            # The control's likes are another person's: they are paired with nobody's.
            paired = (
                None
                if _EXCHANGED in title
                else pl.DataFrame({"persona_id": ids, "ndcg": own[0, n]})
            )
            study.add(
                (name, title), sources[title], paired, figures,
                n=int((~np.isnan(own[0, n])).sum()), measure=_LEVELS if title == _TEST else "",
            )  # fmt: skip
        study.counts[f"people, {title}"] = int(_known(own[0, 0]).sum())
    study.against("ndcg", relevance=_TEST)
    overall = f"{len(systems)} systems"
    for title, own in values.items():
        if title != _TEST:
            taus = agreement(values[_TEST], own)
            note = f"n is of systems. {notes_of[title]}"
            pair = dict(zip(("tau_ndcg", "tau_f1"), taus, strict=True))
            study.add((overall, title), sources[title], figures=pair, n=len(systems), note=note)
    for title in short:
        number = int(relevant[title].any(axis=1).sum())
        note = f"{number:,} people with a relevant item, at least {min_people:,} are needed"
        none = dict.fromkeys(study.figures)
        study.add((overall, title), sources[title], figures=none, n=0, note=note)
    study.notes += [
        f"Lists of {k} items without those of training and validation. Likes are asked about every "
        "item in anybody's list for a person (pooled, as in TREC), so that no system is judged by "
        "items that another one chose alone; what no system lists counts as not liked, which test "
        "items do not share.",
        "The intervals of tau draw systems and people with replacement. An order that the likes of "
        "other people give as well is popularity, not taste.",
        "SimUSER compares three systems (MF, MultVAE, LightGCN): any two orders of three are equal "
        "with probability 1/6.",
    ]


def _lists(context: ExperimentContext, name: str, people: Ints, k: int) -> Ints:
    """Lists of k items for people, of shape (people, k); cached."""
    world = context.world()

    def compute() -> pl.DataFrame:
        personas = world.people["persona"].to_numpy()[people]
        seen = known_items(world.release, ("train", "validation"))[personas]
        listed = context.recommender(name).recommend(personas, k, seen=seen)
        return pl.DataFrame(listed, schema=[f"place{n}" for n in range(k)])

    key = {"lists": name, "k": k, "people": len(people)}
    return context.cell("offline", key, compute).to_numpy().astype(np.int64)


def _judgements(context: ExperimentContext, brain: Brain, lists: dict[str, Ints]) -> pl.DataFrame:
    """Judgements of every item in anybody's list for a person."""
    asked = len(next(iter(lists.values())))
    if context.source(brain) == "model":
        asked = min(asked, context.agents_of(brain))
    pool = np.concatenate([listed[:asked] for listed in lists.values()], axis=1)
    person = np.repeat(np.arange(asked), pool.shape[1])
    pairs = pl.DataFrame({"person": person, "item": pool.ravel()})
    pairs = pairs.filter(pl.col("item") >= 0).unique().sort("person", "item")
    return judged(context, brain, pairs, key={"pool": "offline"}, experienced=False)


def _values(lists: dict[str, Ints], relevant: Bools, k: int) -> Floats:
    """NDCG@k and F1@k, of shape (2, systems, people); NaN without a relevant item."""
    number = relevant.sum(axis=1)
    out = []
    for listed in lists.values():
        hits = np.take_along_axis(relevant, np.maximum(listed, 0), axis=1) & (listed >= 0)
        out.append((ndcg(hits, number, k), f1(hits, number, listed)))
    return np.stack(out, axis=1)


def f1(hits: Bools, relevant: Ints, lists: Ints) -> Floats:
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


def likes_exchanged(likes: Bools, *, seed: int) -> Bools:
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


def _matrix(person: pl.Series, item: pl.Series, shape: tuple[int, int]) -> Bools:
    out = np.zeros(shape, np.bool_)
    out[person.to_numpy(), item.to_numpy()] = True
    return out


def _installed(names: Sequence[str]) -> tuple[str, ...]:
    """The names, then all of ours whose libraries are installed."""
    ours = [n for n, needs in _SYSTEMS.items() if not needs or importlib.util.find_spec(needs)]
    # People state no likes for `content` to read.
    return tuple(n for n in dict.fromkeys([*ours, *names]) if n != "content")
