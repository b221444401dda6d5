"""Optional tables over published ones: personas of real users, captions of posters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from pipelines import captions, matching
from pipelines.config import Settings
from pipelines.contracts import CAPTIONED_DOMAINS, MATCHED_DOMAINS
from pipelines.plugins import closing
from pipelines.stages._stage import Inputs, Report, Stage, tables
from pipelines.store import Table
from pipelines.worlds import prepare_world

_FROM = ("interactions", "splits", "items", "human_users", "training_traits")


def matched(inputs: Inputs, settings: Settings, report: Report) -> Iterable[Table]:
    """Match users of a domain to the most self-consistent of their candidate personas."""
    domain = inputs.domain
    history = matching.History.read(
        domain,
        interactions=inputs["interactions"].scan(),
        splits=inputs["splits"].scan(),
        items=inputs["items"].read(),
        human_users=inputs["human_users"].read(),
        graph=settings.graph,
    )
    with closing(matching.open_matcher(settings)) as matcher:
        matches = matching.match_users(
            history,
            inputs["training_traits"].read(),
            matcher,
            settings.matching,
        )
        study = matching.attribute_study(
            history,
            matches.personas,
            matches.metadata,
            posterior=matching.posterior_of(matcher, history, settings.matching, matches.personas),
        )
    report.texts["figures"] = study.markdown(level=2)
    stats = {"matching": matches.metadata, "figures": matching.attribute_rows(study)}
    for name, frame in (
        ("matched_personas", matches.personas),
        ("persona_candidates", matches.candidates),
    ):
        yield Table(f"{domain}.{name}", [frame], lambda: stats)


def _identity(settings: Settings) -> dict[str, Any]:
    """Settings that decide the rows."""
    identity: dict[str, Any] = {
        "matching": settings.matching.model_dump(mode="json", exclude={"scored"}),
        "graph": settings.identity("graph")["graph"],
    }
    if settings.matching.method == "model":
        identity["engine"] = settings.engine.identity_values()
    return identity


STAGES = [
    Stage(
        datasets=(f"{domain}.matched_personas", f"{domain}.persona_candidates"),
        inputs=tables(domain, *_FROM),
        identity=lambda inputs, settings: _identity(settings),
        settings=_identity,
        code_version=matching.CODE_VERSION,
        make=matched,
        name=f"match_{domain}",
        asks=lambda settings, _: (
            [(settings.engine, False)] if settings.matching.method == "model" else []
        ),
    )
    for domain in MATCHED_DOMAINS
]


def captioned(inputs: Inputs, settings: Settings, report: Report) -> pl.DataFrame:
    """Caption the poster of every item of a domain, if the world has one."""
    items = inputs["items"].read()["item_id"].to_list()
    with closing(captions.open_captioner(settings)) as captioner:
        table = captions.caption_items(prepare_world(settings).folder, items, captioner)
        counts = table["status"].value_counts().sort("status")
        report.stats.update(captions=captioner.metadata(), statuses=dict(counts.iter_rows()))
    return table


def _caption_identity(inputs: Inputs, settings: Settings) -> dict[str, Any]:
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


STAGES += [
    Stage(
        datasets=(f"{domain}.captions",),
        inputs=tables(domain, "items"),
        identity=_caption_identity,
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
