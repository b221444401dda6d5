"""Experiment ``believability``: classify held-out items and items without an interaction."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from pipelines.errors import ConfigError
from pipelines.seeding import hash_ids, uniform
from pipelines.study import Study
from sim.agents import AgentWorld, Brain, classify_items
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Bools, Floats, Ints, rated
from sim.experiments._experiment import experiment, page

#: Kinds of negatives: uniform over unseen items, and of about the popularity of a positive.
NEGATIVES = ("uniform", "popularity-matched")
#: Rules of acceptance: probability from 1/2 on; the most probable ones, as many as are positive.
_RULES = ("p from 0.5 on", "best k")
#: Rules by classifier where it has not both: baselines but `random` give no probabilities.
_RULES_OF = {"always": _RULES[:1], "popularity": _RULES[1:], "ease": _RULES[1:]}
#: People whose items are drawn at once (count): bounds the memory of (people, items).
_AT_ONCE = 1_024


@experiment(
    question="Of 20 items, which has the person interacted with? Held-out interactions among "
    "uniform and among equally popular unseen items.",
    paper="Agent4Rec, Table 1; SimUSER, Table 1",
    conditions=("classifier", "negatives", "ratio", "rule"),
    **page("believability", auc=lambda row: row.labels["rule"] == "best k"),
)
def believability(
    study: Study,
    context: ExperimentContext,
    *,
    items: int = 20,  # that an agent classifies (count)
    positives: tuple[int, ...] = (10, 7, 5, 2),  # held-out interactions among them (counts)
    nearest: int = 30,  # unseen items nearest in rank that a matched negative is drawn from
    min_people: int = 10,  # with enough held-out interactions
) -> None:
    """Classify the same items by every brain and baseline."""
    if not positives or not all(0 < k < items for k in positives):
        raise ConfigError(
            f"{positives} positives of {items} items",
            where="experiment believability",
            hint="each from 1 to one less than the items",
        )
    world = context.world()
    number = min(context.agents, len(world))
    study.counts["people"] = number
    for negatives in NEGATIVES:
        for k in positives:
            tasks = draw_tasks(
                world, number, k, negatives, items=items, nearest=nearest, seed=context.seed
            )
            ratio = ratio_of(k, items)
            left_out = number - len(tasks.people)
            study.counts[f"left out at {ratio}, fewer than {k} test interactions"] = left_out
            study.require(
                f"people with {k} test interactions", len(tasks.people), min_people,
                "a release with longer histories",
            )  # fmt: skip
            for name, source, frame in _classifiers(study, context, tasks, (k, negatives)):
                for rule in _RULES_OF.get(name, _RULES):
                    outcomes = frame.filter(pl.col("rule") == rule)
                    study.add((name, negatives, ratio, rule), source, outcomes)
    for row in study.rows:
        if row.source != "baseline" and row.labels["rule"] == _RULES[1]:
            for other in ("random", "popularity", "ease"):
                study.against("auc", "accuracy", rows=[row], classifier=other)


def _classifiers(
    study: Study, context: ExperimentContext, tasks: Tasks, kind: tuple[int, str]
) -> list[tuple[str, str, pl.DataFrame]]:
    """Classifiers, sources of their rows, and outcomes per person and rule."""
    world, (k, negatives) = context.world(), kind
    key = {"k": k, "negatives": negatives, "agents": context.agents}
    popular = world.item_histograms.sum(axis=1)[tasks.items]
    listed = context.cell(study, {**key, "by": "ease"}, partial(_listed, context, world, tasks))
    out = [
        ("popularity", "baseline", outcome_frame(world, tasks, popular)),
        ("ease", "baseline", listed),
    ]
    for name in ("always", *context.brains):
        brain = context.brain(name)
        source = context.source(brain)
        sample = tasks.first(context.agents_of(brain)) if source == "model" else tasks
        frame = context.cell(
            study,
            {**key, "by": context.identity(brain), "asked": len(sample.people)},
            partial(_classified, context, brain, sample),
        )
        failed = len(sample.people) - frame["persona_id"].n_unique()
        if failed:
            study.counts[f"failed, {name}, {negatives}, {k}"] = failed
        out.append((name, source, frame))
    return out


class Tasks(NamedTuple):
    """Items to classify."""

    #: Rows of ``world.people``, of shape (n,).
    people: Ints
    #: Item numbers, of shape (n, items), in an order drawn by person and item.
    items: Ints
    #: Whether each item is a held-out interaction, of the same shape.
    positive: Bools

    def first(self, number: int) -> Tasks:
        """The tasks of the first people."""
        return Tasks(self.people[:number], self.items[:number], self.positive[:number])


def ratio_of(positives: int, items: int) -> str:
    """Ratio of positives to negatives as in the papers.

    >>> [ratio_of(k, 20) for k in (10, 7, 5, 2)]
    ['1:1', '1:2', '1:3', '1:9']
    """
    return f"1:{round((items - positives) / positives)}"


def draw_tasks(
    world: AgentWorld,
    people: int,
    positives: int,
    negatives: str,
    *,
    items: int = 20,
    nearest: int = 30,
    seed: int = 0,
) -> Tasks:
    """Draw the items of the first people who have enough test interactions.

    Draws belong to (seed, person, item), so that a person's items do not depend on who else is
    drawn for. ``people`` are those of the cast, ``positives`` and ``items`` those of a task, and
    ``nearest`` the unseen items that a matched negative is drawn from (counts); ``negatives`` is
    one of `NEGATIVES`.
    """
    unseen = ~rated(world, "train", "validation", "test")[:people]
    held_out = rated(world, "test")[:people]
    count = items - positives
    enough = (held_out.sum(axis=1) >= positives) & (unseen.sum(axis=1) >= count)
    chosen = np.flatnonzero(enough)
    rank = np.argsort(-world.item_histograms.sum(axis=1), kind="stable").argsort()
    ids, item_ids = hash_ids(world.people["persona_id"])[chosen], hash_ids(world.catalogue.ids)
    drawn = np.empty((len(chosen), items), np.int64)
    for start in range(0, len(chosen), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        draws = [uniform(seed, ids[part][:, None], item_ids, kind) for kind in range(2)]
        drawn[part, :positives] = _lowest(draws[0], held_out[chosen[part]], positives)
        free = unseen[chosen[part]]
        drawn[part, positives:] = (
            _lowest(draws[1], free, count)
            if negatives == NEGATIVES[0]
            else _matched(rank, drawn[part, :positives], free, draws[1], count, nearest)
        )
    # Mixed: a brain that reads a page may prefer its first or its last items.
    order = np.argsort(uniform(seed, ids[:, None], item_ids[drawn], 2), axis=1)
    return Tasks(chosen, np.take_along_axis(drawn, order, axis=1), order < positives)


def _lowest(draws: Floats, allowed: Bools, count: int) -> Ints:
    """Places of the lowest draws of each row among the allowed ones, of shape (n, count)."""
    return np.argsort(np.where(allowed, draws, np.inf), axis=1, kind="stable")[:, :count]


def _matched(
    rank: Ints, positives: Ints, free: Bools, draws: Floats, count: int, nearest: int
) -> Ints:
    """Negatives of about the popularity of the positives, which take turns, of shape (n, count).

    Each is drawn from the free items nearest in rank to its positive that are not drawn yet.
    """
    n, k = positives.shape
    out = np.empty((n, count), np.int64)
    left, row = free.copy(), np.arange(n)
    for number in range(count):
        away = rank - rank[positives[:, number % k]][:, None]
        # Distances are distinct: of two items equally far, the more popular one is nearer.
        far = np.where(left, 2 * np.abs(away) + (away > 0), np.iinfo(np.int64).max)
        width = min(nearest, far.shape[1])
        near = np.argpartition(far, width - 1, axis=1)[:, :width]
        keys = np.take_along_axis(np.where(left, draws, np.inf), near, axis=1)
        out[:, number] = near[row, keys.argmin(axis=1)]
        left[row, out[:, number]] = False
    return out


def _classified(context: ExperimentContext, brain: Brain, tasks: Tasks) -> pl.DataFrame:
    """Outcomes of a brain."""
    world = context.world_of(brain)
    replies = classify_items(world, brain, tasks.people, tasks.items, seed=context.seed)
    return outcome_frame(world, tasks, replies.probabilities)


def _listed(context: ExperimentContext, world: AgentWorld, tasks: Tasks) -> pl.DataFrame:
    """Outcomes of the places in EASE's list of all items, the first place highest."""
    size, shown = len(world.catalogue), context.recommender("ease")
    scores = np.empty(tasks.items.shape)
    for start in range(0, len(tasks.people), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        people = tasks.people[part]
        lists = shown.recommend(world.people["persona"].to_numpy()[people], size,
                                seen=world.known[people])  # fmt: skip
        of_item = np.full((len(lists), size), -float(size))
        row, place = np.nonzero(lists >= 0)
        of_item[row, lists[row, place]] = -place.astype(np.float64)
        scores[part] = np.take_along_axis(of_item, tasks.items[part], axis=1)
    return outcome_frame(world, tasks, scores)


def outcome_frame(world: AgentWorld, tasks: Tasks, scores: Floats) -> pl.DataFrame:
    """Figures per person and rule; people without a score for every item are left out.

    ``scores`` are probabilities, or any scores for the rule of the best ones, of shape (n, items).
    """
    scored = ~np.isnan(scores).any(axis=1)
    scores, positive = scores[scored], tasks.positive[scored]
    ids = world.people["persona_id"].gather(tasks.people[scored])
    accepted = scores >= 0.5, best(scores, positive.sum(axis=1))
    return pl.concat(
        pl.DataFrame(
            {"persona_id": ids, "auc": auc_of(scores, positive), **outcomes(yes, positive)}
        ).with_columns(rule=pl.lit(rule))
        for rule, yes in zip(_RULES, accepted, strict=True)
    )


def outcomes(accepted: Bools, positive: Bools) -> dict[str, Floats]:
    """Accuracy, precision, recall and F1 per row; precision is 0 where nothing is accepted."""
    right = (accepted & positive).sum(axis=1)
    yes, real = accepted.sum(axis=1), positive.sum(axis=1)
    return {
        "accuracy": (accepted == positive).mean(axis=1),
        "precision": right / np.maximum(yes, 1),
        "recall": right / real,
        "f1": 2 * right / (yes + real),
    }


def best(scores: Floats, counts: Ints) -> Bools:
    """The highest scores of each row, as many as its count; of equal ones a hashed order decides.

    >>> best(np.array([[0.9, 0.1, 0.5]]), np.array([2])).tolist()
    [[True, False, True]]
    """
    n, m = scores.shape
    ties = uniform(0, np.arange(n)[:, None], np.arange(m))
    place = np.lexsort((ties, -scores), axis=1).argsort(axis=1)
    return np.asarray(place < counts[:, None])


def auc_of(scores: Floats, positive: Bools) -> Floats:
    """Share of pairs of a positive and a negative in the right order per row; a tie is a half.

    >>> auc_of(np.array([[2.0, 1.0, 1.0, 0.0]]), np.array([[True, True, False, False]]))
    array([0.875])
    """
    right = (1 + np.sign(scores[:, :, None] - scores[:, None, :])) / 2
    pairs = positive[:, :, None] & ~positive[:, None, :]
    return np.asarray((right * pairs).sum(axis=(1, 2)) / pairs.sum(axis=(1, 2)))
