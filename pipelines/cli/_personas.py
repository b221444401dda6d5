"""``understudy personas``: write cohorts of synthetic users, and show them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import instructions
from pipelines.cli import options as cli

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.store import CheckRecord, Snapshot

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
    if cli.expected_calls(call, [(_dataset(call), call.settings.personas.cohort)], dry_run):
        return
    payload = _write(call)
    call.emit(payload, lambda screen: _render(screen, payload))
    if payload["checks"]["failed"]:
        from pipelines.errors import ContractError

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

    from pipelines.domains import cohort_domain
    from pipelines.errors import ConfigError

    cohort = persona.split(":")[1] if persona.count(":") == 2 else call.settings.personas.cohort
    dataset = f"{cohort_domain(cohort, call.settings.personas.domain)}.personas"
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

    def render(screen: Console) -> None:
        for row in shown:
            _draw(screen, row, whole=bool(persona))
        screen.print(f"{len(shown):,} of {count:,} personas of the cohort {cohort}, {dataset}")

    call.emit(payload, render)


def _dataset(call: cli.Call) -> str:
    """The table of the cohort."""
    from pipelines.domains import cohort_domain

    chosen = call.settings.personas
    return f"{cohort_domain(chosen.cohort, chosen.domain)}.personas"


def _preview(call: cli.Call, number: int) -> None:
    """Write the first personas of a cohort and show them whole; nothing is stored."""
    from pipelines.personas import generate, load_writer
    from pipelines.plugins import closing

    chosen = call.settings.personas
    with closing(load_writer(chosen.writer, call.settings, stored=False)) as writer:
        rows = generate(chosen, count=number, writer=writer).to_dicts()

    def render(screen: Console) -> None:
        for row in rows:
            _draw(screen, row, whole=True)
        screen.print(f"{len(rows)} personas, writer {writer.name}; nothing was stored.")

    call.emit({"cohort": chosen.cohort, "writer": writer.name, "personas": rows}, render)


def _write(call: cli.Call) -> dict[str, Any]:
    from pipelines.stages import PipelineContext, build, check, check_models, stage_of

    tree, store = call.settings, call.store()
    name, dataset = tree.personas.cohort, _dataset(call)
    check_models([stage_of(dataset)], store, tree, name)
    began = time.perf_counter()
    context = PipelineContext.of(store, tree)
    with call.progress("personas"):
        built = build(stage_of(dataset), context, cohort=name)
    seconds = time.perf_counter() - began
    checks = check(context, dataset) or []
    (snapshot,) = built.snapshots.values()
    count = dict(snapshot.manifest.stats["cohorts"])[name]
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
        "sample": _sample(snapshot, name),
    }


def _shown(check: CheckRecord) -> dict[str, Any]:
    message = check.details.get("message")
    return {"name": check.name, "message": message, "rows": check.details.get("rows", [])[:3]}


def _sample(snapshot: Snapshot, cohort: str) -> list[dict[str, Any]]:
    import polars as pl

    rows = snapshot.scan().filter(pl.col("cohort") == cohort).head(_SHOWN).collect()
    return rows.to_dicts()


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
