"""How good the raters of a domain are on held-out human ratings."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from typing import Any

import dagster as dg

from orchestration.builds import Build, dataset_asset, ready_domains
from orchestration.workbench import Workbench
from pipelines import raters

__all__ = ["report_assets"]

_REPORTED_FROM = (
    "items",
    "item_stats",
    "interactions",
    "splits",
    "item_embeddings",
    "human_users",
)
#: Raters that are always in the report; the configured one comes beside them.
_ALWAYS = ("statistical", "mean", "random")


def rater_report(workbench: Workbench, domain: str, run_id: str) -> dg.MaterializeResult[Any]:
    """Judge raters and baselines on held-out human ratings, with intervals."""
    settings = workbench.settings
    build = Build(
        workbench,
        run_id,
        domain,
        "rater_report",
        raters.CODE_VERSION,
        settings.identity("scoring", "engine"),
        _REPORTED_FROM,
    )
    known = build.known()
    if known:
        return build.result(known, reused=True)
    items = build.inputs["items"].read()
    learned: dict[str, Any] = {
        "item_stats": build.inputs["item_stats"].read(),
        "interactions": build.inputs["interactions"].scan(),
        "splits": build.inputs["splits"].scan(),
    }
    vectors = build.inputs["item_embeddings"].read()
    seed = settings.scoring.seed
    judged: list[raters.Rater] = [
        raters.fit_rater(
            name,
            scale=settings.scoring.scale,
            items=items,
            item_embeddings=vectors,
            seed=seed,
            **learned,
        )
        for name in _ALWAYS
    ]
    extra: raters.Rater | None = None
    # A replay has scores of personas only, and nothing to say about people.
    if settings.scoring.rater not in (*_ALWAYS, "replay"):
        extra = raters.open_rater(
            settings, items=items, item_embeddings=vectors, domain=domain, **learned
        )
        judged.append(extra)
    try:
        report = raters.rater_report(
            judged,
            items=items,
            interactions=learned["interactions"],
            splits=learned["splits"],
            human_users=build.inputs["human_users"].read(),
            limits={extra.name: settings.scoring.judged} if extra else None,
            seed=seed,
        )
    finally:
        close = getattr(extra, "close", None)
        if close is not None:
            close()
    with build.writer() as writer:
        writer.append(report.table)
        writer.note(report=report.facts, reliability=report.reliability)
    return build.result(
        writer.snapshot,
        metadata={"figures": dg.MetadataValue.md(report.markdown())},
        plots={
            **workbench.plots(writer.snapshot),
            "reliability": raters.reliability_plot(report.reliability),
        },
    )


def report_assets() -> list[dg.AssetsDefinition]:
    """The report of every domain that personas rate."""
    return [
        dataset_asset(
            name,
            "rater_report",
            rater_report,
            deps=_REPORTED_FROM,
            code_version=raters.CODE_VERSION,
            kinds={"python", "parquet"},
        )
        for name, domain in ready_domains().items()
        if domain.personas
    ]
