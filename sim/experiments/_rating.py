"""Experiment ``rating``: ratings that agents give to test items, against those of their people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipelines.study import Figure, Study, pooled_mean
from sim.agents import AgentWorld, Brain, Visit, page_lists, visits_of
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Floats, held_out_pairs, judged, pairs_of, rated_rows
from sim.experiments._experiment import experiment, page

#: Conditions: history, persona, graph (SimUSER, Tables 2 and 7).
_ZERO = "zero", "persona", "graph"
_CONDITIONS = (
    _ZERO,
    ("sim", "persona", "graph"),
    ("zero", "no persona", "graph"),
    ("sim", "no persona", "graph"),
    ("zero", "persona", "no graph"),
    ("sim", "persona", "no graph"),
)
#: Conditions compared: the first with the second.
_PAIRS = (
    (("sim", "persona", "graph"), _ZERO),
    (_ZERO, ("zero", "no persona", "graph")),
    (_ZERO, ("zero", "persona", "no graph")),
    (("sim", "persona", "graph"), ("sim", "persona", "no graph")),
)
#: Errors of a rating: the function of their mean, and what is averaged.
_ERRORS: dict[str, tuple[Any, Any]] = {
    "rmse": (np.sqrt, np.square),
    "mae": (np.asarray, np.abs),
}
_HINT = "a model whose replies can't be used rates nothing: see `failed`"


@experiment(
    question="How far are the ratings that agents give to unseen items from those of the people "
    "whom they stand for, and what do a visit before, the persona and the graph change?",
    paper="SimUSER, Tables 2 and 7",
    conditions=("brain", "history", "persona", "graph"),
    **page("rating", given=lambda row: not row.note.startswith("A rule")),
)
def rating(
    study: Study,
    context: ExperimentContext,
    *,
    min_people: int = 10,  # with a test rating
    recommender: str = "popular",  # visited before, where the history is `sim`
    item_shrinkage: float = 25.0,  # ratings of the mean added to each item's bias (Koren 2010)
    user_shrinkage: float = 10.0,  # and to each user's
) -> None:
    """Ask agents for ratings of test items that the prompt gives as watched."""
    world = context.world()
    truth = held_out_pairs(world, people=context.agents)
    study.require(
        "people with a test rating", truth["person"].n_unique(), min_people,
        "match more users, or ask for more --agents",
    )  # fmt: skip
    frames: dict[str, pl.DataFrame] = {}
    for rule, predicted in _rules(world, truth, (item_shrinkage, user_shrinkage)).items():
        frames[rule] = truth.with_columns(rating=predicted, expected=predicted)
        note = "A rule fitted on the training split; not rounded."
        _add(study, (rule,), "baseline", frames[rule], note, min_people)
    study.counts["test ratings"] = truth.height
    placebos: list[str] = []
    for name in context.brains:
        titles: dict[tuple[str, str, str], str] = {}
        for condition, brain, frame in _judgements(study, context, name, recommender):
            source = context.source(brain)
            labels = (name,) if source == "baseline" else (name, *condition)
            row = _add(study, labels, source, frame, brain.note, min_people)
            study.counts[f"failed, {row}"] = int((frame["status"] != "ok").sum())
            frames[row], titles[condition] = frame, row
        for left, right in _PAIRS:
            if left in titles and right in titles:
                both = _compare(study, frames, titles[left], titles[right])
                equal = (both["rating"] == both["rating_right"]).all()
                if equal and both.height == frames[titles[left]].height:
                    placebos.append(f"{titles[left]} and {titles[right]}")
        for rule in ("item mean", "user and item biases"):
            for column in ("rating", "expected"):
                _compare(study, frames, titles[_ZERO], rule, column)
    if placebos:
        study.notes.append(
            f"Equal ratings, so that the difference is exactly zero: {'; '.join(placebos)}. The "
            "statistical brain rates from the training history alone: neither a visit nor the "
            "graph enters its ratings."
        )


def _judgements(
    study: Study, context: ExperimentContext, name: str, recommender: str
) -> Iterator[tuple[tuple[str, str, str], Brain, pl.DataFrame]]:
    """Condition, brain and judgements; a baseline has one condition only."""
    first = context.brain(name)
    for condition in _CONDITIONS:
        history, persona, graph = condition[0], condition[1] == "persona", condition[2] == "graph"
        brain = first
        if condition != _ZERO:
            pages = context.world_of(first).pages
            world = context.world(traits=persona, graph=graph, pages=pages)
            options = {"persona": persona} if context.source(first) == "model" else {}
            brain = context.brain(name, world, **options)
        key: dict[str, Any] = {"history": history}
        asking: dict[str, Any] = {}
        if history == "sim":
            key |= study.settings
            asking["visits"] = partial(_visits, context, brain, recommender)
        yield condition, brain, judged(context, brain, pairs_of(context, brain), key=key, **asking)
        if context.source(brain) == "baseline":
            return


def _visits(context: ExperimentContext, brain: Brain, recommender: str) -> list[Visit]:
    """Finished visits of the agents whose ratings are asked."""
    world = context.world_of(brain)
    people = np.arange(min(len(world), context.agents_of(brain)))
    lists = page_lists(world, context.recommender(recommender), people)
    return visits_of(world, brain, lists, agents=people, people=people, seed=context.seed)


def _add(
    study: Study,
    labels: Sequence[str],
    source: str,
    frame: pl.DataFrame,
    note: str,
    min_people: int,
) -> str:
    """Add a row and return its title."""
    people = frame.drop_nulls("rating")["person"].n_unique()
    least = min(min_people, frame["person"].n_unique())
    figures: dict[str, Figure | None] = dict.fromkeys(study.figures)
    if people >= least:
        figures = {**error_figures(frame, "rating"), **error_figures(frame, "expected")}
    row = study.add(
        labels, source, figures=figures, n=people, note=note,
        least=("people with a usable rating", least, _HINT),
    )  # fmt: skip
    return row.title


def _rules(
    world: AgentWorld, truth: pl.DataFrame, shrinkage: tuple[float, float]
) -> dict[str, pl.Series]:
    """Ratings of `truth` that rules fitted on the training split predict."""
    train = rated_rows(world, "train")
    people = {user: n for n, user in enumerate(world.people["user_id"])}
    matched = train.filter(pl.col("user_id").is_in(list(people)))
    shape = len(world.catalogue), len(people)
    items, stars = train["item"].to_numpy(), train["truth"].to_numpy()
    of_item, of_user = biases(
        items,
        stars,
        matched["item"].to_numpy(),
        matched["user_id"].replace_strict(people, return_dtype=pl.Int64).to_numpy(),
        matched["truth"].to_numpy(),
        shape=shape,
        shrinkage=shrinkage,
    )
    with np.errstate(invalid="ignore"):
        of_item_alone = np.bincount(items, stars, minlength=shape[0]) / np.bincount(
            items, minlength=shape[0]
        )
    mean = stars.mean()
    item, person = truth["item"].to_numpy(), truth["person"].to_numpy()
    return {
        "constant": pl.Series(np.full(truth.height, mean)),
        "item mean": pl.Series(np.nan_to_num(of_item_alone, nan=mean)[item]),
        "user and item biases": pl.Series(
            np.clip(mean + of_item[item] + of_user[person], 1.0, 5.0)
        ),
    }


def biases(
    items: Any,
    ratings: Floats,
    own_items: Any,
    own_users: Any,
    own_ratings: Floats,
    *,
    shape: tuple[int, int],
    shrinkage: tuple[float, float],
) -> tuple[Floats, Floats]:
    """Shrunken deviations of items from the mean, then of users from mean and items.

    ``items`` and ``ratings`` are all training ratings, the ``own_`` arrays those of the users whose
    biases are wanted; ``shape`` counts items and users, ``shrinkage`` the ratings of the mean that
    are added to each item and user.

    >>> of_item, of_user = biases(
    ...     np.array([0, 0, 1, 1]), np.array([5.0, 5.0, 3.0, 3.0]),
    ...     np.array([0, 1]), np.array([0, 0]), np.array([5.0, 5.0]),
    ...     shape=(2, 1), shrinkage=(2.0, 2.0),
    ... )
    >>> of_item, of_user  # mean 4; (1 + 1) / 4 and the negative; (0.5 + 1.5) / 4
    (array([ 0.5, -0.5]), array([0.5]))
    """
    mean = ratings.mean()
    counts = np.bincount(items, minlength=shape[0])
    of_item = np.bincount(items, ratings - mean, minlength=shape[0]) / (counts + shrinkage[0])
    remainder = own_ratings - mean - of_item[own_items]
    counts = np.bincount(own_users, minlength=shape[1])
    return of_item, np.bincount(own_users, remainder, minlength=shape[1]) / (counts + shrinkage[1])


def error_figures(frame: pl.DataFrame, column: str) -> dict[str, Figure]:
    """RMSE and MAE of a column against ``truth``, pooled, with intervals over ``person``.

    Those of ``expected`` are named so; none without a value.
    """
    rated = frame.drop_nulls(column)
    if rated.is_empty():
        return {}
    off = (rated[column] - rated["truth"]).to_numpy()
    prefix = "expected_" if column == "expected" else ""
    return {
        f"{prefix}{name}": pooled_mean(rated["person"].to_numpy(), loss(off), of)
        for name, (of, loss) in _ERRORS.items()
    }


def _compare(
    study: Study,
    frames: dict[str, pl.DataFrame],
    left: str,
    right: str,
    column: str = "rating",
) -> pl.DataFrame:
    """Compare RMSE and MAE over the pairs that both rated, and return these."""
    sides = [
        frames[title].select("person", "item", "truth", pl.col(column).cast(pl.Float64))
        for title in (left, right)
    ]
    both = sides[0].join(sides[1].drop("truth"), on=["person", "item"], suffix="_right")
    both = both.drop_nulls().sort("person", "item")
    if both["person"].n_unique() < 2:
        return both
    off = [(both[c] - both["truth"]).to_numpy() for c in (column, f"{column}_right")]
    prefix = "expected_" if column == "expected" else ""
    for name, (of, loss) in _ERRORS.items():
        study.compare_pooled(
            left, right, f"{prefix}{name}", both["person"].to_numpy(), (loss(off[0]), loss(off[1])),
            of,
        )  # fmt: skip
    return both
