"""Fidelity of a surrogate: its answers beside its teacher's on held-out pairs, and baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from pipelines.markdown import escape_markdown
from pipelines.raters import KINDS, total_variation
from pipelines.raters.protocol import Floats, Ints
from pipelines.scales import RatingScale
from pipelines.surrogates._learn import Pairs

#: Figures, and whether a larger one is better.
FIGURES = {"rmse": False, "correlation": True, "total_variation": False, "ndcg@10": True}
#: Passes of the additive fit, pairs that a persona's correlation needs, cut of NDCG, and resamples
#: of the bootstrap (counts).
_PASSES, _MIN_PAIRS, _CUT, _RESAMPLES = 20, 5, 10, 1_000


def baseline(train: Pairs, judged: Pairs, kind: str, scale: RatingScale) -> tuple[Floats, Floats]:
    """Expected ratings and distributions of pairs by means of those that were learned from.

    Those of a seen persona and item are the additive fit of both (its distribution the mean of both
    means), of an unseen persona the item's mean, of an unseen item the persona's mean, and a
    constant where both are unseen.
    """
    overall = train.target.mean(axis=0)
    rows = {"person": (train.person, judged.person), "item": (train.item, judged.item)}
    size = {n: 1 + max(int(r.max(initial=0)) for r in both) for n, both in rows.items()}
    count = {n: np.bincount(rows[n][0], minlength=size[n]) for n in rows}

    def means(name: str) -> Floats:
        sums = np.stack(
            [np.bincount(rows[name][0], column, size[name]) for column in train.target.T], axis=1
        )
        averages = sums / np.maximum(count[name], 1)[:, None]
        return np.where(count[name][:, None] > 0, averages, overall)[rows[name][1]]

    if kind == KINDS[3]:
        shares = np.broadcast_to(overall, judged.target.shape)
    elif kind == KINDS[0]:
        shares = (means("person") + means("item")) / 2
        level, effect = float(overall @ scale.answers), {n: np.zeros(size[n]) for n in rows}
        above = train.target @ scale.answers - level
        for _ in range(_PASSES):
            for name, other in (("person", "item"), ("item", "person")):
                gaps = np.bincount(rows[name][0], above - effect[other][rows[other][0]], size[name])
                effect[name] = gaps / np.maximum(count[name], 1)
        both = level + effect["person"][judged.person] + effect["item"][judged.item]
        return np.clip(both, scale.low, scale.high), shares
    else:
        shares = means("person" if kind == KINDS[1] else "item")
    return shares @ scale.answers, shares


def compare(
    kind: str,
    pairs: Pairs,
    answers: tuple[Floats, Floats],
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

    ``pairs`` are held-out pairs with the teacher's distributions, on its ``scale``; ``answers`` and
    ``floor`` (the baseline) are expected ratings (pairs,) and distributions (pairs, answers). The
    bootstrap draws personas. Rows are those of the `surrogate_fidelity` contract; none without
    pairs.
    """
    if not len(pairs):
        return []
    people, person = np.unique(pairs.person, return_inverse=True)
    truth = pairs.target @ scale.answers
    size = np.bincount(person).astype(np.float64)
    drawn = np.random.default_rng(seed).multinomial(
        len(people), np.full(len(people), 1 / len(people)), _RESAMPLES
    )
    weights = np.vstack([np.ones(len(people)), drawn])

    def resampled(given: tuple[Floats, Floats]) -> dict[str, Floats]:
        """Each figure of all personas, then of each draw of them."""
        expected, shares = given
        by_persona = _by_persona(person, truth, expected, scale.low)
        apart = np.bincount(person, total_variation(shares, pairs.target))
        return {
            "rmse": np.sqrt(
                weights @ np.bincount(person, (expected - truth) ** 2) / (weights @ size)
            ),
            "correlation": _mean(weights, by_persona[0]),
            "total_variation": weights @ apart / (weights @ size),
            "ndcg@10": _mean(weights, by_persona[1]),
        }

    predicted, other = resampled(answers), resampled(floor)
    rows = []
    for figure in FIGURES:
        row: dict[str, Any] = {"kind": kind, "figure": figure}
        for name, values in (
            ("value", predicted[figure]),
            ("floor", other[figure]),
            ("difference", predicted[figure] - other[figure]),
        ):
            valid = values[1:][~np.isnan(values[1:])]
            ends = np.quantile(valid, [0.025, 0.975]) if len(valid) else (np.nan, np.nan)
            prefix = "" if name == "value" else f"{name}_"
            numbers = zip((name, f"{prefix}low", f"{prefix}high"), (values[0], *ends), strict=True)
            row |= {key: None if np.isnan(v) else float(v) for key, v in numbers}
        rows.append({**row, "pairs": len(pairs), "personas": len(people)})
    return rows


def _by_persona(person: Ints, truth: Floats, expected: Floats, low: float) -> Floats:
    """Correlation and NDCG@10 of each persona, of shape (2, personas); NaN where undefined."""
    from sklearn.metrics import ndcg_score

    order = np.argsort(person, kind="stable")
    groups = np.split(order, np.unique(person[order], return_index=True)[1][1:])
    out = np.full((2, len(groups)), np.nan)
    for n, rows in enumerate(groups):
        right, given = truth[rows], expected[rows]
        if len(rows) >= _MIN_PAIRS and right.std() >= 1e-9:
            out[0, n] = np.corrcoef(right, given)[0, 1] if given.std() >= 1e-9 else 0.0
        if len(rows) > 1 and np.ptp(right) >= 1e-9:
            out[1, n] = ndcg_score([right - low], [given], k=_CUT)
    return out


def _mean(weights: Floats, values: Floats) -> Floats:
    """Weighted means of the values that are numbers, for every row of weights."""
    valid = ~np.isnan(values)
    count = weights[:, valid].sum(axis=1)
    return np.where(count > 0, weights[:, valid] @ values[valid] / np.maximum(count, 1), np.nan)


def fidelity_markdown(table: pl.DataFrame) -> str:
    """The table of fidelity as Markdown, a row per kind and figure."""
    lines = ["| pairs | figure | surrogate | floor | difference |", "|---|---|--:|--:|--:|"]
    for row in table.iter_rows(named=True):
        cells = [
            "-" if row[name] is None
            else f"{row[name]:.3f} [{row[f'{prefix}low']:.3f}, {row[f'{prefix}high']:.3f}]"
            for name, prefix in (("value", ""), ("floor", "floor_"), ("difference", "difference_"))
        ]  # fmt: skip
        pairs = f"{row['kind']} ({row['pairs']:,} of {row['personas']:,} personas)"
        lines.append(f"| {' | '.join([escape_markdown(pairs), row['figure'], *cells])} |")
    return "\n".join(lines)
