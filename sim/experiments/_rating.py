"""Experiment ``rating``: ratings that agents give to test items, against those of their people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from sim.agents import AgentWorld, Brain, Visits, page_lists
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import bars
from sim.experiments._held_out import Floats, held_out_pairs, judged, pairs_of, pooled, rated_rows
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.metrics import Figure, paired_permutation

#: Meanings of the figures by name.
_FIGURES = {
    "rmse": "root mean squared error of the ratings given, 0-4",
    "mae": "mean absolute error of the ratings given, 0-4",
    "expected_rmse": "the same root of the ratings expected (means of the distributions), 0-4",
    "expected_mae": "mean absolute error of the ratings expected, 0-4",
}
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


@dataclass(frozen=True)
class RatingSettings:
    """Settings of ``rating``."""

    #: People with a test rating that figures need (count).
    min_people: int = 10
    #: Visited before the items are rated, where the history is ``sim``.
    recommender: str = "popular"
    #: Ratings of the mean that are added to each item's and user's bias (Koren 2010: 25 and 10).
    item_shrinkage: float = 25.0
    user_shrinkage: float = 10.0


class Rating:
    """Error of agents' ratings of test items, by history, persona and graph."""

    name = "rating"
    question = (
        "How far are the ratings that agents give to unseen items from those of the people whom "
        "they stand for, and what do a visit before, the persona and the graph change?"
    )
    anchor = "SimUSER, Tables 2 and 7"
    figures = _FIGURES

    def __init__(self, settings: RatingSettings | None = None) -> None:
        self.settings = settings or RatingSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Ask agents for ratings of test items that the prompt gives as watched."""
        world = context.world()
        truth = held_out_pairs(world, people=context.agents)
        people = truth["person"].n_unique()
        if people < self.settings.min_people:
            raise TooFew(
                "people with a test rating",
                found=people,
                needed=self.settings.min_people,
                where=f"experiment {self.name}, {context.release.ref}",
                hint="match more users, or ask for more --agents",
            )
        frames: dict[str, pl.DataFrame] = {}
        rows = []
        for name, predicted in self._baselines(world, truth).items():
            frames[name] = truth.with_columns(rating=predicted, expected=predicted)
            note = "A rule fitted on the training split; not rounded."
            rows.append(self._row({"brain": name}, "baseline", frames[name], note))
        counts = {"test ratings": truth.height}
        comparisons: list[Comparison] = []
        placebos: list[str] = []
        for brain in context.brains:
            found = self._brain(context, brain)
            titles = {}
            for condition, (source, frame, note) in found.items():
                row = self._row(_labels(brain, condition), source, frame, note)
                failed = int((frame["status"] != "ok").sum())
                counts[f"failed, {row.title}"] = failed
                rows.append(row)
                frames[row.title], titles[condition] = frame, row.title
            for left, right in _PAIRS:
                if left in titles and right in titles:
                    pair = titles[left], titles[right]
                    comparisons += _compared(frames, *pair, context.seed)
                    if _equal(frames[pair[0]], frames[pair[1]]):
                        placebos.append(f"{pair[0]} and {pair[1]}")
            first = next(iter(titles.values()))
            for rule in ("item mean", "user and item biases"):
                both = ("rating", "expected")
                comparisons += _compared(frames, first, rule, context.seed, both)
        notes = [
            "Items are rated as watched (SimUSER asks so too): what agents would not choose is "
            "rated as well. `zero` is the training history alone, `sim` a visit to "
            f"`{self.settings.recommender}` before. Errors are pooled over all ratings; intervals "
            "and tests are over people, the tests of summed squared (absolute) errors.",
            "A rating given is a draw or a whole number; the mean of its distribution "
            "(`expected_rmse`) is what a predictor would be judged by.",
        ]
        if placebos:
            notes.append(
                "Equal ratings, so that the difference is exactly zero: "
                + "; ".join(placebos)
                + ". The statistical brain rates from the training history alone: neither a visit "
                "nor the graph enters its ratings."
            )
        return Result(rows, comparisons, notes, {"rmse": _picture(rows)}, counts)

    def _baselines(self, world: AgentWorld, truth: pl.DataFrame) -> dict[str, pl.Series]:
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
            shrinkage=(self.settings.item_shrinkage, self.settings.user_shrinkage),
        )
        item, person = truth["item"].to_numpy(), truth["person"].to_numpy()
        both = np.clip(mean + of_item[item] + of_user[person], 1.0, 5.0)
        return {
            "constant": pl.Series(np.full(truth.height, mean)),
            "item mean": pl.Series(item_mean[item]),
            "user and item biases": pl.Series(both),
        }

    def _brain(
        self, context: ExperimentContext, name: str
    ) -> dict[_Condition, tuple[str, pl.DataFrame, str]]:
        """Source, judgements and a note by condition; a baseline has one condition only."""
        out: dict[_Condition, tuple[str, pl.DataFrame, str]] = {}
        for condition in _CONDITIONS:
            history, persona, graph = condition
            world = context.world(traits=persona, graph=graph)
            options: dict[str, Any] = {}
            mind = context.brain(name) if condition == _CONDITIONS[0] else None
            if mind is None and out and next(iter(out.values()))[0] == "model":
                options = {"persona": persona}
                world = context.world(
                    traits=persona, graph=graph, pages=context.sample["model_pages"]
                )
            mind = mind or context.brain(name, world, **options)
            source = context.source(mind)
            pairs = pairs_of(context, mind, context.world_of(mind))
            key: dict[str, Any] = {"history": history}
            asking: dict[str, Any] = {}
            if history == "sim":
                key |= asdict(self.settings)
                asking["visits"] = lambda mind=mind: self._visits(context, mind)
            frame = judged(context, mind, pairs, key=key, **asking)
            out[condition] = source, frame, mind.note
            if source == "baseline":
                break
        return out

    def _visits(self, context: ExperimentContext, brain: Brain) -> Visits:
        """Finished visits of the agents whose ratings are asked."""
        world = context.world_of(brain)
        people = np.arange(min(len(world), context.agents_of(brain)))
        lists = page_lists(world, context.recommender(self.settings.recommender), people)
        visits = Visits(world, brain, lists=lists, agents=people, people=people, seed=context.seed)
        visits.run()
        return visits

    def _row(self, labels: dict[str, str], source: str, frame: pl.DataFrame, note: str) -> Row:
        known = frame.drop_nulls("rating")
        people = known["person"].n_unique()
        if people < min(self.settings.min_people, frame["person"].n_unique()):
            few = TooFew(
                "people with a usable rating",
                found=people,
                needed=min(self.settings.min_people, frame["person"].n_unique()),
                where=f"experiment {self.name}, {', '.join(labels.values())}",
                hint="a model whose replies can't be used rates nothing: see `failed`",
            )
            if source != "model":
                raise few
            return Row(labels, source, dict.fromkeys(_FIGURES), people, few.what)
        figures: dict[str, Figure | float | None] = dict(error_figures(known, "rating"))
        expected = frame.drop_nulls("expected")
        if expected.height:
            found = error_figures(expected, "expected")
            figures |= {f"expected_{name}": figure for name, figure in found.items()}
        return Row(labels, source, figures, people, note)


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


def _compared(
    frames: dict[str, pl.DataFrame],
    left: str,
    right: str,
    seed: int,
    columns: Sequence[str] = ("rating",),
) -> list[Comparison]:
    """Differences in RMSE and MAE over the pairs that both rated, by column."""
    out = []
    for column in columns:
        both = _joined(frames[left], frames[right], column)
        owner, people = both["person"].to_numpy(), both["person"].n_unique()
        if people < 2:
            continue
        a = (both[column] - both["truth"]).to_numpy()
        b = (both[f"{column}_right"] - both["truth"]).to_numpy()
        sums = [a**2, b**2, np.ones(len(a))]
        rmse = pooled(owner, sums, lambda s: np.sqrt(s[0] / s[2]) - np.sqrt(s[1] / s[2]))
        sums = [np.abs(a), np.abs(b), np.ones(len(a))]
        mae = pooled(owner, sums, lambda s: (s[0] - s[1]) / s[2])
        prefix = "expected_" if column == "expected" else ""
        for name, difference, sides in (("rmse", rmse, (a**2, b**2)),
                                        ("mae", mae, (np.abs(a), np.abs(b)))):  # fmt: skip
            p = paired_permutation(_summed(owner, sides[0]), _summed(owner, sides[1]), seed)
            out.append(Comparison(left, right, prefix + name, difference, p, people))
    return out


def _summed(owner: Any, values: Floats) -> Floats:
    """Sums by owner: exchanged whole, they move the pooled error as the rows do."""
    _, place = np.unique(owner, return_inverse=True)
    return np.asarray(np.bincount(place, values), np.float64)


def _joined(left: pl.DataFrame, right: pl.DataFrame, column: str = "rating") -> pl.DataFrame:
    keys = ["person", "item"]
    other = right.select(*keys, pl.col(column).cast(pl.Float64)).drop_nulls()
    known = left.with_columns(pl.col(column).cast(pl.Float64)).drop_nulls(column)
    return known.join(other, on=keys, suffix="_right").sort(keys)


def _equal(left: pl.DataFrame, right: pl.DataFrame) -> bool:
    both = _joined(left, right)
    return bool(both.height == left.height and (both["rating"] == both["rating_right"]).all())


def _labels(brain: str, condition: _Condition) -> dict[str, str]:
    history, persona, graph = condition
    if brain in ("random", "always"):
        return {"brain": brain}
    return {
        "brain": brain,
        "history": history,
        "persona": "persona" if persona else "no persona",
        "graph": "graph" if graph else "no graph",
    }


def _picture(rows: list[Row]) -> bytes:
    names = [row.title.replace(", ", ",\n") for row in rows]
    series = {
        "ratings given": [row.figures.get("rmse") for row in rows],
        "ratings expected": [row.figures.get("expected_rmse") for row in rows],
    }
    return bars("Error of ratings of test items", names, series, "RMSE (1-5)")
