"""``understudy personas`` and ``match``: cohorts of synthetic users, and personas of real users."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines import instructions
from pipelines.cli import options as cli
from pipelines.errors import ConfigError, ContractError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.context import PipelineContext
    from pipelines.store import CheckRecord


#: Personas shown, and characters of each description.
_SHOWN, _EXCERPT = 3, 400


personas = cli.group(
    "Synthetic users: write a cohort of them, show those of a cohort.", former="write"
)

CohortOption = {"--cohort": "personas.cohort"}


@personas.command()
@cli.command({**CohortOption, "--n": "personas.count", "--writer": "personas.writer"})
def write(
    call: cli.Call,
    preview: Annotated[
        int, typer.Option(min=0, help="Write this many, show them, and store nothing (count).")
    ] = 0,
    dry_run: cli.DryRunOption = False,
) -> None:
    """Write a cohort of personas, check it, and add it to the store.

    A cohort whose name begins with `books`, `games` or `products` is of that domain; `imported`
    reads the world's persona files. The same cohort, number, seed and writer give the same table.
    Texts that a model wrote before an interruption are kept: the same command resumes there.
    Failed checks are listed and block everything downstream of the table.

    Examples:
      understudy personas write --cohort night-owls --n 200
      understudy personas write --writer model --preview 3

    JSON: {"cohort", "personas", "seconds", "per_minute", "version", "writing", "checks":
    {"passed", "failed", "warned", "not_applicable"}, "sample": rows of the table}; of a preview
    {"cohort", "writer", "personas": rows of the table}; of a dry run as of `understudy run`.
    """
    instructions.fix()  # before NumPy is loaded
    if preview:
        _preview(call, preview)
        return
    cohort = call.settings.personas.cohort
    if cli.expected_calls(call, [(_dataset(call, cohort), cohort)], dry_run):
        return
    payload = _write(call)
    call.emit(payload, lambda screen: _render(screen, payload))
    if payload["checks"]["failed"]:
        raise ContractError(
            f"{len(payload['checks']['failed'])} blocking checks failed",
            where=", ".join(c["name"] for c in payload["checks"]["failed"]),
            hint="the cohort is stored, but no release will include it",
        )


@personas.command()
@cli.command(CohortOption, rows="personas")
def show(
    call: cli.Call,
    persona: Annotated[
        str, typer.Argument(help="Only this persona, such as persona:default:3.")
    ] = "",
    number: Annotated[int, typer.Option("--n", min=1, help="Personas shown (count).")] = _SHOWN,
) -> None:
    """Show the personas of a cohort in the store.

    JSON: {"cohort", "version", "count", "personas": rows of the table}.
    """
    import polars as pl

    cohort = persona.split(":")[1] if persona.count(":") == 2 else call.settings.personas.cohort
    dataset = _dataset(call, cohort)
    snapshot = call.store().current(dataset)
    rows = snapshot.scan().filter(pl.col("cohort") == cohort)
    count = rows.select(pl.len()).collect().item()
    if persona:
        rows = rows.filter(pl.col("persona_id") == persona)
    shown = rows.head(number).collect().to_dicts()
    if not shown:
        raise ConfigError(
            f"no persona {persona}" if count else f"no cohort {cohort}",
            where=f"{dataset}@{snapshot.version}",
            hint="`understudy personas write` writes a cohort",
        )
    payload = {"cohort": cohort, "version": snapshot.version, "count": count, "personas": shown}
    call.emit(
        payload,
        *(partial(_draw, row=row, whole=bool(persona)) for row in shown),
        f"{len(shown):,} of {count:,} personas of the cohort {cohort}, {dataset}",
    )


def _dataset(call: cli.Call, cohort: str) -> str:
    """The table of a cohort."""
    from pipelines.domains import cohort_domain

    return f"{cohort_domain(cohort, call.settings.personas.domain)}.personas"


def _preview(call: cli.Call, number: int) -> None:
    """Write the first personas of a cohort and show them whole; nothing is stored."""
    from pipelines.personas import generate, load_writer
    from pipelines.plugins import closing

    chosen = call.settings.personas
    with closing(load_writer(chosen.writer, call.settings, stored=False)) as writer:
        rows = generate(chosen, count=number, writer=writer).to_dicts()
    call.emit(
        {"cohort": chosen.cohort, "writer": writer.name, "personas": rows},
        *(partial(_draw, row=row, whole=True) for row in rows),
        f"{len(rows)} personas, writer {writer.name}; nothing was stored.",
    )


def _write(call: cli.Call) -> dict[str, Any]:
    import polars as pl

    from pipelines.stages import PipelineContext, build, check, check_models, stage_of

    tree, store = call.settings, call.store()
    name = tree.personas.cohort
    dataset = _dataset(call, name)
    check_models([stage_of(dataset)], store, tree, name)
    began = time.perf_counter()
    context = PipelineContext.of(store, tree)
    with call.progress("personas", lines=True):
        built = build(stage_of(dataset), context, cohort=name)
    seconds = time.perf_counter() - began
    checks = check(context, dataset) or []
    (snapshot,) = built.snapshots.values()
    count = dict(snapshot.manifest.stats["cohorts"])[name]
    sample = snapshot.scan().filter(pl.col("cohort") == name).head(_SHOWN).collect()
    return {
        "cohort": name,
        "personas": count,
        "seconds": round(seconds, 2),
        "per_minute": round(60 * count / max(seconds, 1e-9)),
        "version": snapshot.version,
        "home": str(store.home),
        "writing": {**built.report.shown.get("writing", {}), "reused": built.reused},
        "checks": {
            "passed": sum(c.passed is True for c in checks),
            "failed": [_shown(c) for c in checks if c.blocks],
            "warned": [_shown(c) for c in checks if c.passed is False and not c.blocks],
            "not_applicable": [_shown(c) for c in checks if c.passed is None],
        },
        "sample": sample.to_dicts(),
    }


def _shown(check: CheckRecord) -> dict[str, Any]:
    message = check.details.get("message")
    return {"name": check.name, "message": message, "rows": check.details.get("rows", [])[:3]}


def _draw(screen: Console, row: dict[str, Any], *, whole: bool = False) -> None:
    """A persona's attributes and the beginning of its description, or all of it."""
    from rich.markup import escape

    who = ", ".join(str(row[key]) for key in ("name", "age", "job", "hobby") if row[key])
    screen.print(f"[bold]{escape(row['persona_id'])}[/]  {escape(who)}", markup=True)
    text = row["description"]
    cut = len(text) > _EXCERPT and not whole
    screen.print((text[:_EXCERPT] + "…" if cut else text) + "\n")


