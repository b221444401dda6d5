"""Captions of items' posters."""

from __future__ import annotations

from typing import Any

import polars as pl

from pipelines import captions
from pipelines.config import Settings
from pipelines.contracts import CAPTIONED_DOMAINS
from pipelines.plugins import closing
from pipelines.stages._stage import Inputs, Report, Stage, tables
from pipelines.worlds import prepare_world

__all__ = ["STAGES"]


def captioned(inputs: Inputs, settings: Settings, report: Report) -> pl.DataFrame:
    """Caption the poster of every item of a domain, if the world has one."""
    items = inputs["items"].read()["item_id"].to_list()
    with closing(captions.open_captioner(settings)) as captioner:
        table = captions.caption_items(prepare_world(settings).folder, items, captioner)
        counts = table["status"].value_counts().sort("status")
        report.stats.update(captions=captioner.metadata(), statuses=dict(counts.iter_rows()))
    return table


def _identity(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    """Settings and posters that decide the rows."""
    posters = captions.posters_digest(prepare_world(settings).folder)
    return {**_settings(settings), "posters": posters}


def _settings(settings: Settings) -> dict[str, Any]:
    identity: dict[str, Any] = {"captions": settings.captions.model_dump(mode="json")}
    if settings.captions.captioner == "model":
        identity["engine"] = settings.engine.identity_values()
    return identity


def _left_out(settings: Settings, _: str | None) -> str | None:
    folder = prepare_world(settings).folder
    return None if captions.posters_digest(folder) else f"no posters in {folder}"


STAGES = [
    Stage(
        datasets=(f"{domain}.captions",),
        inputs=tables(domain, "items"),
        identity=_identity,
        settings=_settings,
        code_version=captions.CODE_VERSION,
        make=captioned,
        left_out=_left_out,
        asks=lambda settings, _: (
            [(settings.engine, False)] if settings.captions.captioner == "model" else []
        ),
    )
    for domain in CAPTIONED_DOMAINS
]
