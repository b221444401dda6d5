"""Evaluation of raters on held-out human ratings, beside baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from pipelines.errors import ContractError
from pipelines.personas import reading_counts, reading_statement
from pipelines.raters.protocol import Floats, Rater
from pipelines.raters.report._calibrate import Calibration, fit_calibration
from pipelines.raters.report._held_out import (
    People,
    Table,
    ask_about,
    collect_people,
    persona_rows,
    time_split,
)
from pipelines.raters.report._metrics import Predictions, evaluate, paired_difference, reliability
from pipelines.raters.report._predictors import (
    BASELINES,
    BIAS,
    COLD_BASELINES,
    VOTES,
    predict_baseline,
)
from pipelines.raters.statistical import StatisticalRater, fit_statistical
from pipelines.scales import RatingScale

#: Published results, for comparison.
CONTEXT = (
    "For context, not measured here: others report, on MovieLens 1M's test ratings, RMSE 1.096 for "
    "a constant, 1.103 for ALS and 1.738 for zero-shot GPT-4o-mini."
)
#: Raters that need no language model; two of them know nothing of the person.
_WITHOUT_MODEL = frozenset({"statistical", "statistical, no votes", "random", "mean"})
_FLOORS = frozenset({"random", "mean"})
#: Selections of held-out ratings, by name.
SPLITS = {
    "user": "the latest tenth of each person's ratings, the earlier ones being its history",
    "cold": "the same ratings with nothing known of the person, as of a persona without a history",
    "time": "ratings after one point in time (the 90 % quantile of all), earlier ones being known",
}
#: The paired comparison's name among the metrics.
DIFFERENCE = "rmse_difference"
_COLUMNS = ("rmse", DIFFERENCE, "mae", "ndcg@10", "pairwise", "nll", "ece", "similarity")


@dataclass(frozen=True)
class RaterReport:
    """The report."""

    #: The `rater_report` contract, in its order.
    table: pl.DataFrame
    #: Rows ``predictor, bin, ratings, accuracy, confidence``.
    reliability: list[dict[str, Any]]
    #: Data of each fit, counts, and each rater's own metadata. Ready for JSON.
    metadata: dict[str, Any]

    def markdown(self) -> str:
        """The figures as a table for people, with what they mean."""
        lines = []
        for split, text in SPLITS.items():
            wide = self.table.filter(split=split).partition_by("predictor", maintain_order=True)
            if not wide:
                continue
            lines += [
                f"Split `{split}`: {text}. {self.metadata['statements'][split]}",
                "",
                "| predictor | kind | ratings | " + " | ".join(_COLUMNS) + " |",
                "|---|---|--:|" + "--:|" * len(_COLUMNS),
            ]
            for rows in sorted(wide, key=lambda r: _value(r, "rmse")):
                cells = [_cell(rows, metric) for metric in _COLUMNS]
                first = rows.row(0, named=True)
                lines.append(
                    f"| {first['predictor']} | {first['kind']} | {first['ratings']:,} | "
                    + " | ".join(cells)
                    + " |"
                )
            lines.append("")
        lines += [
            f"95 % intervals of a bootstrap over users in brackets. `{DIFFERENCE}` is the RMSE "
            f"minus that of {BIAS} on the same ratings: below zero is better.",
            "",
            f"People as personas: {reading_statement(self.metadata['reading'])}",
            "",
            CONTEXT,
        ]
        return "\n".join(lines)


def rater_report(
    raters: Sequence[Rater],
    *,
    items: pl.DataFrame,
    interactions: Table,
    splits: Table,
    human_users: pl.DataFrame | None = None,
    split: str = "test",
    scheme: str = "user",
    baselines: Sequence[str] = tuple(BASELINES),
    most: int = 100_000,
    most_train: int = 1_000_000,
    limits: Mapping[str, int] | None = None,
    seed: int = 0,
    resamples: int = 1_000,
) -> RaterReport:
    """Compare raters and baselines on the same held-out ratings of people.

    Each user is a persona with the text of its traits and with its training ratings as the
    history. Every predictor was fitted on training ratings only.

    Parameters
    ----------
    raters
        Fitted raters, of any kind.
    items, interactions, splits, human_users
        Tables of those names; the large ones may be lazy.
    split
        Predicted split: ``test`` or ``validation``.
    scheme
        Origin of `splits`, a key of :data:`SPLITS`. With ``cold``, raters are given no
        history.
    baselines
        Names from :data:`pipelines.raters.BASELINES`; the paired difference needs the user and
        item bias, which is always fitted.
    most, most_train
        Held-out ratings, and training ratings that baselines are fitted on, at most (count):
        whole users, chosen by a hash of their ids, so that cost does not grow with the source.
    limits
        Fewer held-out ratings for some raters, by name (count); for those that cost much. They
        are judged as they are and once more calibrated on as many validation ratings
        (`fit_calibration`), unless these are of fewer than five users.
    seed, resamples
        Of the matrix factorisation and of the bootstrap.

    Raises
    ------
    ContractError
        If there is no held-out rating, or a rater answers none of them.
    """
    people = collect_people(
        items=items,
        interactions=interactions,
        splits=splits,
        split=split,
        human_users=human_users,
        most_train=most_train,
        most=most,
    )
    whole = np.ones(len(people.held_out), dtype=np.bool_)
    bias = predict_baseline(BIAS, people, seed=seed)
    frames: list[pl.DataFrame] = []
    curves: list[dict[str, Any]] = []

    def judge(
        predictions: Predictions, answered: np.ndarray, failed: int, kind: str, *, statistical: bool
    ) -> None:
        truth = people.truth(answered)
        figures = evaluate(predictions, truth, seed=seed, resamples=resamples)
        if predictions.name != BIAS:
            same = Predictions(BIAS, bias.expected[answered])
            figures[DIFFERENCE] = paired_difference(
                predictions, same, truth, seed=seed, resamples=resamples
            )
        frames.append(
            pl.DataFrame(
                [
                    {
                        "split": scheme,
                        "predictor": predictions.name,
                        "kind": kind,
                        "metric": metric,
                        **figure,
                        "ratings": len(truth.rating),
                        "users": truth.users,
                        "failed": failed,
                        "statistical": statistical,
                    }
                    for metric, figure in figures.items()
                ]
            )
        )
        rows = reliability(predictions, truth)
        curves.extend({"split": scheme, "predictor": predictions.name, **row} for row in rows)

    def calibrated_on(rater: Rater, count: int) -> Calibration | None:
        """Fit on validation ratings; None if there are too few, or no distributions."""
        try:
            known = collect_people(
                items=items,
                interactions=interactions,
                splits=splits,
                split="validation",
                human_users=human_users,
                most_train=most_train,
                most=most,
            )
            answers = ask_about(rater, known, most=count, histories=scheme != "cold")
            given = known.truth(answers.answered)
            if answers.predictions.probabilities is None:
                return None
            place = np.rint((given.rating - known.scale.low) / known.scale.step).astype(np.int64)
            other = predict_baseline(BIAS, known, seed=seed).expected[answers.answered]
            return fit_calibration(answers.predictions.probabilities, place, given.user, other)
        except ContractError:
            return None

    calibrations: dict[str, Any] = {}
    for rater in raters:
        most_of_it = (limits or {}).get(rater.name)
        answers = ask_about(rater, people, most=most_of_it, histories=scheme != "cold")
        kind = "floor" if rater.name in _FLOORS else "rater"
        without = rater.name in _WITHOUT_MODEL
        judge(answers.predictions, answers.answered, answers.failed, kind, statistical=without)
        if most_of_it is not None and split == "test":
            fitted = calibrated_on(rater, most_of_it)
            if fitted is not None:
                calibrations[rater.name] = fitted.metadata()
                other = bias.expected[answers.answered]
                better = _calibrated(answers.predictions, fitted, other, people.scale)
                judge(better, answers.answered, answers.failed, kind, statistical=without)
    for name in baselines:
        found = bias if name == BIAS else predict_baseline(name, people, seed=seed)
        judge(found, whole, 0, "baseline", statistical=True)
    table = pl.concat(frames).sort("split", "predictor", "metric")
    facts = _facts(raters, people, split, scheme) | {"calibration": calibrations}
    return RaterReport(table, curves, facts)


def _calibrated(
    predictions: Predictions, fitted: Calibration, baseline: Floats, scale: RatingScale
) -> Predictions:
    assert predictions.probabilities is not None
    better = fitted(predictions.probabilities, baseline)
    return Predictions(f"{predictions.name}, calibrated", better @ scale.answers, better)


def whole_report(
    raters: Sequence[Rater],
    *,
    items: pl.DataFrame,
    item_stats: pl.DataFrame,
    interactions: Table,
    splits: Table,
    item_embeddings: pl.DataFrame | None = None,
    human_users: pl.DataFrame | None = None,
    limits: Mapping[str, int] | None = None,
    seed: int = 0,
    resamples: int = 1_000,
) -> RaterReport:
    """Compare raters on all of :data:`SPLITS`; the statistical rater with and without votes.

    The split in time refits the statistical rater; other raters are judged on people's own split.
    Raters are fitted; the first statistical one decides the scale. Large tables may be lazy;
    ``limits``, ``seed`` and ``resamples`` are those of :func:`rater_report`.
    """
    known = next(r for r in raters if isinstance(r, StatisticalRater))
    plain = items.drop([name for name in VOTES if name in items.columns])

    def without_votes(stats: pl.DataFrame, parts: Table) -> list[Rater]:
        if plain.width == items.width:
            return []
        return [replace(fitted(plain, stats, parts), name="statistical, no votes")]

    def fitted(table: pl.DataFrame, stats: pl.DataFrame, parts: Table) -> StatisticalRater:
        return fit_statistical(
            scale=known.scale,
            items=table,
            item_stats=stats,
            interactions=interactions,
            splits=parts,
            item_embeddings=item_embeddings,
            seed=seed,
        )

    def report(chosen: Sequence[Rater], parts: Table, **more: Any) -> RaterReport:
        return rater_report(
            chosen,
            items=items,
            interactions=interactions,
            splits=parts,
            human_users=human_users,
            seed=seed,
            resamples=resamples,
            **more,
        )

    names = [b for b in BASELINES if plain.width < items.width or not b.endswith("no votes")]
    names = [b for b in names if not b.endswith("no person")]
    plainly = without_votes(item_stats, splits)
    found = [
        report([*raters, *plainly], splits, limits=limits, baselines=names),
        report([known, *plainly], splits, scheme="cold", baselines=COLD_BASELINES),
    ]
    later = time_split(items, interactions)
    if later is not None:
        stats, parts = later
        refitted = [fitted(items, stats, parts), *without_votes(stats, parts)]
        found.append(report(refitted, parts, scheme="time", baselines=names))
    metadata = {**found[0].metadata, "statements": {}}
    for one in found:
        metadata["statements"] |= one.metadata["statements"]
    return RaterReport(
        pl.concat([one.table for one in found]).sort("split", "predictor", "metric"),
        [row for one in found for row in one.reliability],
        metadata,
    )


def reliability_plot(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A PNG: share of right answers against confidence, per predictor."""
    from pipelines.figures import BLUE, ORANGE, canvas, empty, label, png

    title = "reliability on held-out ratings"
    if not rows:
        return empty(title)
    figure, axes = canvas(title, "confidence", "share right", height=4.4, width=5.2)
    axes.plot([0, 1], [0, 1], color="#777777", linewidth=1, linestyle="--", label="perfect")
    colours = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
    shown = [row for row in rows if row.get("split", "user") == "user"]
    names = list(dict.fromkeys(str(row["predictor"]) for row in shown))
    for n, name in enumerate(names):
        own = [row for row in shown if row["predictor"] == name]
        axes.plot(
            [row["confidence"] for row in own],
            [row["accuracy"] for row in own],
            color=colours[n % len(colours)],
            marker="os^Dv*"[n % 6],
            markersize=5,
            label=label(name),
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return png(figure)


def _facts(raters: Sequence[Rater], people: People, split: str, scheme: str) -> dict[str, Any]:
    held, train = people.held_out, people.train
    count = f"{len(held):,} {split} ratings of {len(held.users):,} people"
    models = sorted({r.name for r in raters} - _WITHOUT_MODEL)
    model = (
        f"`{'`, `'.join(models)}` may ask a language model; no other predictor does."
        if models
        else "No predictor here asks a language model."
    )
    statement = (
        f"{count}. Raters and baselines were fitted on training ratings only, the baselines on "
        f"{len(train):,} of {len(train.users):,} people. The statistical rater is an ordinal "
        f"regression and uses no language model. {model}"
    )
    return {
        "statements": {scheme: statement},
        "context": CONTEXT,
        "split": split,
        "scale": people.scale.name,
        "held_out_ratings": len(held),
        "held_out_users": len(held.users),
        "reading": _readings(people),
        "baseline_ratings": len(train),
        "baseline_users": len(train.users),
        "raters": {rater.name: rater.metadata() for rater in raters},
    }


def _readings(people: People) -> dict[str, int]:
    """Count the people rated by a field, by text and by neither."""
    genres = people.items["genres"].explode().drop_nulls().unique().sort().to_list()
    return reading_counts(persona_rows(people.held_out.users, people.traits), genres)


def _value(rows: pl.DataFrame, metric: str) -> float:
    return float(rows.filter(pl.col("metric") == metric)["value"][0])


def _cell(rows: pl.DataFrame, metric: str) -> str:
    found = rows.filter(pl.col("metric") == metric)
    if not found.height:
        return "-"
    row = found.row(0, named=True)
    return f"{row['value']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"
