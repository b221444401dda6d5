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


@cli.command({"--users": "matching.users", "--method": "matching.method"})
def match(
    call: cli.Call,
    domain: Annotated[
        Literal["movies", "books", "games"], typer.Option(help="Domain of the users.")
    ] = "movies",
    personality: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="personality-data.csv of Personality-2018, with its ratings.csv in the same "
            "folder: evaluate the Big Five traits of its users instead of matching.",
        ),
    ] = None,
) -> None:
    r"""Match personas to real users from their training ratings, and evaluate them.

    Writes the tables matched_personas and persona_candidates of the domain and the cohort of
    personas made from them; the same tables and settings give the same versions. The next
    `understudy run` puts them into the release. Figures compare matched ages and occupations with
    those in the source, with the majority class and the prior as baselines; intervals are 95 %
    (bootstrap over people).

    Examples:
      understudy match --domain movies --users 1000 --method statistical
      understudy match --users 20 --method model \
        --set engine.kind=transformers --set engine.model=smollm2-135m

    JSON: {"domain", "method", "users", "seconds", "reused", "versions", "cohort", "matching",
    "figures": [{"attribute", "predictor", "baseline", "users", "accuracy", "precision", "recall",
    "f1", "difference": {"value", "low", "high"}}], "checks": {"passed", "failed"}}; with
    --personality {"people", "repeated", "rows": [{"predictor", "users", "errors"}]}.
    """
    instructions.fix()  # before NumPy is loaded
    from pipelines.stages import PipelineContext

    context = PipelineContext.of(call.store(), call.settings)
    if personality is not None:
        payload = _personality(context, personality)
        call.emit(payload, lambda out: _render_personality(out, payload))
        return
    with call.progress("matching"):
        payload = _match(context, domain)
    call.emit(payload, lambda out: _render(out, payload))
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
    from pipelines.plugins import closing

    settings = context.settings
    with closing(matching.open_matcher(settings)) as matcher:
        known, rows = matching.personality_report(
            path,
            context.store.current("movies.items").read(),
            matcher,
            settings.matching,
            graph=settings.graph,
        )
    return {
        "people": known.traits.height,
        "repeated": known.repeated,
        "rows": [row.as_json() for row in rows],
    }


def _render(screen: Console, payload: dict[str, Any]) -> None:
    for name in dict.fromkeys(row["attribute"] for row in payload["figures"]):
        rows = [
            (row["predictor"], *(row[f] for f in _FIGURES))
            for row in payload["figures"]
            if row["attribute"] == name
        ]
        columns = (name.replace("_", " "), *_FIGURES)
        screen.print(cli.table(*columns, rows=rows, numeric=_FIGURES))
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
    rows = [
        (r["predictor"], r["users"], *((r["errors"] or {}).get(n) for n in names))
        for r in payload["rows"]
    ]
    screen.print(cli.table("by", "users", *names, rows=rows, numeric=["users", *names]))
    screen.print(
        "Mean absolute error on 0-1 (SimUSER, figure 11), 95 % intervals over people. "
        f"{payload['people']:,} people; {payload['repeated']} repeated ids left out. "
        "An empty row means that no personality was predicted."
    )
