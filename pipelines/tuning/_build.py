"""A rating model as a folder of files: trained, calibrated, judged, and described by a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipelines.config import TuningSettings
from pipelines.errors import ConfigError
from pipelines.llm.engines.checkpoints import no_progress_bars
from pipelines.prompts import PromptStyle
from pipelines.raters.report import Calibration, fit_calibration
from pipelines.tuning._adapt import Base
from pipelines.tuning._judge import Judged
from pipelines.tuning._scratch import CONTEXT, TITLED, make_model, train_tokenizer
from pipelines.tuning._train import (
    Encoder,
    Packed,
    Recipe,
    Trained,
    answer_distributions,
    pack,
    train,
    windows_of,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RatingModel:
    """A trained model, its tokenizer and the course of its training."""

    model: Any
    tokenizer: Any
    style: PromptStyle
    course: Trained
    tokens: int
    targets: int
    #: Adapted base model; None for a model from random weights.
    base: Base | None = None

    def _packed(self, examples: pl.DataFrame) -> tuple[Packed, list[int]]:
        """Examples as rows, and the token of each answer."""
        if self.base is None:
            encoder = Encoder(self.tokenizer)
            windows = windows_of(examples, encoder, CONTEXT)
            answers = [token for text in self.style.scale.texts for token in encoder.ids(text)]
        else:
            windows, answers = self.base.windows(examples), list(self.base.answers)
        return pack(windows, CONTEXT, self.tokenizer.pad_token_id or 0), answers

    def ask(self, examples: pl.DataFrame) -> Floats:
        """Distributions over the style's answers, one per target of examples, in their order."""
        packed, answers = self._packed(examples)
        rows, found, _ = answer_distributions(self.model, packed, answers)
        targets = np.flatnonzero((examples["split"] != "context").to_numpy())
        out = np.full((len(targets), len(answers)), np.nan)
        out[np.searchsorted(targets, rows)] = found
        if np.isnan(out).any():
            raise ConfigError("a line is longer than the context", where=f"{CONTEXT} tokens")
        return out

    def mass(self, examples: pl.DataFrame) -> float:
        """Mean probability of all answers together in the whole vocabulary."""
        packed, answers = self._packed(examples)
        return answer_distributions(self.model, packed, answers)[2]


def train_rating_model(
    examples: pl.DataFrame,
    style: PromptStyle,
    settings: TuningSettings,
    folder: Path,
    *,
    base: Base | None = None,
) -> RatingModel:
    """Train a model on rating examples, from random weights or by LoRA on a base.

    Parameters
    ----------
    examples
        Rows of the `rating_examples` contract.
    style
        The style that they were made with.
    settings
        Sizes and schedule.
    folder
        For checkpoints: a run that was killed goes on from there.
    base
        Model that is adapted (:func:`open_base`), by matrices that are merged at the end; None
        trains a small one from random weights.
    """
    rows = examples.filter(split="train")
    looked_at = _looked_at(examples, settings)
    recipe = Recipe(
        steps=settings.steps,
        batch=settings.batch,
        rate=settings.rate,
        dropout=settings.dropout,
        every=settings.every,
        patience=settings.patience,
        seed=settings.seed,
    )
    if base is None:
        tokenizer = _tokenizer(rows, style)
        encoder = Encoder(tokenizer)
        windows = windows_of(rows, encoder, CONTEXT)
        order = np.random.default_rng(settings.seed).permutation(len(windows))
        windows = [windows[n] for n in order]
        looked = windows_of(looked_at, encoder, CONTEXT)
        model = make_model(
            tokenizer, width=settings.width, layers=settings.layers, seed=settings.seed
        )
    else:
        tokenizer, model = base.tokenizer, base.model(settings.seed)
        names = rows["window"].unique().sort().sample(fraction=1, shuffle=True, seed=settings.seed)
        mixed = names.to_frame().with_row_index("place").join(rows, on="window")
        windows = base.windows(
            mixed.sort("place", "position"), limit=recipe.steps * recipe.batch * CONTEXT
        )
        looked = base.windows(looked_at)
    pad = tokenizer.pad_token_id or 0
    data, validation = pack(windows, CONTEXT, pad), pack(looked, CONTEXT, pad)
    course = train(model, data, validation, recipe, folder)
    if base is not None:
        model = model.merge_and_unload()
    tokens, targets = int((data.segment > 0).sum()), int((data.rows >= 0).sum())
    return RatingModel(model.eval(), tokenizer, style, course, tokens, targets, base)


def _tokenizer(rows: pl.DataFrame, style: PromptStyle) -> Any:
    """A tokenizer of training text."""
    first = rows.filter(pl.col("window").str.starts_with("0:"))
    titles = (
        first.group_by(title=pl.col("line").str.split(" | ").list.first())
        .len()
        .filter(pl.col("len") >= TITLED)["title"]
        .sort()
        .to_list()
    )
    texts = [*first["line"], *first["description"].unique().sort()]
    return train_tokenizer(texts, titles, style.scale)


def _looked_at(examples: pl.DataFrame, settings: TuningSettings) -> pl.DataFrame:
    """All validation ratings of people drawn by the seed."""
    rows = examples.filter(pl.col("split") != "train")
    counts = rows.filter(split="validation").group_by("window").len().sort("window")
    order = np.random.default_rng((settings.seed, 1)).permutation(counts.height)
    counts = counts[order.tolist()]
    kept = counts.filter(pl.col("len").cum_sum() <= settings.looked_at)["window"].head(10_000)
    kept = kept if len(kept) else counts["window"].head(1)
    return rows.filter(pl.col("window").is_in(kept.implode()))


def calibrate_model(model: RatingModel, examples: pl.DataFrame) -> Calibration:
    """Fit a calibration on all validation examples."""
    rows = examples.filter(pl.col("split") != "train")
    asked = rows.filter(split="validation")
    scale = model.style.scale
    answer = np.rint((asked["rating"].to_numpy() - scale.low) / scale.step).astype(np.int64)
    user = np.unique(asked["user_id"].to_numpy(), return_inverse=True)[1]
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
        model.tokenizer.save_pretrained(folder)
    else:
        model.base.checkpoint.copy_tokenizer(folder)
    (folder / "calibration.json").write_bytes(calibration.to_json(model.style.scale.name))
    figures = {
        **facts,
        "training": {
            "best_step": model.course.step,
            "validation_nll": model.course.nll,
            "looks": model.course.looks,
            "retried": model.course.retried,
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
