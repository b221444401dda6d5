"""``understudy personas``: write a cohort of synthetic users from the command line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import instructions
from pipelines.cli import options as cli

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.config import Settings
    from pipelines.store import CheckRecord, Snapshot

#: Personas shown, and characters of each description.
_SHOWN, _EXCERPT = 3, 400


def personas(
    cohort: Annotated[
        str | None,
        typer.Option(
            "--cohort",
            help="Name of the cohort; a name that begins with `books`, `games` or `products` "
            "selects that domain, `imported` reads the world's persona files. "
            "Default: personas.cohort.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--n", help="Personas (default: personas.count).")
    ] = None,
    writer: Annotated[
        str | None,
        typer.Option(
            "--writer", help="`statistical` (no model) or `model` (the configured engine)."
        ),
    ] = None,
    settings: cli.SetOption = None,
    home: cli.HomeOption = None,
    config: cli.ConfigOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Write a cohort of personas, check it, and add it to the store.

    The same cohort, number, seed and writer give the same table. Texts that a model wrote before
    an interruption are kept: the same command resumes there. Failed checks are listed and block
    everything downstream of the table.

    JSON: {"cohort", "personas", "seconds", "per_minute", "version", "writing", "checks":
    {"passed", "failed", "warned", "not_applicable"}, "sample": rows of the table}.
    """
    tree = _settings(cohort, count, writer, settings, home, config)
    payload = _write(tree, quiet=as_json)
    cli.emit(payload, lambda screen: _render(screen, payload), as_json=as_json)
    if payload["checks"]["failed"]:
        from pipelines.errors import ContractError

        raise ContractError(
            f"{len(payload['checks']['failed'])} blocking checks failed",
            where=", ".join(c["name"] for c in payload["checks"]["failed"]),
            hint="the cohort is stored, but no release will include it",
        )


def _settings(
    cohort: str | None,
    count: int | None,
    writer: str | None,
    settings: list[str] | None,
    home: Any,
    config: Any,
) -> Settings:
    overrides = cli.overrides_of(home, settings or [])
    given = {"cohort": cohort, "count": count, "writer": writer}
    section = overrides.setdefault("personas", {})
    section.update({key: value for key, value in given.items() if value is not None})
    return cli.open_settings(None, config, overrides)


def _write(tree: Settings, *, quiet: bool) -> dict[str, Any]:
    instructions.fix()  # before NumPy is loaded
    from pipelines.domains import cohort_domain
    from pipelines.stages import PipelineContext, build, check, check_models, stage_of
    from pipelines.store import Store

    store, name = Store(tree.runtime.home), tree.personas.cohort
    dataset = f"{cohort_domain(name, tree.personas.domain)}.personas"
    check_models([stage_of(dataset)], store, tree, name)
    began = time.perf_counter()
    context = PipelineContext.of(store, tree)
    with cli.progress_bar("personas", disable=quiet):
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


def _render(screen: Console, payload: dict[str, Any]) -> None:
    from rich.markup import escape

    for row in payload["sample"]:
        who = ", ".join(str(row[key]) for key in ("name", "age", "job", "hobby") if row[key])
        screen.print(f"[bold]{escape(row['persona_id'])}[/]  {escape(who)}", markup=True)
        text = row["description"]
        screen.print(text[:_EXCERPT] + ("…" if len(text) > _EXCERPT else "") + "\n")
    facts = cli.table("what", "value", numeric=("value",))
    facts.add_row("personas", f"{payload['personas']:,}")
    facts.add_row("seconds", f"{payload['seconds']:.1f}")
    facts.add_row("personas per minute", f"{payload['per_minute']:,}")
    for key, value in payload["writing"].items():
        if isinstance(value, str | int | float):
            facts.add_row(key.replace("_", " "), str(value))
    facts.add_row("version of the table", payload["version"])
    screen.print(facts)
    checks = payload["checks"]
    screen.print(f"Checks: {cli.shown_outcomes(checks)}.  Store: {payload['home']}")
    for mark, listed in (("[red]✗[/]", checks["failed"]), ("[yellow]![/]", checks["warned"])):
        for check in listed:
            line = f"  {mark} {check['name']}: {escape(str(check['message']))}"
            screen.print(line, markup=True)
            for row in check["rows"]:
                screen.print(f"      {row}", style="dim")
