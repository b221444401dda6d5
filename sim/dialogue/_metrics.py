"""Metrics of played lifetimes: regret, learning, calibration and faithfulness, with intervals.

Lifetimes are the units of all intervals and tests. A `failed` or `leaked` episode has no value
and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ConfigError
from pipelines.hints import nearest
from sim.dialogue._answers import AnswerModel, value_means
from sim.dialogue._protocol import CONFIDENCES, REGRET_LEVELS, STATED
from sim.dialogue._world import ChoiceSet, DialogueWorld, Ints
from sim.metrics import RESAMPLES, Figure, paired_permutation, user_weights

Doubles = npt.NDArray[np.float64]

#: Bins of confidence, of equal width (count).
_BINS = 10

#: Meaning and unit of each metric of an episode.
METRICS: dict[str, str] = {
    "regret": "best score minus the sold product's (points)",
    "normalised_regret": "regret over the exact one of a random product; none if all are alike",
    "cumulative_regret": "sum of regrets up to the episode (points); none after a failed one",
    "top_1": "share of sold products with the best score; ties count",
    "top_3": "share of sold products among the best three; ties count",
    "top_5": "share of sold products among the best five; ties count",
    "questions": "questions asked (count)",
    "repeated": "questions asked before in the episode (count)",
    "unmatched": "questions that match no facet (count)",
    "stars": "stars of the sold product (0-5)",
    "failed": "share of episodes that failed or leaked; flagged above 5 %",
}
_EXPRESSIONS: dict[str, pl.Expr] = {
    "normalised_regret": pl.when(pl.col("random_regret") > 0).then(
        pl.col("regret") / pl.col("random_regret")
    ),
    "top_1": (pl.col("rank") <= 1).cast(pl.Float64),
    "top_3": (pl.col("rank") <= 3).cast(pl.Float64),
    "top_5": (pl.col("rank") <= 5).cast(pl.Float64),
    "failed": (pl.col("status") != "ok").cast(pl.Float64),
}


@dataclass(frozen=True)
class Values:
    """Values of a metric by lifetime and place on the horizontal axis."""

    #: Seeds of the lifetimes, ascending, of shape (lifetimes,).
    seeds: Ints
    #: Episodes, or numbers of questions, of shape (places,).
    x: Doubles
    #: Values of shape (lifetimes, places); NaN where there is none.
    values: Doubles

    def curve(self, *, draws: int = RESAMPLES, seed: int = 0) -> list[Figure]:
        """Mean and 95 % interval over lifetimes at each place."""
        valid = ~np.isnan(self.values)
        weights = user_weights(len(self.seeds), draws, seed)
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = weights @ np.where(valid, self.values, 0) / (weights @ valid)
            mean = np.where(valid, self.values, 0).sum(axis=0) / valid.sum(axis=0)
        return [_figure(value, drawn[:, n]) for n, value in enumerate(mean)]

    def overall(self, *, draws: int = RESAMPLES, seed: int = 0) -> Figure:
        """Mean over all places, of lifetimes' means, with its 95 % interval."""
        return Values(self.seeds, np.zeros(1), self.means[:, None]).curve(draws=draws, seed=seed)[0]

    @property
    def means(self) -> Doubles:
        """Mean of each lifetime over its places; NaN without one."""
        return _mean(self.values)

    def slope(self) -> Values:
        """Least-squares slope over the places of each lifetime; NaN for fewer than two."""
        valid = ~np.isnan(self.values)
        x = np.where(valid, self.x, np.nan)
        x = x - _mean(x)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            slopes = np.nansum(x * self.values, axis=1) / np.nansum(x**2, axis=1)
        return Values(self.seeds, np.zeros(1), slopes[:, None])

    @property
    def lifetimes(self) -> Ints:
        """Lifetimes with a value at each place (count)."""
        return np.asarray((~np.isnan(self.values)).sum(axis=0), np.int64)


def values_of(episodes: pl.DataFrame, metric: str) -> Values:
    """Values of one of `METRICS` or ``random_regret`` (else ConfigError) by lifetime and episode.

    ``episodes`` are the rows of one run of ``dialogue.episodes``.
    """
    if metric not in METRICS and metric != "random_regret":
        raise ConfigError("unknown metric", where=repr(metric), hint=nearest(metric, METRICS))
    name = "regret" if metric == "cumulative_regret" else metric
    column = _EXPRESSIONS.get(name, pl.col(name).cast(pl.Float64))
    values = pivoted(episodes.select("seed", "episode", value=column), "episode")
    if metric == "cumulative_regret":
        values = replace(values, values=np.cumsum(values.values, axis=1))
    return values


