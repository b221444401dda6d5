"""Evaluation of raters on held-out human ratings, beside baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipelines.errors import ContractError
from pipelines.personas import reading_counts, reading_statement
from pipelines.raters.protocol import Rater
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
from pipelines.study import Figure, Row, Study, draw

#: Published RMSE on MovieLens 1M's test ratings, for comparison.
CONTEXT = {"constant": 1.096, "ALS": 1.103, "GPT-4o-mini, zero-shot": 1.738}
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
_FIGURES = {
    "rmse": "root mean square error (units of the source's scale)",
    DIFFERENCE: f"RMSE minus that of {BIAS} on the same ratings: below zero is better",
    "mae": "mean absolute error (units of the source's scale)",
    "ndcg@10": "of a person's ranked list, 0-1",
    "pairwise": "share of a person's pairs in the right order, 0-1",
    "nll": "negative log-likelihood (nats)",
    "ece": "expected calibration error, 0-1",
    "similarity": "1 - total variation from people's histogram, 0-1",
}


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
        """The page of :meth:`study`."""
        return self.study().markdown()

    def study(self) -> Study:
        """The figures as a study: a table per split, the lowest error first."""
        study = Study(
            "raters",
            "How well do raters predict held-out ratings of people?",
            figures=_FIGURES,
            conditions=("split", "predictor"),
            legend="95 % intervals of a bootstrap over users in brackets; n counts ratings. Source "
            "`statistical` and `baseline`: no language model.",
            published=[
                Row({"predictor": name}, "paper", {"rmse": e}) for name, e in CONTEXT.items()
            ],
        )
        for split, text in SPLITS.items():
            table = self.table.filter(split=split)
            order = table.filter(metric="rmse").sort("value", maintain_order=True)["predictor"]
            study.rows += [_row(split, table.filter(predictor=name)) for name in order]
            if len(order):
                statement = self.metadata["statements"][split]
                study.notes.append(f"Split `{split}`: {text}. {statement}")
        study.notes.append(f"People as personas: {reading_statement(self.metadata['reading'])}")
        return study


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
    collect = partial(
        collect_people,
        items=items,
        interactions=interactions,
        splits=splits,
        human_users=human_users,
        most_train=most_train,
        most=most,
    )
    people = collect(split=split)
    all_rows = np.ones(len(people.held_out), dtype=np.bool_)
    bias = predict_baseline(BIAS, people, seed=seed)
    metrics: list[dict[str, Any]] = []
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
        counts = {"ratings": len(truth.rating), "users": truth.users, "failed": failed}
        first = {"split": scheme, "predictor": predictions.name, "kind": kind}
        metrics.extend(
            {**first, "metric": metric, **figure, **counts, "statistical": statistical}
            for metric, figure in figures.items()
        )
        rows = reliability(predictions, truth)
        curves.extend({"split": scheme, "predictor": predictions.name, **row} for row in rows)

    def calibrated_on(rater: Rater, count: int) -> Calibration | None:
        """Fit on validation ratings; None if there are too few, or no distributions."""
        try:
            sample = collect(split="validation")
            answers = ask_about(rater, sample, most=count, histories=scheme != "cold")
            given = sample.truth(answers.answered)
            if answers.predictions.probabilities is None:
                return None
            place = np.rint((given.rating - sample.scale.low) / sample.scale.step).astype(np.int64)
            other = predict_baseline(BIAS, sample, seed=seed).expected[answers.answered]
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
                given, name = answers.predictions.probabilities, answers.predictions.name
                assert given is not None
                p = fitted(given, bias.expected[answers.answered])
                better = Predictions(f"{name}, calibrated", p @ people.scale.answers, p)
                judge(better, answers.answered, answers.failed, kind, statistical=without)
    for name in baselines:
        predictions = bias if name == BIAS else predict_baseline(name, people, seed=seed)
        judge(predictions, all_rows, 0, "baseline", statistical=True)
    facts = _facts(raters, people, split, scheme) | {"calibration": calibrations}
    rows = pl.DataFrame(metrics).sort("split", "predictor", "metric")
    return RaterReport(rows, curves, facts)


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
    statistical = next(r for r in raters if isinstance(r, StatisticalRater))
    plain = items.drop([name for name in VOTES if name in items.columns])

    def without_votes(stats: pl.DataFrame, parts: Table) -> list[Rater]:
        if plain.width == items.width:
            return []
        return [replace(fitted(plain, stats, parts), name="statistical, no votes")]

    fit = partial(
        fit_statistical,
        scale=statistical.scale,
        item_embeddings=item_embeddings,
        interactions=interactions,
        seed=seed,
    )
    report = partial(
        rater_report,
        items=items,
        interactions=interactions,
        human_users=human_users,
        seed=seed,
        resamples=resamples,
    )

    def fitted(table: pl.DataFrame, stats: pl.DataFrame, parts: Table) -> StatisticalRater:
        return fit(items=table, item_stats=stats, splits=parts)

    names = [b for b in BASELINES if plain.width < items.width or not b.endswith("no votes")]
    names = [b for b in names if not b.endswith("no person")]
    plainly = without_votes(item_stats, splits)
    reports = [
        report([*raters, *plainly], splits=splits, limits=limits, baselines=names),
        report([statistical, *plainly], splits=splits, scheme="cold", baselines=COLD_BASELINES),
    ]
    later = time_split(items, interactions)
    if later is not None:
        stats, parts = later
        refitted = [fitted(items, stats, parts), *without_votes(stats, parts)]
        reports.append(report(refitted, splits=parts, scheme="time", baselines=names))
    metadata = {**reports[0].metadata, "statements": {}}
    for part in reports:
        metadata["statements"] |= part.metadata["statements"]
    return RaterReport(
        pl.concat([part.table for part in reports]).sort("split", "predictor", "metric"),
        [row for part in reports for row in part.reliability],
        metadata,
    )


def reliability_plot(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A PNG: share of right answers against confidence, per predictor."""
    lines: dict[str, dict[str, float]] = {"perfect": {"0": 0.0, "1": 1.0}}
    for row in rows:
        if row.get("split", "user") == "user":
            points = lines.setdefault(str(row["predictor"]), {})
            points[f"{row['confidence']:.9f}"] = row["accuracy"]
    title = "Reliability on held-out ratings"
    return draw({"": lines}, title=title, x="confidence", y="share right", lines=True)


def _facts(raters: Sequence[Rater], people: People, split: str, scheme: str) -> dict[str, Any]:
    held, train = people.held_out, people.train
    genres = people.items["genres"].explode().drop_nulls().unique().sort().to_list()
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
        # People rated by a field, by text and by neither.
        "reading": reading_counts(persona_rows(held.users, people.traits), genres),
        "baseline_ratings": len(train),
        "baseline_users": len(train.users),
        "raters": {rater.name: rater.metadata() for rater in raters},
    }


def _row(split: str, rows: pl.DataFrame) -> Row:
    first = rows.row(0, named=True)
    figures = rows.select("metric", "value", "low", "high").iter_rows()
    source = "statistical" if first["statistical"] else "model"
    return Row(
        {"split": split, "predictor": first["predictor"]},
        source if first["kind"] == "rater" else "baseline",
        {metric: Figure(*figure) for metric, *figure in figures},
        first["ratings"],
        measure="" if split == "user" else f"split `{split}`",
    )
