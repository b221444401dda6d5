"""Experiment ``offline``: recommenders ranked by test items and by agents' likes."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.study import (
    RESAMPLES,
    Figure,
    Study,
    interval,
    mean_figure,
    user_weights,
)
from sim.agents import Brain
from sim.environment import known_items
from sim.experiments._context import ExperimentContext, installed
from sim.experiments._data import (
    Bools,
    Floats,
    Ints,
    held_out_pairs,
    judged,
    list_hits,
    pair_table,
)
from sim.experiments._experiment import experiment, page
from sim.metrics import ndcg

#: Recommenders beside those of the context, as far as their libraries are installed.
_SYSTEMS = (
    "random", "popular", "mean-rating", "item-knn", "ease", "als", "bpr", "multvae", "lightgcn",
)  # fmt: skip
_TEST = "test items"
_EXCHANGED = ", exchanged between people"
_LEVELS = "by the few items that people rated, only the order counts"


@experiment(
    question="Do the likes of agents rank recommender systems in the order in which the held-out "
    "items of the same people rank them?",
    paper="SimUSER, Table 6",
    conditions=("recommender", "relevance"),
    **page("offline"),
)
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
    # People state no likes for `content` to read.
    ours = dict.fromkeys((*installed(_SYSTEMS), *context.recommenders))
    systems = systems or tuple(name for name in ours if name != "content")
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
    # By title: source, whether it is of a sample, a note, and the relevant items.
    relevant: dict[str, tuple[str, bool, str, Bools]] = {}
    held_out = pair_table(truth["person"], truth["item"], shape)
    relevant[_TEST] = "people", False, "Held-out interactions of people.", held_out
    for name, brain, source in context.players():
        title, sampled = f"likes of {name}", source == "model"
        judgements = _judgements(context, brain, lists)
        liked = judgements.filter(pl.col("watched") & (pl.col("rating") > liked_above))
        likes = pair_table(liked["person"], liked["item"], shape)
        relevant[title] = source, sampled, brain.note, likes
        study.counts[f"judgements, {title}"] = judgements.height
        study.counts[f"failed, {title}"] = int((judgements["status"] != "ok").sum())
        if source != "baseline":
            note = "Control: the likes of somebody else."
            other = likes_exchanged(likes, seed=context.seed)
            relevant[title + _EXCHANGED] = "baseline", sampled, note, other
    values = {title: _values(lists, table, k) for title, (*_, table) in relevant.items()}
    numbers = {title: int(table.any(axis=1).sum()) for title, (*_, table) in relevant.items()}
    enough = {title: number >= min_people for title, number in numbers.items()}
    ids = world.people["persona_id"][: len(people)]
    for title, (source, sampled, _, _) in relevant.items():
        if not enough[title]:
            if not sampled:
                study.require("people with a relevant item", numbers[title], min_people,
                              "more --agents", of=title)  # fmt: skip
            continue
        study.counts[f"people, {title}"] = numbers[title]
        for name, (gain, f) in zip(systems, values[title].swapaxes(0, 1), strict=True):
            # The control's likes are another person's: they are paired with nobody's.
            paired = pl.DataFrame({"persona_id": ids, "ndcg": gain})
            study.add(
                (name, title), source, None if _EXCHANGED in title else paired,
                {"ndcg": mean_figure(gain), "f1": mean_figure(f)},
                n=numbers[title], measure=_LEVELS if title == _TEST else "",
            )  # fmt: skip
    study.against("ndcg", relevance=_TEST)
    overall = f"{len(systems)} systems"
    for title in sorted(list(relevant)[1:], key=enough.__getitem__, reverse=True):
        source, _, note, _ = relevant[title]
        if enough[title]:
            taus = agreement(values[_TEST], values[title])
            pair = dict(zip(("tau_ndcg", "tau_f1"), taus, strict=True))
            note = f"n is of systems. {note}"
            study.add((overall, title), source, figures=pair, n=len(systems), note=note)
            continue
        # The sample of a model is small by choice: the other rows stand.
        needed = (
            f"{numbers[title]:,} people with a relevant item, at least {min_people:,} are needed"
        )
        none = dict.fromkeys(study.figures)
        study.add((overall, title), source, figures=none, n=0, note=needed)


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
    count = len(next(iter(lists.values())))
    if context.source(brain) == "model":
        count = min(count, context.agents_of(brain))
    pool = np.concatenate([listed[:count] for listed in lists.values()], axis=1)
    person = np.repeat(np.arange(count), pool.shape[1])
    pairs = pl.DataFrame({"person": person, "item": pool.ravel()})
    pairs = pairs.filter(pl.col("item") >= 0).unique().sort("person", "item")
    return judged(context, brain, pairs, key={"pool": "offline"}, experienced=False)


def _values(lists: dict[str, Ints], relevant: Bools, k: int) -> Floats:
    """NDCG@k and F1@k, of shape (2, systems, people); NaN without a relevant item."""
    number = relevant.sum(axis=1)
    hits = [list_hits(relevant, listed) for listed in lists.values()]
    return np.stack(
        [
            [ndcg(hit, number, k) for hit in hits],
            [f1(hit, number, listed) for hit, listed in zip(hits, lists.values(), strict=True)],
        ]
    )


def f1(hits: Bools, relevant: Ints, lists: Ints) -> Floats:
    """F1 of each person's list; NaN for a person without a relevant item.

    ``hits`` marks the relevant items of ``lists`` (item numbers, -1 where a list ends), both of
    shape (people, k); ``relevant`` counts each person's relevant items.

    >>> f1(np.array([[True, False, True, False]]), np.array([6]), np.array([[1, 2, 3, 4]]))
    array([0.4])
    """
    length = (lists >= 0).sum(axis=1)
    value = 2.0 * hits.sum(axis=1) / np.maximum(length + relevant, 1)
    return np.asarray(np.where(relevant > 0, value, np.nan))


def taus(left: Floats, right: Floats, weights: Floats | None = None) -> Floats:
    """Kendall's tau-a of two lists of values in each draw; a tie counts as neither order.

    ``left`` and ``right`` are of shape (draws, values), ``weights`` as well: a pair counts by the
    product of its weights. NaN where no pair of different places has any.

    >>> taus(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[1.0, 3.0, 2.0, 4.0]])).round(4)
    array([0.6667])
    """
    sides = [np.sign(v[:, :, None] - v[:, None, :]) for v in (left, right)]
    w = np.ones(left.shape) if weights is None else weights
    both = np.triu(w[:, :, None] * w[:, None, :], 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((sides[0] * sides[1] * both).sum(axis=(1, 2)) / both.sum(axis=(1, 2)))


def agreement(left: Floats, right: Floats) -> tuple[Figure, ...]:
    """Kendall's tau between the systems' means, for each figure.

    Values are of shape (figures, systems, people), NaN for people who count on neither side.
    Intervals draw people, the same on both sides, and systems, with replacement.
    """
    systems, people = left.shape[1:]
    draws = user_weights(people, RESAMPLES, 0)
    weights = user_weights(systems, RESAMPLES, 1)
    once = np.ones((1, people))
    return tuple(
        interval(
            float(taus(_means(a, once), _means(b, once))[0]),
            taus(_means(a, draws), _means(b, draws), weights),
        )
        for a, b in zip(left, right, strict=True)
    )


def likes_exchanged(likes: Bools, *, seed: int) -> Bools:
    """The likes with those of another person in each person's place."""
    liking = np.flatnonzero(likes.any(axis=1))
    ring = np.random.default_rng(seed).permutation(liking)
    out = likes.copy()
    out[ring] = likes[np.roll(ring, 1)]
    return out


def _means(values: Floats, weights: Floats) -> Floats:
    """Means over people of each draw, of shape (draws, systems); NaN is left out."""
    counted = (~np.isnan(values)).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights @ np.nan_to_num(values).T) / (weights @ counted.T))