def pivoted(frame: pl.DataFrame, x: str) -> Values:
    """The column ``value`` of a frame by ``seed`` and the column ``x``."""
    if frame.is_empty():
        return Values(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)))
    wide = frame.pivot(x, index="seed", values="value").sort("seed")
    names = sorted((c for c in wide.columns if c != "seed"), key=int)
    return Values(
        wide["seed"].to_numpy(),
        np.array([float(n) for n in names]),
        wide.select(names).to_numpy().astype(np.float64),
    )


def paired(left: Values, right: Values) -> tuple[Values, float]:
    """Left minus right for the same lifetimes and places, and p of their means' difference.

    p is that of the two-sided paired permutation test over lifetimes.
    """
    seeds, mine, theirs = np.intersect1d(left.seeds, right.seeds, return_indices=True)
    x, left_x, right_x = np.intersect1d(left.x, right.x, return_indices=True)
    values = left.values[np.ix_(mine, left_x)] - right.values[np.ix_(theirs, right_x)]
    differences = Values(np.asarray(seeds, np.int64), x, values)
    means = differences.means[~np.isnan(differences.means)]
    return differences, paired_permutation(means, np.zeros(len(means)))


def gap_closed(episodes: pl.DataFrame, oracle: pl.DataFrame) -> Figure:
    """(R_random - R) / (R_random - R_oracle) over the lifetimes of both, with its interval.

    R_random is exact. 1 is the oracle's regret, 0 that of a random product.
    """
    mine, best = values_of(episodes, "regret"), values_of(oracle, "regret")
    chance = values_of(episodes, "random_regret")
    _, a, b = np.intersect1d(mine.seeds, best.seeds, return_indices=True)
    parts = np.stack([mine.values[a], best.values[b], chance.values[a]])
    parts = np.where(np.isnan(parts).any(axis=0), np.nan, parts)  # the same episodes of all three
    totals = np.nansum(parts, axis=2)
    weights = user_weights(len(a), RESAMPLES, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = weights @ (totals[2] - totals[0]) / (weights @ (totals[2] - totals[1]))
        sums = totals.sum(axis=1)
        return _figure((sums[2] - sums[0]) / (sums[2] - sums[1]), drawn)


def calibration(
    turns: pl.DataFrame,
    episodes: Sequence[int] = (1, 5, 10),
    *,
    kinds: Sequence[str] = ("recommend", "probe"),
    draws: int = RESAMPLES,
    seed: int = 0,
) -> dict[tuple[int, str], tuple[Figure, int]]:
    """ECE of the six confidences and the stated ones in these episodes, and their lifetimes.

    ECE = Σ_b n_b / N |accuracy_b - confidence_b| over ten equal bins (BIEL, appendix B.5).
    ``turns`` are the rows of one run of ``dialogue.turns``, of which those of ``kinds`` count;
    ``episodes`` are numbered from 1, those without a confidence are left out. The bootstrap draws
    lifetimes.
    """
    tests = {"top_1": pl.col("rank") <= 1, "top_5": pl.col("rank") <= 5}
    tests |= {f"regret_{level:g}": pl.col("regret") <= level for level in REGRET_LEVELS}
    errors = {}
    for episode in episodes:
        selected = turns.filter(pl.col("episode") == episode, pl.col("kind").is_in(list(kinds)))
        for name in filter(selected.columns.__contains__, (*CONFIDENCES, *STATED)):
            event = tests[name.removeprefix("stated_")]
            rows = selected.select("seed", confidence=name, happened=event).drop_nulls()
            if not rows.height:
                continue
            seeds, life = np.unique(rows["seed"].to_numpy(), return_inverse=True)
            gaps = _gaps(
                rows["confidence"].to_numpy(),
                rows["happened"].cast(pl.Float64).to_numpy(),
                life,
                len(seeds),
            )
            counts = np.bincount(life, minlength=len(seeds)).astype(np.float64)
            weights = user_weights(len(seeds), draws, seed)
            drawn = np.abs(weights @ gaps).sum(axis=1) / (weights @ counts)
            value = np.abs(gaps.sum(axis=0)).sum() / counts.sum()
            errors[episode, name] = (_figure(value, drawn), len(seeds))
    return errors


def faithfulness(world: DialogueWorld, turns: pl.DataFrame, episodes: pl.DataFrame) -> Values:
    """Share of facet answers whose products score above the set's mean, by lifetime and episode.

    Answers without a value do not count.
    """

    def above(shelf: ChoiceSet, facet: Ints, value: Ints, rows: pl.DataFrame) -> Doubles:
        who, back = _personas(world, rows)
        y = shelf.y[who]
        higher = value_means(shelf, y) > np.nanmean(y, axis=1, keepdims=True)
        return np.asarray(higher[back, shelf.starts[facet] + value], np.float64)

    return _of_answers(world, turns.filter(pl.col("value").is_not_null()), episodes, above)


def answers_used(world: DialogueWorld, turns: pl.DataFrame, episodes: pl.DataFrame) -> Values:
    """Share of facet answers whose value the sold product has, minus the share of products that do.

    By lifetime and episode. 0 is expected of an agent that ignores answers. Answers without a
    value and episodes without a sale do not count.
    """

    def excess(shelf: ChoiceSet, facet: Ints, value: Ints, rows: pl.DataFrame) -> Doubles:
        places = {name: n for n, name in enumerate(shelf.item_ids)}
        sold = np.array([places[item] for item in rows["item_id"].to_list()])
        column = shelf.starts[facet] + value
        difference = shelf.members[sold, column] - shelf.members.mean(axis=0)[column]
        return np.asarray(difference, np.float64)

    sold = episodes.filter(pl.col("item_id").is_not_null())
    return _of_answers(world, turns.filter(pl.col("value").is_not_null()), sold, excess)


def agreement(
    world: DialogueWorld, turns: pl.DataFrame, episodes: pl.DataFrame
) -> tuple[Values, Values]:
    """Share of facet answers that follow from the persona, and what chance makes of it.

    By lifetime and episode. An answer, *no preference* included, follows from a persona if it is
    the most probable one by its scores (:class:`sim.dialogue._answers.AnswerModel` at temperature
    0). Chance is the share of the other personas that the same answer follows from: that of a
    customer who answers alike whoever it plays.
    """

    def share(*, of_others: bool) -> Values:
        def follows(shelf: ChoiceSet, facet: Ints, value: Ints, rows: pl.DataFrame) -> Doubles:
            scored = ~np.isnan(shelf.y).any(axis=1)
            likeliest = AnswerModel(tau=0.0).probabilities(shelf, shelf.y[scored])
            place = np.where(value >= 0, value, shelf.widths[facet])
            column = shelf.answer_starts[facet] + place
            who, back = _personas(world, rows)
            person = (np.cumsum(scored) - 1)[who][back]
            agrees: Doubles = likeliest[person, column].astype(np.float64)
            if not of_others:
                return agrees
            return np.asarray(
                (likeliest.sum(axis=0)[column] - agrees) / max(len(likeliest) - 1, 1), np.float64
            )

        return _of_answers(world, turns, episodes, follows)

    return share(of_others=False), share(of_others=True)


def _personas(world: DialogueWorld, rows: pl.DataFrame) -> tuple[Ints, Ints]:
    """Distinct personas of some rows, and the place of each row's among them."""
    people = {name: n for n, name in enumerate(world.persona_ids)}
    who, back = np.unique([people[p] for p in rows["persona_id"].to_list()], return_inverse=True)
    return who, back


def _of_answers(
    world: DialogueWorld,
    turns: pl.DataFrame,
    episodes: pl.DataFrame,
    measure: Callable[[ChoiceSet, Ints, Ints, pl.DataFrame], Doubles],
) -> Values:
    """Mean of a measure of facet answers by lifetime and episode.

    ``measure`` is given a choice set, the answers' facets and values (-1 without one), and their
    rows with the episode's persona, category and sold item.
    """
    keys = ["run", "seed", "episode"]
    sets = {s.category_id: s for s in world.sets}
    answers = (
        turns.filter(kind="answer", status="ok")
        .filter(pl.col("facet_id").is_not_null())
        .select(*keys, "facet_id", "value")
        .join(episodes.select(*keys, "persona_id", "category_id", "item_id"), on=keys)
    )
    parts = []
    for (category,), rows in answers.group_by("category_id", maintain_order=True):
        shelf = sets[str(category)]
        facets = {f.facet_id: n for n, f in enumerate(shelf.facets)}
        facet = np.array([facets[name] for name in rows["facet_id"].to_list()])
        value = np.array(
            [
                -1 if name is None else shelf.facets[f].values.index(name)
                for f, name in zip(facet, rows["value"].to_list(), strict=True)
            ]
        )
        measured = pl.Series(measure(shelf, facet, value, rows))
        parts.append(rows.select("seed", "episode", value=measured))
    if not parts:
        return pivoted(pl.DataFrame(), "episode")
    shares = pl.concat(parts).group_by("seed", "episode").agg(pl.col("value").mean())
    return pivoted(shares, "episode")


def _gaps(confidence: Doubles, happened: Doubles, life: Any, lifetimes: int) -> Doubles:
    """Sum of (outcome - confidence) by lifetime and bin, of shape (lifetimes, bins)."""
    place = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
    sums = np.bincount(life * _BINS + place, happened - confidence, lifetimes * _BINS)
    return np.asarray(sums.reshape(lifetimes, _BINS), np.float64)


def _mean(values: Doubles) -> Doubles:
    """Mean of known values in each row; NaN without one."""
    valid = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(valid, values, 0).sum(axis=1) / valid.sum(axis=1), np.float64)


def _figure(value: Any, drawn: Doubles) -> Figure:
    """A value with the percentiles of a bootstrap; NaN where no draw has a value."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return Figure(float(value), float("nan"), float("nan"))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Figure(float(value), float(low), float(high))
