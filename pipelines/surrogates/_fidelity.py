"""Fidelity of a surrogate: its answers beside its teacher's on held-out pairs, and baselines."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.markdown import escape_markdown
from pipelines.raters import total_variation
from pipelines.raters.protocol import Floats, Ints
from pipelines.scales import RatingScale
from pipelines.surrogates._learn import Pairs

#: Figures, and whether a larger one is better.
FIGURES = {"rmse": False, "correlation": True, "total_variation": False, "ndcg@10": True}
#: Passes of the additive fit, pairs that a persona's correlation needs, cut of NDCG, and resamples
#: of the bootstrap (counts).
_PASSES, _MIN_PAIRS, _CUT, _RESAMPLES = 20, 5, 10, 1_000


@dataclass(frozen=True)
class Floors:
    """Means of the teacher's answers to the pairs that were learned from.

    The expected rating of a seen persona and item is the additive fit of both (its distribution
    the mean of both means), of an unseen persona the item's mean, of an unseen item the persona's
    mean, and a constant where both are unseen.
    """

    level: float
    person: Floats
    item: Floats
    additive: tuple[Floats, Floats]
    shares: tuple[Floats, Floats, Floats]

    @classmethod
    def fit(cls, pairs: Pairs, scale: RatingScale, people: int, things: int) -> Floors:
        """The means of `pairs`; rows without one have the overall mean."""
        expected = pairs.target @ scale.answers
        level, overall = float(expected.mean()), pairs.target.mean(axis=0)

        def means(rows: Ints, count: int) -> tuple[Floats, Floats]:
            size = np.bincount(rows, minlength=count)
            sums = np.stack(
                [np.bincount(rows, column, minlength=count) for column in pairs.target.T], axis=1
            )
            share = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], overall)
            return share, share @ scale.answers

        (of_person, person), (of_item, item) = (
            means(pairs.person, people),
            means(pairs.item, things),
        )
        sizes = [
            np.maximum(np.bincount(rows, minlength=count), 1)
            for rows, count in ((pairs.person, people), (pairs.item, things))
        ]
        a, c = np.zeros(people), np.zeros(things)
        for _ in range(_PASSES):
            a = np.bincount(pairs.person, expected - level - c[pairs.item], people) / sizes[0]
            c = np.bincount(pairs.item, expected - level - a[pairs.person], things) / sizes[1]
        return cls(level, person, item, (a, c), (of_person, of_item, overall))

    def of(self, kind: int, pairs: Pairs, scale: RatingScale) -> tuple[Floats, Floats]:
        """Expected ratings and distributions of pairs of a kind (place in ``KINDS``)."""
        of_person, of_item, overall = self.shares
        if kind == 0:
            both = self.level + self.additive[0][pairs.person] + self.additive[1][pairs.item]
            shares = (of_person[pairs.person] + of_item[pairs.item]) / 2
            return np.clip(both, scale.low, scale.high), shares
        if kind == 1:
            return self.person[pairs.person], of_person[pairs.person]
        if kind == 2:
            return self.item[pairs.item], of_item[pairs.item]
        again = (len(pairs), len(overall))
        return np.full(len(pairs), self.level), np.broadcast_to(overall, again)


def compare(
    kind: str,
    pairs: Pairs,
    found: tuple[Floats, Floats],
    floor: tuple[Floats, Floats],
    scale: RatingScale,
    *,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Figures of predicted answers beside a baseline's, with 95 % intervals over personas.

    ``rmse`` is of expected ratings, on the scale; ``correlation`` Pearson's within a persona of
    five pairs or more, 0 where the prediction is constant, mean over personas; ``total_variation``
    the mean distance of distributions; ``ndcg@10`` by the teacher's order (gain: expected rating
    above the scale's lowest; ties share their mean discount), mean over personas.

    ``pairs`` are held-out pairs with the teacher's distributions, on its ``scale``; ``found`` and
    ``floor`` (the baseline) are expected ratings (pairs,) and distributions (pairs, answers). The
    bootstrap draws personas. Rows are those of the `surrogate_fidelity` contract; none without
    pairs.
    """
    if not len(pairs):
        return []
    people, person = np.unique(pairs.person, return_inverse=True)
    order = np.argsort(person, kind="stable")
    ends = np.searchsorted(person[order], np.arange(len(people) + 1))
    groups = [order[a:b] for a, b in itertools.pairwise(ends)]
    truth = pairs.target @ scale.answers
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(people), np.full(len(people), 1 / len(people)), size=_RESAMPLES)
    weights = np.vstack([np.ones(len(people)), drawn])
    size = np.diff(ends).astype(np.float64)

    def resampled(answers: tuple[Floats, Floats]) -> dict[str, Floats]:
        expected, shares = answers
        squares = np.bincount(person, (expected - truth) ** 2)
        apart = np.bincount(person, total_variation(shares, pairs.target))
        count = weights @ size
        return {
            "rmse": np.sqrt(weights @ squares / count),
            "correlation": _mean(weights, [_correlation(truth[g], expected[g]) for g in groups]),
            "total_variation": weights @ apart / count,
            "ndcg@10": _mean(weights, [_ndcg(truth[g] - scale.low, expected[g]) for g in groups]),
        }

    own, other = resampled(found), resampled(floor)
    rows = []
    for figure in FIGURES:
        difference = own[figure] - other[figure]
        row: dict[str, Any] = {"kind": kind, "figure": figure}
        for name, values in (
            ("", own[figure]),
            ("floor", other[figure]),
            ("difference", difference),
        ):
            known = values[1:][~np.isnan(values[1:])]
            low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
            prefix = f"{name}_" if name else ""
            row |= {name or "value": values[0], f"{prefix}low": low, f"{prefix}high": high}
        row = {k: v if isinstance(v, str) or v == v else None for k, v in row.items()}
        rows.append({**row, "pairs": len(pairs), "personas": len(people)})
    return [{k: float(v) if isinstance(v, np.floating) else v for k, v in r.items()} for r in rows]


