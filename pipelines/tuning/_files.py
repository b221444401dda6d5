"""A rating model as a folder of files: calibrated, judged, and described by a card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.llm.engines.checkpoints import no_progress_bars
from pipelines.raters.report import Calibration, fit_calibration
from pipelines.tuning._judge import Judged
from pipelines.tuning._recipe import RatingModel


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
