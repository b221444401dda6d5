"""Experiment ``rating``: ratings that agents give to test items, against those of their people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipelines.study import (
    Claim,
    Comparison,
    Figure,
    Plot,
    Study,
    paired_permutation,
    pooled,
    summed,
)
from sim.agents import AgentWorld, Brain, Visit, page_lists, visits_of
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment
from sim.experiments._held_out import Floats, held_out_pairs, judged, pairs_of, rated_rows

#: Conditions: history, persona, graph (SimUSER, Tables 2 and 7).
_CONDITIONS = (
    ("zero", True, True),
    ("sim", True, True),
    ("zero", False, True),
    ("sim", False, True),
    ("zero", True, False),
    ("sim", True, False),
)
#: Conditions compared: the first with the second.
_PAIRS = (
    (("sim", True, True), ("zero", True, True)),
    (("zero", True, True), ("zero", False, True)),
    (("zero", True, True), ("zero", True, False)),
    (("sim", True, True), ("sim", True, False)),
)
_Condition = tuple[str, bool, bool]
_HINT = "a model whose replies can't be used rates nothing: see `failed`"


@experiment(
    question="How far are the ratings that agents give to unseen items from those of the people "
    "whom they stand for, and what do a visit before, the persona and the graph change?",
    paper="SimUSER, Tables 2 and 7",
    conditions=("brain", "history", "persona", "graph"),
    figures={
        "rmse": "root mean squared error of the ratings given, 0-4",
        "mae": "mean absolute error of the ratings given, 0-4",
        "expected_rmse": "the same root of the ratings expected (means of the distributions), 0-4",
        "expected_mae": "mean absolute error of the ratings expected, 0-4",
    },
    claim=Claim(
        "Agents rate unseen items nearer to their person (RMSE 0.534) than matrix factorisation "
        "does (1.214).",
        figure="expected_rmse",
        row={"history": "zero", "persona": "persona", "graph": "graph"},
        control={"brain": "user and item biases"},
        above="Contradicted: the ratings that agents expect are further from people's than those "
        "of a rule with user and item biases.",
        below="Supported: the ratings that agents expect are nearer to people's than those of a "
        "rule with user and item biases.",
        equal="Not found: the ratings that agents expect are as far from people's as those of a "
        "rule with user and item biases.",
    ),
    plots={
        "rmse": Plot(
            "Error of ratings of test items that are expected", "RMSE (1-5)", ("expected_rmse",),
            ("brain", "history", "persona", "graph"),
        ),
        # A rule gives no ratings: it predicts.
        "given": Plot(
            "Error of ratings of test items that agents give", "RMSE (1-5)", ("rmse",),
            ("brain", "history", "persona", "graph"),
            where=lambda row: not row.note.startswith("A rule"),
        ),
    },
)  # fmt: skip
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
        titles: dict[_Condition, str] = {}
        for condition, source, frame, note in _judgements(study, context, name, recommender):
            row = _add(study, _labels(name, condition), source, frame, note, min_people)
            study.counts[f"failed, {row}"] = int((frame["status"] != "ok").sum())
            frames[row], titles[condition] = frame, row
        for left, right in _PAIRS:
            if left in titles and right in titles:
                pair = titles[left], titles[right]
                _compare(study, frames, *pair)
                if _equal(frames[pair[0]], frames[pair[1]]):
                    placebos.append(f"{pair[0]} and {pair[1]}")
        for rule in ("item mean", "user and item biases"):
            _compare(study, frames, next(iter(titles.values())), rule, ("rating", "expected"))
    study.notes += [
        "Items are rated as watched (SimUSER asks so too): what agents would not choose is rated "
        f"as well. `zero` is the training history alone, `sim` a visit to `{recommender}` before. "
        "Errors are pooled over all ratings; intervals and tests are over people, the tests of "
        "summed squared (absolute) errors.",
        "A rating given is a draw or a whole number; the mean of its distribution "
        "(`expected_rmse`) is what a predictor would be judged by.",
    ]
    if placebos:
        study.notes.append(
            f"Equal ratings, so that the difference is exactly zero: {'; '.join(placebos)}. The "
            "statistical brain rates from the training history alone: neither a visit nor the "
            "graph enters its ratings."
        )


def _judgements(
    study: Study, context: ExperimentContext, name: str, recommender: str
) -> Iterator[tuple[_Condition, str, pl.DataFrame, str]]:
    """Condition, source, judgements and a note; a baseline has one condition only."""
    for condition in _CONDITIONS:
        history, persona, graph = condition
        options: dict[str, Any] = {}
        if condition == _CONDITIONS[0]:
            brain = context.brain(name)
        else:
            pages = None
            if context.source(context.brain(name)) == "model":
                options, pages = {"persona": persona}, context.sample["model_pages"]
            world = context.world(traits=persona, graph=graph, pages=pages)
            brain = context.brain(name, world, **options)
        source = context.source(brain)
        key: dict[str, Any] = {"history": history}
        asking: dict[str, Any] = {}
        if history == "sim":
            key |= study.settings
            asking["visits"] = partial(_visits, context, brain, recommender)
        pairs = pairs_of(context, brain, context.world_of(brain))
        yield condition, source, judged(context, brain, pairs, key=key, **asking), brain.note
        if source == "baseline":
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
    known = frame.drop_nulls("rating")
    people = known["person"].n_unique()
    least = min(min_people, frame["person"].n_unique())
    figures: dict[str, Figure | None] = dict.fromkeys(study.figures)
    if people >= least:
        figures = dict(error_figures(known, "rating"))
        expected = frame.drop_nulls("expected")
        if expected.height:
            own = error_figures(expected, "expected")
            figures |= {f"expected_{name}": figure for name, figure in own.items()}
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
    users = world.people["user_id"].to_list()
    numbers = {user: n for n, user in enumerate(users)}
    known = train.filter(pl.col("user_id").is_in(users))
    mean = float(train["truth"].mean())  # type: ignore[arg-type]
    items = train["item"].to_numpy()
    size = len(world.catalogue)
    count = np.bincount(items, minlength=size)
    total = np.bincount(items, train["truth"].to_numpy(), minlength=size)
    with np.errstate(invalid="ignore"):
        item_mean = np.where(count > 0, total / count, mean)
    of_item, of_user = biases(
        items,
        train["truth"].to_numpy(),
        known["item"].to_numpy(),
        known["user_id"].replace_strict(numbers, return_dtype=pl.Int64).to_numpy(),
        known["truth"].to_numpy(),
        shape=(size, len(users)),
        shrinkage=shrinkage,
    )
    item, person = truth["item"].to_numpy(), truth["person"].to_numpy()
    both = np.clip(mean + of_item[item] + of_user[person], 1.0, 5.0)
    return {
        "constant": pl.Series(np.full(truth.height, mean)),
        "item mean": pl.Series(item_mean[item]),
        "user and item biases": pl.Series(both),
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
    rest = own_ratings - mean - of_item[own_items]
    counts = np.bincount(own_users, minlength=shape[1])
    return of_item, np.bincount(own_users, rest, minlength=shape[1]) / (counts + shrinkage[1])


def error_figures(frame: pl.DataFrame, column: str) -> dict[str, Figure]:
    """RMSE and MAE of a column against ``truth``, pooled, with intervals over ``person``."""
    off = (frame[column] - frame["truth"]).to_numpy()
    ones = np.ones(len(off))
    owner = frame["person"].to_numpy()
    return {
        "rmse": pooled(owner, [off**2, ones], lambda s: np.sqrt(s[0] / s[1])),
        "mae": pooled(owner, [np.abs(off), ones], lambda s: s[0] / s[1]),
    }


def _compare(
    study: Study,
    frames: dict[str, pl.DataFrame],
    left: str,
    right: str,
    columns: Sequence[str] = ("rating",),
) -> None:
    """Differences in RMSE and MAE over the pairs that both rated, by column."""
    for column in columns:
        both = _joined(frames[left], frames[right], column)
        owner, people = both["person"].to_numpy(), both["person"].n_unique()
        if people < 2:
            continue
        off = [(both[c] - both["truth"]).to_numpy() for c in (column, f"{column}_right")]
        prefix = "expected_" if column == "expected" else ""
        for name, sides, root in (
            ("rmse", [e**2 for e in off], np.sqrt),
            ("mae", [np.abs(e) for e in off], np.asarray),
        ):

            def apart(s: Floats, root: Any = root) -> Floats:
                return np.asarray(root(s[0] / s[2]) - root(s[1] / s[2]))

            difference = pooled(owner, [*sides, np.ones(len(owner))], apart)
            p = paired_permutation(summed(owner, sides[0]), summed(owner, sides[1]), study.seed)
            study.comparisons.append(Comparison(left, right, prefix + name, difference, p, people))


def _joined(left: pl.DataFrame, right: pl.DataFrame, column: str = "rating") -> pl.DataFrame:
    keys = ["person", "item"]
    other = right.select(*keys, pl.col(column).cast(pl.Float64)).drop_nulls()
    known = left.with_columns(pl.col(column).cast(pl.Float64)).drop_nulls(column)
    return known.join(other, on=keys, suffix="_right").sort(keys)


def _equal(left: pl.DataFrame, right: pl.DataFrame) -> bool:
    both = _joined(left, right)
    return bool(both.height == left.height and (both["rating"] == both["rating_right"]).all())


def _labels(brain: str, condition: _Condition) -> tuple[str, ...]:
    history, persona, graph = condition
    if brain in ("random", "always"):
        return (brain,)
    return brain, history, "persona" if persona else "no persona", "graph" if graph else "no graph"