def _mean(weights: Floats, values: list[float]) -> Floats:
    """Weighted means of the values that are numbers, for every row of weights."""
    every = np.array(values)
    known = ~np.isnan(every)
    count = weights[:, known].sum(axis=1)
    total = weights[:, known] @ every[known]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _correlation(truth: Floats, expected: Floats) -> float:
    if len(truth) < _MIN_PAIRS or truth.std() < 1e-9:
        return float("nan")
    if expected.std() < 1e-9:
        return 0.0
    return float(np.corrcoef(truth, expected)[0, 1])


def _ndcg(gain: Floats, expected: Floats) -> float:
    """Normalised discounted cumulative gain at 10; NaN where all gains are alike."""
    if len(gain) < 2 or np.ptp(gain) < 1e-9:
        return float("nan")
    ranks = np.arange(len(gain))
    discount = np.where(ranks < _CUT, 1 / np.log2(ranks + 2), 0.0)
    order = np.argsort(-expected, kind="stable")
    _, group = np.unique(-expected[order], return_inverse=True)
    shared = np.bincount(group, discount) / np.bincount(group)
    ideal = float(np.sort(gain)[::-1] @ discount)
    return float(gain[order] @ shared[group]) / ideal


def fidelity_markdown(table: pl.DataFrame) -> str:
    """The table of fidelity as Markdown, a row per kind and figure."""

    def figure(row: dict[str, Any], name: str) -> str:
        prefix = f"{name}_" if name else ""
        if row[name or "value"] is None:
            return "-"
        return "{:.3f} [{:.3f}, {:.3f}]".format(
            *(row[k] for k in (name or "value", f"{prefix}low", f"{prefix}high"))
        )

    lines = ["| pairs | figure | surrogate | floor | difference |", "|---|---|--:|--:|--:|"]
    for row in table.iter_rows(named=True):
        pairs = f"{row['kind']} ({row['pairs']:,} of {row['personas']:,} personas)"
        cells = [figure(row, name) for name in ("", "floor", "difference")]
        lines.append(f"| {' | '.join([escape_markdown(pairs), row['figure'], *cells])} |")
    return "\n".join(lines)
