"""Figures of a rating model on held-out ratings of people, by slice, beside baselines.

Every predictor is fitted without the people and items that are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipelines.errors import ContractError
from pipelines.llm.engines.checkpoints import no_progress_bars
from pipelines.prompts import PUBLIC_MEANS, PromptStyle
from pipelines.raters.report.calibration import Calibration, fit_calibration
from pipelines.raters.report.held_out import (
    BIAS,
    People,
    ask_about,
    in_source_units,
    predict_baseline,
)
from pipelines.raters.report.metrics import (
    Predictions,
    evaluate,
    paired_difference,
    paired_loss_difference,
)
from pipelines.raters.statistical.fit import fit_statistical
from pipelines.raters.statistical.profiles import HumanRows
from pipelines.scales import RatingScale
from pipelines.study import table
from pipelines.tuning._examples import (
    Describer,
    HeldOut,
    LineWriter,
    asked_rows,
    training_rows,
    training_stats,
)
from pipelines.tuning._recipe import RatingModel

Floats = npt.NDArray[np.float64]
#: Slices of held-out ratings, by name.
SLICES = {
    "later": "later ratings of people who were trained on",
    "new_users": "ratings of people who are in no training row, their earlier ones being shown",
    "new_items": "ratings of items that are in no training row, by people who were trained on",
    "no_history": "the ratings of `later`, with a description of the person and no history",
}
_BASELINES = ("global mean", "item mean", BIAS, "ALS (Surprise BaselineOnly)", "MF (Surprise SVD)")
STATISTICAL = "statistical"
#: Differences of RMSE by name, and the predictor that they are to.
_COMPARED = (("rmse_difference", BIAS), ("statistical_difference", STATISTICAL))
#: Distributions by the model: examples to (distributions over the style's answers, in order).
Ask = Callable[[pl.DataFrame], Floats]


@dataclass(frozen=True)
class Judged:
    """Figures of all predictors, a row per slice, predictor and metric."""

    table: pl.DataFrame

    def value(self, slice_: str, predictor: str, metric: str) -> float:
        """One figure."""
        rows = self.table.filter(slice=slice_, predictor=predictor, metric=metric)
        return float(rows["value"][0])

    def markdown(self) -> str:
        """Tables for people, under a sentence on the baselines that beat the model."""
        metrics = (
            *("rmse", "rmse_difference", "statistical_difference", "nll", "nll_difference"),
            *("ece", "similarity", "ndcg@10", "pairwise"),
        )
        parts = [self.lost()]
        for name, text in SLICES.items():
            rows = self.table.filter(slice=name)
            if not rows.height:
                continue
            parts.append(
                f"Slice `{name}` ({text}): {rows['ratings'][0]:,} {rows['split'][0]} ratings of "
                f"{rows['users'][0]:,} people."
            )
            lines = [["predictor", "kind", *metrics]]
            for predictor in rows["predictor"].unique(maintain_order=True):
                values = {r["metric"]: r for r in rows.filter(predictor=predictor).to_dicts()}
                cells = [
                    f"{values[m]['value']:.4f} [{values[m]['low']:.4f}, {values[m]['high']:.4f}]"
                    if m in values
                    else "-"
                    for m in metrics
                ]
                lines.append([predictor, next(iter(values.values()))["kind"], *cells])
            parts.append(table(lines, numeric=range(2, 2 + len(metrics))))
        parts.append(
            f"95 % intervals of a bootstrap over users. `rmse_difference` and `nll_difference` "
            f"are to {BIAS} and to {STATISTICAL}, `statistical_difference` is the RMSE's to "
            f"{STATISTICAL}; below zero is better."
        )
        return "\n\n".join(parts)

    def lost(self) -> str:
        """A sentence on what the calibrated model does not beat."""
        worse = []
        for name in SLICES:
            for metric, other in _COMPARED:
                rows = self.table.filter(slice=name, predictor=MODEL, metric=metric)
                if rows.height and rows["high"][0] >= 0:
                    worse.append(f"{other} on `{name}` ({rows['value'][0]:+.3f} RMSE)")
        if not worse:
            return "The calibrated model beats user and item bias and the statistical rater."
        return f"The calibrated model does not beat {', '.join(worse)}."


#: Names of the model's rows.
RAW, MODEL, PLAIN = "rating model", "rating model, calibrated", "rating model, no votes"


def judge_model(
    ask: Ask,
    calibrate: Callable[[Floats], Floats],
    *,
    items: pl.DataFrame,
    interactions: pl.DataFrame | pl.LazyFrame,
    splits: pl.DataFrame | pl.LazyFrame,
    source: RatingScale,
    style: PromptStyle,
    held_out: HeldOut,
    item_embeddings: pl.DataFrame | None = None,
    split: str = "test",
    history: int = 56,
    seed: int = 0,
) -> Judged:
    """Compare a model, as it is and calibrated, with baselines on every slice.

    Parameters
    ----------
    ask
        The model's distributions over the style's answers, one per target of examples.
    calibrate
        Map to calibrated distributions.
    items, interactions, splits, item_embeddings
        Tables of those names.
    source, style
        Scale of the ratings, and the ledger's style.
    held_out
        People and items that were in no training row.
    split
        Split that is predicted.
    history
        Earlier ratings shown at most (count).
    seed
        Of descriptions, matrix factorisation and the bootstrap.
    """
    train = training_rows(interactions, splits, held_out)
    stats = training_stats(items, train)
    nobody = HeldOut(frozenset(), frozenset())
    past = training_rows(interactions, splits, HeldOut(frozenset(), held_out.items))
    targets = training_rows(interactions, splits, nobody, split)
    new_user = pl.col("user_id").is_in(sorted(held_out.users))
    new_item = pl.col("item_id").is_in(sorted(held_out.items))
    parts = {
        "later": targets.filter(~new_user & ~new_item),
        "new_users": targets.filter(new_user & ~new_item),
        "new_items": targets.filter(~new_user & new_item),
    }
    parts["no_history"] = parts["later"]
    pairs = splits.lazy().join(train.lazy().select("user_id", "item_id"), on=["user_id", "item_id"])
    plain = items.drop([c for pair in PUBLIC_MEANS for c in pair[:2] if c in items.columns])
    statistical = {
        name: fit_statistical(
            scale=style.scale,
            items=table,
            item_stats=stats,
            interactions=interactions,
            splits=pairs,
            item_embeddings=item_embeddings,
            seed=seed,
        )
        for name, table in {STATISTICAL: items, f"{STATISTICAL}, no votes": plain}.items()
        if name == STATISTICAL or plain.width < items.width
    }
    frames = []
    for name, rows in parts.items():
        if not rows.height:
            continue
        cold = name == "no_history"
        predictions: list[tuple[str, Predictions]] = []
        fitted = _people(items, train, rows, source)
        predictions += [
            ("baseline", predict_baseline(baseline, fitted, seed=seed))
            for baseline in (_BASELINES[:2] if cold else _BASELINES)
        ]
        shown = _people(items, past, rows, source)
        given_by = {k: ask_about(r, shown, histories=not cold) for k, r in statistical.items()}
        predictions += [
            ("statistical", replace(answers.predictions, name=label))
            for label, answers in given_by.items()
        ]
        lines = LineWriter(items, source, style)
        people = Describer(items, _with_means(train, stats), source, style, seed)
        for votes in (True, False) if plain.width < items.width else (True,):
            examples = asked_rows(
                _with_means(past, stats),
                _with_means(rows, stats),
                lines,
                history=0 if cold else history,
                people=people if cold else None,
                votes=votes,
            )
            given = ask(examples)
            if votes:
                predictions.append(("language model", _mapped(RAW, given, style.scale, source)))
            better = calibrate(given)
            predictions.append(
                ("language model", _mapped(MODEL if votes else PLAIN, better, style.scale, source))
            )
        frames.append(_figures(name, split, fitted, predictions, seed))
    return Judged(pl.concat(frames))


def _mapped(name: str, p: Floats, scale: RatingScale, source: RatingScale) -> Predictions:
    return Predictions(name, *in_source_units(p, scale, source))


def _with_means(rows: pl.DataFrame, stats: pl.DataFrame) -> pl.DataFrame:
    return rows.join(
        stats.select("item_id", raters="train_ratings", mean="train_mean_rating"),
        on="item_id",
        how="left",
        maintain_order="left",
    )


def _people(
    items: pl.DataFrame, past: pl.DataFrame, rated: pl.DataFrame, source: RatingScale
) -> People:
    users = sorted({*past["user_id"], *rated["user_id"]})
    row = {item: n for n, item in enumerate(items["item_id"])}

    def human(rows: pl.DataFrame, names: list[str]) -> HumanRows:
        place = {user: n for n, user in enumerate(names)}
        return HumanRows(
            names,
            np.array([place[u] for u in rows["user_id"]], dtype=np.int64),
            np.array([row[i] for i in rows["item_id"]], dtype=np.int64),
            rows["rating"].to_numpy(),
        )

    return People(items, human(past, users), human(rated, sorted(set(rated["user_id"]))), source)


def _figures(
    name: str,
    split: str,
    people: People,
    predictions: Sequence[tuple[str, Predictions]],
    seed: int,
) -> pl.DataFrame:
    truth = people.truth()
    by_name = {p.name: p for _, p in predictions}
    rows: list[Mapping[str, Any]] = []
    for kind, prediction in predictions:
        figures = evaluate(prediction, truth, seed=seed)
        for metric, other in _COMPARED:
            if other in by_name and prediction.name != other:
                figures[metric] = paired_difference(prediction, by_name[other], truth, seed=seed)
        if prediction.probabilities is not None and prediction.name != STATISTICAL:
            figures["nll_difference"] = paired_loss_difference(
                prediction, by_name[STATISTICAL], truth, seed=seed
            )
        rows += [
            {
                "split": split,
                "slice": name,
                "predictor": prediction.name,
                "kind": kind,
                "metric": metric,
                **figure,
                "ratings": len(truth.rating),
                "users": truth.users,
            }
            for metric, figure in figures.items()
        ]
    return pl.DataFrame(rows)


def check_predictable(table: Judged) -> str | None:
    """Reason that a model may not be used (worse than the item mean), or None."""
    model, mean = (table.value("later", name, "rmse") for name in (MODEL, "item mean"))
    if not np.isfinite(model):
        raise ContractError("the model's error is not a number", where=f"{model}")
    if model <= mean:
        return None
    return f"RMSE {model:.4f} on validation ratings, the item mean has {mean:.4f}"


def calibrate_model(model: RatingModel, examples: pl.DataFrame) -> Calibration:
    """Fit a calibration on all validation examples."""
    rows = examples.filter(pl.col("split") != "train")
    targets = rows.filter(split="validation")
    scale = model.prompts.style.scale
    answer = np.rint((targets["rating"].to_numpy() - scale.low) / scale.step).astype(np.int64)
    user = np.unique(targets["user_id"].to_numpy(), return_inverse=True)[1]
    return fit_calibration(model.ask(rows), answer, user)


def save_model(
    model: RatingModel,
    calibration: Calibration,
    judged: Judged,
    facts: Mapping[str, Any],
    folder: Path,
) -> list[Path]:
    """Write the files of a model: what engines open, its calibration, figures and card.

    ``facts`` name the data (`source`), its `terms`, whether the model may be `redistributed`, and
    whatever else the figures' file is to hold (JSON).
    """
    folder.mkdir(parents=True)
    with no_progress_bars():
        model.model.save_pretrained(folder)
    if model.base is None:
        model.prompts.tokenizer.save_pretrained(folder)
    else:
        model.base.checkpoint.copy_tokenizer(folder)
    (folder / "calibration.json").write_bytes(calibration.to_json(model.prompts.style.scale.name))
    figures = {
        **facts,
        "training": {
            "best_step": model.best["step"],
            "validation_nll": model.best["nll"],
            "looks": list(model.course),
            "tokens": model.tokens,
            "targets": model.targets,
            "parameters": sum(p.numel() for p in model.model.parameters()),
        },
        "calibration": calibration.metadata(),
        "figures": judged.table.to_dicts(),
    }
    (folder / "metrics.json").write_bytes(
        orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    )
    (folder / "README.md").write_text(_card(model, judged, facts), encoding="utf-8")
    return sorted(folder.iterdir())


def _card(model: RatingModel, judged: Judged, facts: Mapping[str, Any]) -> str:
    from huggingface_hub import ModelCard, ModelCardData

    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        language="en",
        license="other",
        license_name=str(facts["source"]),
        tags=["recommender-systems", "ratings", "simulated-users"],
    )
    may = (
        "It may be passed on under the terms of its data."
        if facts["redistributed"]
        else "**It may not be redistributed**: the terms of its data forbid it."
    )
    size = sum(p.numel() for p in model.model.parameters())
    origin = "from random weights"
    if model.base is not None:
        origin = f"by LoRA on {model.base.checkpoint.name} (whose licence holds, too)"
    return str(
        ModelCard(f"""---
{data.to_yaml()}
---

# Rating model

A causal language model of {size:,} parameters, trained {origin} on people's ratings as ledgers
(`scoring.layout: ledger`). It continues such lists with a rating; what else it writes means
nothing.

## Data and terms

{facts["source"]}. {facts["terms"]} {may}

## Against leaks

Only training ratings of people and items that are not held out are targets. A line's history is
earlier than it; the mean beside a training line is of what others gave before; a description is of
ratings before its window; the tokenizer has seen training text only. Held-out people and items
({facts["held_out_users"]:,} and {facts["held_out_items"]:,}) are in no training row.

## Figures

{judged.markdown()}

## Limits

People in the data say nothing about themselves. Descriptions were made from what they had rated
before, in the words of our personas: the model has learnt how people rate whose *past* reads so,
not how people rate who *say* so.
""")
    )
