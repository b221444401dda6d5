"""Metrics of played lifetimes: regret, learning, calibration and faithfulness, with intervals.

Lifetimes are the units of all intervals and tests. A `failed` or `leaked` episode has no value
and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ConfigError
from pipelines.hints import nearest
from sim.dialogue._answers import value_means
from sim.dialogue._book import Book, ChoiceSet, Ints
from sim.dialogue._protocol import CONFIDENCES, REGRET_LEVELS, STATED
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
    wide = episodes.select("seed", "episode", value=column).pivot(
        "episode", index="seed", values="value", sort_columns=True
    )
    wide = wide.sort("seed")
    names = sorted((c for c in wide.columns if c != "seed"), key=int)
    values = wide.select(names).to_numpy().astype(np.float64)
    if metric == "cumulative_regret":
        values = np.cumsum(values, axis=1)
    return Values(wide["seed"].to_numpy(), np.array([float(n) for n in names]), values)


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


def faithfulness(book: Book, turns: pl.DataFrame, episodes: pl.DataFrame) -> Values:
    """Share of facet answers whose products score above the set's mean, by lifetime and episode.

    Answers without a value do not count.
    """

    def above(shelf: ChoiceSet, column: Ints, rows: pl.DataFrame) -> Doubles:
        people = {name: n for n, name in enumerate(book.persona_ids)}
        persona = np.array([people[p] for p in rows["persona_id"].to_list()])
        who, back = np.unique(persona, return_inverse=True)
        y = shelf.y[who]
        higher = value_means(shelf, y) > np.nanmean(y, axis=1, keepdims=True)
        return np.asarray(higher[back, column], dtype=np.float64)

    return _of_answers(book, turns, episodes, above)


def answers_used(book: Book, turns: pl.DataFrame, episodes: pl.DataFrame) -> Values:
    """Share of facet answers whose value the sold product has, minus the share of products that do.

    By lifetime and episode. 0 is expected of an agent that ignores answers. Answers without a
    value and episodes without a sale do not count.
    """

    def excess(shelf: ChoiceSet, column: Ints, rows: pl.DataFrame) -> Doubles:
        places = {name: n for n, name in enumerate(shelf.item_ids)}
        sold = np.array([places[item] for item in rows["item_id"].to_list()])
        difference = shelf.members[sold, column] - shelf.members.mean(axis=0)[column]
        return np.asarray(difference, dtype=np.float64)

    return _of_answers(book, turns, episodes.filter(pl.col("item_id").is_not_null()), excess)


def _of_answers(
    book: Book,
    turns: pl.DataFrame,
    episodes: pl.DataFrame,
    value: Callable[[ChoiceSet, Ints, pl.DataFrame], Doubles],
) -> Values:
    """Mean of a value of facet answers by lifetime and episode.

    ``value`` is given a choice set, the answers' columns of its members, and their rows with the
    episode's persona, category and sold item.
    """
    keys = ["run", "seed", "episode"]
    sets = {s.category_id: s for s in book.sets}
    answers = (
        turns.filter(pl.col("kind") == "answer", pl.col("value").is_not_null())
        .select(*keys, "facet_id", "value")
        .join(episodes.select(*keys, "persona_id", "category_id", "item_id"), on=keys)
    )
    parts = []
    for (category,), rows in answers.group_by("category_id", maintain_order=True):
        shelf = sets[str(category)]
        columns = {
            (f.facet_id, value): int(start) + n
            for f, start in zip(shelf.facets, shelf.starts, strict=True)
            for n, value in enumerate(f.values)
        }
        named = zip(rows["facet_id"].to_list(), rows["value"].to_list(), strict=True)
        column = np.array([columns[pair] for pair in named])
        parts.append(rows.select("seed", "episode", value=pl.Series(value(shelf, column, rows))))
    if not parts:
        return Values(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)))
    shares = pl.concat(parts).group_by("seed", "episode").agg(pl.col("value").mean())
    wide = shares.pivot("episode", index="seed", values="value").sort("seed")
    names = sorted((c for c in wide.columns if c != "seed"), key=int)
    return Values(
        wide["seed"].to_numpy(),
        np.array([float(n) for n in names]),
        wide.select(names).to_numpy().astype(np.float64),
    )


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
