"""Surrogates of raters, learned from their scores of a domain, and their fidelity."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import polars as pl

from pipelines import raters, surrogates
from pipelines.config import Settings
from pipelines.contracts import SURROGATE_DOMAINS
from pipelines.stages._stage import Inputs, Report, Stage, files_table, tables
from pipelines.store import Table

__all__ = ["STAGES"]

_ASKED_ON = ("interactions", "splits")


def rating_surrogate(inputs: Inputs, settings: Settings, report: Report) -> Iterable[Table]:
    """Learn a surrogate from stored scores, and evaluate it on held-out pairs with baselines."""
    section, domain = settings.surrogate, inputs.domain
    read = {
        name: inputs[name].read()
        for name in ("personas", "items", "item_stats", "item_embeddings", "persona_embeddings")
    }
    read["personas"] = read["personas"].filter(pl.col("domain") == domain)
    teacher = surrogates.teacher_of(
        inputs["preference_scores"].read(),
        rater=section.teacher,
        error_budget=settings.serving.error_budget,
    )

    def ask() -> raters.Rater:
        learned: dict[str, Any] = {name: inputs[name].scan() for name in _ASKED_ON}
        more: dict[str, Any] = {k: v for k, v in read.items() if k != "personas"}
        return raters.open_rater(settings, domain=domain, **more, **learned)

    taught = surrogates.teach(teacher, **read, settings=section, ask=ask, recipe=surrogates.RECIPE)
    shutil.rmtree(inputs.scratch, ignore_errors=True)
    files = surrogates.save_surrogate(taught, inputs.scratch)
    metadata = taught.model.metadata
    report.stats.update(teacher=metadata["teacher"], **metadata["counts"], loss=taught.course)
    report.texts["fidelity"] = taught.markdown()
    yield files_table(f"{domain}.rating_surrogate", files, report)
    yield Table(
        f"{domain}.surrogate_fidelity",
        [taught.fidelity],
        lambda: {"teacher": metadata["teacher"]},
        ordered=False,
    )
    shutil.rmtree(inputs.scratch, ignore_errors=True)


def _identity(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    del inputs
    return _settings(settings)


def _settings(settings: Settings) -> dict[str, Any]:
    """Settings that decide a surrogate: its own, and those of the teacher if that is asked."""
    identity = {**settings.surrogate.identity_values(), **asdict(surrogates.RECIPE)}
    if not settings.surrogate.rounds:
        return {"surrogate": identity}
    return {"surrogate": identity, **settings.identity("scoring", "engine")}


STAGES = [
    Stage(
        datasets=(f"{domain}.rating_surrogate", f"{domain}.surrogate_fidelity"),
        inputs=tables(
            domain,
            *("preference_scores", "personas", "items", "item_stats"),
            *("item_embeddings", "persona_embeddings", *_ASKED_ON),
        ),
        identity=_identity,
        settings=_settings,
        code_version=f"{surrogates.CODE_VERSION}.{raters.CODE_VERSION}",
        make=rating_surrogate,
        kinds=("python", "numpy"),
    )
    for domain in SURROGATE_DOMAINS
]
