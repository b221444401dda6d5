"""``understudy match``: give real users personas, and judge what was matched."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines import instructions
from pipelines.cli import options as cli
from pipelines.errors import ContractError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.context import PipelineContext
    from pipelines.store import CheckRecord

_FIGURES = ("accuracy", "precision", "recall", "f1", "difference")


def match(
    domain: Annotated[
        Literal["movies", "books", "games"], typer.Option("--domain", help="Domain of the users.")
    ] = "movies",
    users: Annotated[
        int | None, typer.Option("--users", help="Users (default: matching.users).")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="`statistical` (no model), `model` (the configured engine), module:Class or "
            "file.py:Class. Default: matching.method.",
        ),
    ] = None,
    personality: Annotated[
        Path | None,
        typer.Option(
            "--personality",
            metavar="FILE",
            help="personality-data.csv of Personality-2018, with its ratings.csv in the same "
            "folder: evaluate the Big Five traits of its users instead of matching.",
        ),
    ] = None,
    settings: cli.SetOption = None,
    home: cli.HomeOption = None,
    config: cli.ConfigOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Match personas to real users from their training ratings, and evaluate them.

    Writes the tables matched_personas and persona_candidates of the domain and the cohort of
    personas made from them; the same tables and settings give the same versions. The next
    `understudy run` puts them into the release. Figures compare matched ages and occupations with
    those in the source, with the majority class and the prior as baselines; intervals are 95 %
    (bootstrap over people).

    Examples:
      understudy match --domain movies --users 1000 --method statistical

      understudy match --users 20 --method model --set engine.kind=transformers --set engine.model=smollm2-135m

    JSON: {"domain", "method", "users", "seconds", "reused", "versions", "cohort", "matching",
    "figures": [{"attribute", "predictor", "baseline", "users", "accuracy", "precision", "recall",
    "f1", "difference": {"value", "low", "high"}}], "checks": {"passed", "failed"}}; with
    --personality {"people", "repeated", "rows": [{"predictor", "users", "errors"}]}.
    """  # noqa: E501
    overrides = cli.overrides_of(home, settings or [])
    given = {"users": users, "method": method}
    section = overrides.setdefault("matching", {})
    section.update({key: value for key, value in given.items() if value is not None})
    tree = cli.open_settings(None, config, overrides)
    instructions.fix()  # before NumPy is loaded
    from pipelines.stages import PipelineContext
    from pipelines.store import Store

    context = PipelineContext.of(Store(tree.runtime.home), tree)
    if personality is not None:
        payload = _personality(context, personality)
        cli.emit(payload, lambda out: _render_personality(out, payload), as_json=as_json)
        return
    with cli.progress_bar("matching", disable=as_json):
        payload = _match(context, domain)
    cli.emit(payload, lambda out: _render(out, payload), as_json=as_json)
    failed = payload["checks"]["failed"]
    if failed:
        raise ContractError(
            f"{len(failed)} blocking checks failed",
            where=", ".join(failed),
            hint="the personas are stored, but no release will include them",
        )


def _match(context: PipelineContext, domain: str) -> dict[str, Any]:
    from pipelines.personas import matched_cohort
    from pipelines.stages import build, check, check_models, stage_of

    began = time.perf_counter()
    stage = stage_of(f"{domain}.matched_personas")
    check_models([stage], context.store, context.settings, None)
    built = build(stage, context)
    cohort = matched_cohort(domain)
    personas = build(stage_of(f"{domain}.personas"), context, cohort=cohort)
    records: list[CheckRecord] = []
    for dataset in (*stage.datasets, f"{domain}.personas"):
        records += check(context, dataset) or []
    stats = built.snapshots[stage.datasets[0]].manifest.stats
    return {
        "domain": domain,
        "method": stats["matching"]["method"],
        "users": stats["matching"]["users"],
        "seconds": round(time.perf_counter() - began, 2),
        "reused": built.reused,
        "versions": {
            name: s.version for name, s in {**built.snapshots, **personas.snapshots}.items()
        },
        "cohort": cohort,
        "matching": stats["matching"],
        "figures": stats["figures"],
        "checks": {
            "passed": sum(r.passed is True for r in records),
            "failed": [r.name for r in records if r.blocks],
        },
    }


def _personality(context: PipelineContext, path: Path) -> dict[str, Any]:
    from pipelines import matching

    settings = context.settings
    matcher = matching.open_matcher(settings)
    try:
        known, rows = matching.personality_report(
            path,
            context.store.current("movies.items").read(),
            matcher,
            settings.matching,
            graph=settings.graph,
        )
    finally:
        close = getattr(matcher, "close", None)
        if close is not None:
            close()
    return {
        "people": known.traits.height,
        "repeated": known.repeated,
        "rows": [row.as_json() for row in rows],
    }


def _cell(figure: dict[str, float] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['value']:.3f}\n{figure['low']:.2f}..{figure['high']:.2f}"


def _render(screen: Console, payload: dict[str, Any]) -> None:
    for name in dict.fromkeys(row["attribute"] for row in payload["figures"]):
        shown = cli.table(name.replace("_", " "), *_FIGURES, numeric=_FIGURES)
        for row in payload["figures"]:
            if row["attribute"] == name:
                shown.add_row(row["predictor"], *(_cell(row[f]) for f in _FIGURES))
        screen.print(shown)
    if payload["figures"]:
        screen.print("95 % intervals, bootstrap over people; difference: accuracy minus majority.")
    facts = payload["matching"]
    if facts.get("published_majority"):
        screen.print(
            f"The most frequent occupation has {facts['published_majority']:.3f} of the people "
            "before the mapping."
        )
    if not facts.get("language_model", False):
        screen.print(f"No language model; assumed, not fitted: {facts.get('assumed_in', '')}")
    screen.print(
        f"{payload['users']:,} users of {payload['domain']} matched by "
        f"{payload['method']} in {payload['seconds']:.1f} s"
        f"{' (reused)' if payload['reused'] else ''}, cohort {payload['cohort']}; training ratings "
        f"only. Checks: {payload['checks']['passed']} passed, "
        f"{len(payload['checks']['failed'])} failed. `understudy run` releases them."
    )


def _render_personality(screen: Console, payload: dict[str, Any]) -> None:
    names = list(next((r["errors"] for r in payload["rows"] if r["errors"]), {}))
    shown = cli.table("by", "users", *names, numeric=["users", *names])
    for row in payload["rows"]:
        errors = row["errors"] or {}
        shown.add_row(row["predictor"], f"{row['users']:,}", *(_cell(errors.get(n)) for n in names))
    screen.print(shown)
    screen.print(
        "Mean absolute error on 0-1 (SimUSER, figure 11), 95 % intervals over people. "
        f"{payload['people']:,} people; {payload['repeated']} repeated ids left out. "
        "An empty row means that no personality was predicted."
    )
