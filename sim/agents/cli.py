"""The commands ``understudy agents run | show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.cli import options as cli
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from sim.agents import Simulation

__all__ = ["app"]

app = cli.group("Simulated users that visit a recommender page by page.", former="run")


@app.command()
@cli.command()
def run(
    call: cli.Call,
    cast: Annotated[
        Literal["matched", "personas"],
        typer.Option(
            help="Personas matched to real users, with their history, or the other personas."
        ),
    ] = "matched",
    recommender: Annotated[
        str,
        typer.Option(
            "--recommender",
            "-r",
            help="A name of `understudy recommend list`, module:Class or a file.",
        ),
    ] = "popular",
    number: Annotated[int, typer.Option("--agents", min=1, help="Agents (count).")] = 1_000,
    pages: Annotated[int, typer.Option(min=1, help="Maximum pages of a visit (count).")] = 5,
    per_page: Annotated[int, typer.Option(min=1, help="Items per page (count).")] = 4,
    brain: Annotated[
        str, typer.Option(help="statistical, model, random, always, or module:Class.")
    ] = "statistical",
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--brain-option",
            metavar="KEY=VALUE",
            help="Option of the brain's class, such as rating=scale of the model; may be repeated.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed; the same seed gives the same visits.")
    ] = 0,
    traits: Annotated[
        bool, typer.Option("--traits/--no-traits", help="Whether habits are used.")
    ] = True,
    graph: Annotated[
        bool, typer.Option("--graph/--no-graph", help="Whether the graph is used.")
    ] = True,
    out: Annotated[
        Path | None,
        cli.folder_option("--out", "Folder of the tables (default: below HOME/simulations)."),
    ] = None,
    minari: Annotated[
        Path | None, cli.folder_option("--minari", "Write a Minari dataset into this folder too.")
    ] = None,
    release: cli.ReleaseOption = "latest",
) -> None:
    """Let agents visit a recommender, and print the results.

    Tables `agents`, `views`, `pages` and `memories` are written as Parquet. A killed run resumes
    where it stopped; a repeated run only prints. If there are fewer people than agents, people are
    played again with other seeds.

    Examples:
      understudy agents run --recommender ease --agents 200
      understudy agents run --cast personas --brain random --pages 3

    JSON: {"release", "brain", "recommender", "agents", "failed", "p_view": [value, low, high],
    "n_like", "p_like", "n_exit", "s_sat", "remarks": {"feelings", "most_frequent",
    "contradictions", "examples"}, "folder", "minari", "note", "people", "assumed"}.
    """
    from pipelines.plugins import closing
    from sim import Release
    from sim.agents import (
        ASSUMED_FILE,
        AgentWorld,
        default_folder,
        match_people,
        open_brain,
        remark_report,
        simulate,
        visit_rows,
        visit_study,
        write_visits,
    )
    from sim.recommenders import open_recommender

    tree = call.settings
    opened = Release(call.release(release))
    people = None
    if cast == "matched":
        opened, people = match_people(opened, tree.matching)
    world = AgentWorld.open(
        opened, cast=cast, per_page=per_page, pages=pages, traits=traits, graph=graph
    )
    # A model that can't be used is found before a recommender is trained.
    chosen = cli.key_values(options, "--brain-option", "rating=scale")
    with closing(open_brain(brain, settings=tree, **chosen).open(world)) as mind:
        shown = open_recommender(recommender).fit(opened)
        played: dict[str, Any] = {"agents": number, "seed": seed}
        folder = out or default_folder(call.home, world, mind, shown, **played)
        with call.progress(f"{number:,} agents", lines=True):
            visits = simulate(world, mind, shown, folder=folder, **played)
    dataset = None if minari is None else write_visits(visits, world, minari)
    payload: dict[str, Any] = {
        "release": opened.ref,
        **visit_rows(visit_study([visits]), [visits])[0],
        "remarks": remark_report(visits, world).as_json(),
        "folder": str(visits.folder),
        "minari": None if dataset is None else str(dataset),
        "note": mind.note,
        "people": people,
        "assumed": ASSUMED_FILE,
    }
    call.emit(payload, lambda screen: _render(screen, visits, payload))


def _render(screen: Console, run: Simulation, payload: dict[str, Any]) -> None:
    from sim.agents import FIGURES

    rows = [
        (name, f"{value:.3f}", f"{low:.3f} to {high:.3f}", meaning)
        for name, meaning in FIGURES.items()
        if payload[name] is not None
        for value, low, high in [payload[name]]
    ]
    columns = ("figure", "value", "95 % interval", "meaning")
    screen.print(cli.table(*columns, rows=rows, numeric=["value"]))
    failed = payload["failed"]
    left = f", of which {failed:,} failed and are excluded from the figures" if failed else ""
    screen.print(
        f"{payload['agents']:,} agents{left}; brain {payload['brain']}, recommender "
        f"{payload['recommender']}, release {payload['release']}."
    )
    said = payload["remarks"]
    if said["feelings"]:
        screen.print(
            f"{said['feelings']:,} feelings about watched items, the most frequent text "
            f"{said['most_frequent']:.1%} of them; texts that contradict their rating, item or "
            f"persona: {said['contradictions']:,}."
        )
    screen.print(f"{payload['note']} Assumed: {payload['assumed']}.")
    if payload["people"]:
        screen.print(payload["people"])
    screen.print(f"Tables: {run.folder}")
    if payload["minari"]:
        screen.print(f"Minari dataset: {payload['minari']}")


@app.command()
@cli.command(rows="views")
def show(
    call: cli.Call,
    agent: Annotated[int, typer.Argument(min=0, help="Number of the agent.")],
    out: Annotated[
        Path | None,
        cli.folder_option(
            "--out", "Folder of the run (default: the newest below HOME/simulations)."
        ),
    ] = None,
) -> None:
    """Print one agent's whole visit.

    Examples:
      understudy agents show 0

    JSON: {"run": {...}, "agent": {...}, "views": [...], "pages": [...], "memories": [...]}: the
    agent's rows of the tables.
    """
    import polars as pl

    from sim.agents import Simulation

    if out is None:
        root = call.home / "simulations"
        out = cli.newest_run(root, "agents.parquet", "agents", "run understudy agents run")
    run = Simulation.open(out)
    rows = {
        name: run.table(name).filter(pl.col("agent") == agent).collect()
        for name in ("agents", "views", "pages", "memories")
    }
    if rows["agents"].is_empty():
        last = run.table("agents").select(pl.col("agent").max()).collect().item()
        raise ConfigError(
            f"no agent {agent}", where=str(run.folder), hint=f"numbers from 0 to {last}"
        )
    payload = {
        "run": run.identity,
        "agent": rows["agents"].row(0, named=True),
        **{name: rows[name].to_dicts() for name in ("views", "pages", "memories")},
    }
    call.emit(payload, lambda screen: _print_visit(screen, payload, run, call))


def _print_visit(screen: Console, payload: dict[str, Any], run: Simulation, call: cli.Call) -> None:
    from sim.environment.text import persona_lines

    agent = payload["agent"]
    items, persona = _release_rows(run, call, agent["persona_id"])
    screen.print(
        f"Agent {agent['agent']}: {agent['persona_id']}"
        + (f", user {agent['user_id']}" if agent["user_id"] else "")
        + f"; brain {agent['brain']}, recommender {agent['recommender']}",
        style="bold",
    )
    for line in () if persona is None else persona_lines(persona):
        screen.print(line)
    for page in payload["pages"]:
        views = [v for v in payload["views"] if v["view"] == page["view"]]
        what = "looks closer" if views and views[0]["clicked"] else f"page {page['page']}"
        screen.print(f"\nView {page['view']}, {what}")
        for v in views:
            name = items.get(v["item_id"], v["item_id"])
            done = f"watched, {v['rating']} of 5" if v["watched"] else "not watched"
            remark = " ".join(t for t in (v["reason"], v["feeling"]) if t)
            screen.print(f"  {v['position'] + 1}. {name}: {done}. {remark}".rstrip())
        felt = ", ".join(str(page[k]) for k in ("mood", "fatigue", "emotion") if page[k])
        action = page["action"] or f"no usable reply ({page['status']})"
        reason = f": {page['reason']}" if page["reason"] else ""
        screen.print(f"  {felt}; {action}{reason}" if felt else f"  {action}")
    insights = [m for m in payload["memories"] if m["kind"] == "reflection"]
    if insights:
        screen.print("\nReflections")
    for m in insights:
        rests = f" (entries {', '.join(map(str, m['evidence']))})" if m["evidence"] else ""
        screen.print(f"  {m['text']}{rests}")
    score = (
        "no interview" if agent["interview"] is None else f"interview {agent['interview']} of 10"
    )
    screen.print(
        f"\nLeft on page {agent['exit_page']} ({agent['exit_reason']}), {score}.", style="bold"
    )
    screen.print(f"{run.identity['note']} Release {run.identity['release']}.")


def _release_rows(
    run: Simulation, call: cli.Call, persona_id: str
) -> tuple[dict[str, str], dict[str, Any] | None]:
    """Titles with years and genres by item id, and the persona's row.

    Nothing where the release is no longer in the store.
    """
    import polars as pl

    from pipelines.errors import ReleaseError
    from pipelines.prompts import one_line
    from sim import Release
    from sim.environment.text import item_text

    try:
        release = Release(call.release(run.identity["release"]))
    except ReleaseError:
        return {}, None
    rows = release["items"].polars(["item_id", "title", "year", "genres"]).iter_rows(named=True)
    people = release["personas"].lazy().filter(pl.col("persona_id") == persona_id).collect()
    return (
        {row["item_id"]: one_line(item_text(row)) for row in rows},
        next(people.iter_rows(named=True), None),
    )