def _render(screen: Console, payload: dict[str, Any]) -> None:
    from rich.markup import escape

    for row in payload["sample"]:
        _draw(screen, row)
    facts = [
        ("personas", payload["personas"]),
        ("seconds", f"{payload['seconds']:.1f}"),
        ("personas per minute", payload["per_minute"]),
        *(
            (key.replace("_", " "), str(value))
            for key, value in payload["writing"].items()
            if isinstance(value, str | int | float)
        ),
        ("version of the table", payload["version"]),
    ]
    screen.print(cli.table("what", "value", rows=facts, numeric=("value",)))
    checks = payload["checks"]
    screen.print(f"Checks: {cli.shown_outcomes(checks)}.  Store: {payload['home']}")
    for mark, listed in (("[red]✗[/]", checks["failed"]), ("[yellow]![/]", checks["warned"])):
        for check in listed:
            line = f"  {mark} {check['name']}: {escape(str(check['message']))}"
            screen.print(line, markup=True)
            for row in check["rows"]:
                screen.print(f"      {row}", style="dim")


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
    from pipelines import matching
    from pipelines.plugins import closing
    from pipelines.stages import PipelineContext

    context = PipelineContext.of(call.store(), call.settings)
    if personality is not None:
        with closing(matching.open_matcher(context.settings)) as matcher:
            payload = matching.personality_report(
                personality,
                context.store.current("movies.items").read(),
                matcher,
                context.settings.matching,
                graph=context.settings.graph,
            )
        names = list(next((r["errors"] for r in payload["rows"] if r["errors"]), {}))
        rows = [
            (r["predictor"], r["users"], *((r["errors"] or {}).get(n) for n in names))
            for r in payload["rows"]
        ]
        call.emit(
            payload,
            cli.table("by", "users", *names, rows=rows, numeric=["users", *names]),
            "Mean absolute error on 0-1 (SimUSER, figure 11), 95 % intervals over people. "
            f"{payload['people']:,} people; {payload['repeated']} repeated ids left out. "
            "An empty row means that no personality was predicted.",
        )
        return
    with call.progress("matching"):
        payload = _match(context, domain)
    call.emit(payload, lambda out: _render_match(out, payload))
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


def _render_match(screen: Console, payload: dict[str, Any]) -> None:
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
