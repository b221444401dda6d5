"""The commands ``understudy dialogue run | report | show | play | tasks``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.cli import options as cli
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from pipelines.config import Settings
    from sim.dialogue import DialogueWorld, Rules
    from sim.dialogue._sessions import Session

__all__ = ["app"]

app = cli.group(
    "Shopping dialogues: an agent questions a customer and sells one product per episode."
)

SettingOption = Annotated[
    Literal["customer", "category", "both"],
    typer.Option(
        "--setting",
        help="One customer in many categories, one category with many customers, or both vary.",
    ),
]
CellOption = Annotated[
    str,
    typer.Option(
        "--cell", help="Customers/categories, each seen or unseen by agents: unseen/seen, …"
    ),
]
FeedbackOption = Annotated[
    Literal["none", "regret", "stars", "text"],
    typer.Option("--feedback", help="What the agent learns after a sale."),
]
CustomerOption = Annotated[
    str, typer.Option("--customer", help="statistical, model, module:Class or a file.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of the first lifetime.")]
RunOption = Annotated[
    Path | None,
    cli.folder_option("--out", "Folder of the run (default: below HOME/dialogues/runs)."),
]


@app.command()
@cli.command(rows="figures")
def run(
    call: cli.Call,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="models, planning, feedback, reasoning, context, settings, generalisation, "
            "faithfulness or all: figures of BIEL, with controls; may be repeated."
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            help="In place of suites: random, popularity, oracle, best, base, greedy, dp, "
            "thompson, linear, module:Class or a file; may be repeated."
        ),
    ] = None,
    agent_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the agents' class, such as depth=2 of dp; may be repeated.",
        ),
    ] = None,
    setting: SettingOption = "customer",
    feedback: FeedbackOption = "text",
    memory: Annotated[
        Literal["on", "off"],
        typer.Option(help="Whether the agent keeps what it learnt in past episodes."),
    ] = "on",
    cell: CellOption = "unseen/seen",
    customer: CustomerOption = "statistical",
    customer_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the customers' class, such as tau=0; may be repeated.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Lifetimes per row (count; default: dialogue.seeds, 60 for planning)."
        ),
    ] = None,
    seed: SeedOption = 0,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Episodes of a lifetime (count; default: dialogue.episodes)."),
    ] = None,
    model_agent: Annotated[
        list[str] | None,
        typer.Option(
            help="Agent that asks the language model of the section engine, added to the suites "
            "as further rows; may be repeated."
        ),
    ] = None,
    model_seeds: Annotated[
        int, typer.Option(min=1, help="Lifetimes per row of --model-agent (count).")
    ] = 2,
    model_episodes: Annotated[
        int, typer.Option(min=1, help="Episodes per lifetime of --model-agent (count).")
    ] = 3,
    out: RunOption = None,
    release: cli.ReleaseOption = "products@latest",
) -> None:
    r"""Play lifetimes of dialogues, and write the tables and the report.

    Every agent gets the same customers, choice sets and product orders for the same seeds.
    A repeated run plays again, with a model's stored answers.

    Examples:
      understudy dialogue run --suite models
      understudy dialogue run --agent dp --agent linear --setting category
      understudy dialogue run --suite all --model-agent model-base \
        --set engine.kind=transformers --set engine.model=smollm2-135m

    JSON: {"release", "seconds", "flagged", "not_played", "files": {...}, "figures": [{"figure",
    "configuration", "x", "metric", "value", "low", "high", "p", "lifetimes"}]}.
    """
    from pipelines.llm.engines import check_engine
    from sim.dialogue.suites import (
        Configuration,
        DialogueContext,
        chosen_suites,
        run_suites,
        write_run,
    )

    if bool(suite) == bool(agent):
        raise ConfigError(
            "name suites or agents",
            where="understudy dialogue run",
            hint="--suite models or --agent dp",
        )
    tree, world = _opened(call, release)
    if model_agent or customer == "model" or any(a.startswith("model-") for a in agent or ()):
        check_engine(tree.engine, tree.serving)
    custom = [
        Configuration(
            name,
            cli.key_values(agent_option, "--agent-option", "depth=2"),
            setting=setting,
            feedback=feedback,
            memory=memory == "on",
            cell=cell,  # type: ignore[arg-type]
        )
        for name in agent or ()
    ]
    names = chosen_suites(suite or ())
    with call.progress("dialogues", lines=True):
        context = DialogueContext(
            world,
            tree,
            call.home,
            customer=customer,
            customer_options=cli.key_values(customer_option, "--customer-option", "depth=2"),
            seeds=seeds,
            first_seed=seed,
            episodes=episodes,
            models=tuple(model_agent or ()),
            model_seeds=model_seeds,
            model_episodes=model_episodes,
        )
        result = run_suites(context, names, custom)
    folder = out or call.home / "dialogues" / "runs" / result.key
    files = write_run(result, folder)
    payload: dict[str, Any] = {
        "release": world.reference,
        "seconds": result.seconds,
        "flagged": result.flagged,
        "not_played": result.not_played,
        "files": {kind: str(path) for kind, path in files.items()},
        "figures": result.report.to_dicts(),
    }
    call.emit(payload, lambda screen: _render(screen, result.report, payload))


def _opened(call: cli.Call, release: str) -> tuple[Settings, DialogueWorld]:
    from sim import Release
    from sim.dialogue import DialogueWorld

    return call.settings, DialogueWorld.open(Release(call.release(release)))


def _rules(tree: Settings, setting: Any, cell: Any, episodes: int, feedback: Any) -> Rules:
    from sim.dialogue import Rules

    dialogue = tree.dialogue
    return Rules(
        setting, cell, episodes, feedback, dialogue.max_questions, min_best=dialogue.min_best
    )


#: Metrics that the terminal shows, of the whole run.
_SHOWN = ("regret", "normalised_regret", "gap_closed", "top_1", "questions", "slope", "failed")


def _render(screen: Console, report: pl.DataFrame, payload: dict[str, Any]) -> None:
    import polars as pl

    overall = report.filter((pl.col("x") == 0) & pl.col("metric").is_in(_SHOWN))
    for (figure,), rows in overall.group_by(["figure"], maintain_order=True):
        screen.print(f"\n{figure}", style="bold")
        shown = cli.table()
        shown.add_column("row", min_width=16)
        for metric in _SHOWN:
            # Long headings wrap: numbers are narrower than they are.
            shown.add_column(metric.replace("_", " "), justify="right")
        for (name,), values in rows.group_by(["configuration"], maintain_order=True):
            figures = {row["metric"]: row for row in values.iter_rows(named=True)}
            shown.add_row(str(name), *(_figure(figures.get(metric)) for metric in _SHOWN))
        screen.print(shown)
    screen.print(
        "\nMeans over lifetimes; intervals are in the report. gap closed: 0 is random, 1 the "
        "oracle; slope: normalised regret per episode."
    )
    for text in (*payload["flagged"], *payload["not_played"]):
        screen.print(text)
    screen.print(f"Report: {payload['files']['html']}")


def _figure(row: dict[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return ""
    return f"{row['value']:.1f}" if abs(row["value"]) >= 10 else f"{row['value']:.3f}"


@app.command()
@cli.command(rows="figures")
def report(
    call: cli.Call,
    out: RunOption = None,
) -> None:
    """Print the figures of a finished run, the newest one by default.

    JSON: {"release", "flagged", "not_played", "files": {...}, "figures": [...]} as of `run`.
    """
    from sim.dialogue.suites import FILES, read_run

    folder = _run_folder(call, out)
    result = read_run(folder)
    payload: dict[str, Any] = {
        "release": result.release,
        "flagged": result.flagged,
        "not_played": result.not_played,
        "files": {kind: str(folder / name) for kind, name in FILES.items()},
        "figures": result.report.to_dicts(),
    }
    call.emit(payload, lambda screen: _render(screen, result.report, payload))


def _run_folder(call: cli.Call, out: Path | None) -> Path:
    if out is not None:
        return out
    root = call.home / "dialogues" / "runs"
    return cli.newest_run(root, "run.json", "dialogues", "understudy dialogue run")


@app.command()
@cli.command(rows="turns")
def show(
    call: cli.Call,
    lifetime: Annotated[int, typer.Argument(min=0, help="Seed of the lifetime.")],
    agent: Annotated[str | None, typer.Option(help="Agent (default: the run's first).")] = None,
    row: Annotated[
        str | None,
        typer.Option(
            "--run", help="Prefix of the column `run`, as an agent may have several runs."
        ),
    ] = None,
    out: RunOption = None,
) -> None:
    """Print one lifetime of the newest run as a conversation.

    JSON: {"release", "run", "episodes": [...], "turns": [...]}: its rows of the tables.
    """
    import polars as pl

    from pipelines.hints import nearest
    from sim.dialogue.suites import read_run

    result = read_run(_run_folder(call, out))
    episodes = result.episodes
    names = episodes["agent"].unique(maintain_order=True).to_list()
    if agent is not None and agent not in names:
        raise ConfigError(f"no agent {agent!r} in the run", where=str(out or "newest run"),
                          hint=nearest(agent, names))  # fmt: skip
    episodes = episodes.filter(pl.col("agent") == (agent or names[0]))
    if row is not None:
        episodes = episodes.filter(pl.col("run").str.starts_with(row))
    rows = episodes.filter(pl.col("seed") == lifetime)
    if rows.is_empty():
        seeds = sorted(episodes["seed"].unique().to_list())
        available = f"{seeds[0]} to {seeds[-1]}" if seeds else "none"
        raise ConfigError(
            f"no lifetime {lifetime} of {agent or names[0]}", where="run", hint=f"seeds {available}"
        )
    rows = rows.filter(pl.col("run") == rows["run"][0]).sort("episode")
    turns = result.turns.filter(
        (pl.col("run") == rows["run"][0]) & (pl.col("seed") == lifetime)
    ).sort("episode", "turn", "role", maintain_order=True)
    payload = {
        "release": result.release,
        "run": rows["run"][0],
        "episodes": rows.to_dicts(),
        "turns": turns.to_dicts(),
    }
    titles = _titles(call, result.release)
    call.emit(payload, lambda screen: _conversation(screen, payload, titles))


def _titles(call: cli.Call, release: str) -> dict[str, str]:
    """Titles and names by id; none where the release is no longer in the store."""
    from pipelines.errors import ReleaseError
    from sim import Release
    from sim.dialogue import DialogueWorld

    try:
        world = DialogueWorld.open(Release(call.release(release)))
    except ReleaseError:
        return {}
    titles = {s.category_id: s.name for s in world.sets}
    for shelf in world.sets:
        titles.update(zip(shelf.item_ids, shelf.titles, strict=True))
    return titles


def _conversation(screen: Console, payload: dict[str, Any], titles: dict[str, str]) -> None:
    from pipelines.prompts import one_line

    first = payload["episodes"][0]
    screen.print(
        f"Lifetime {first['seed']}: agent {first['agent']}, setting {first['setting']}, feedback "
        f"{first['feedback']}, memory {'on' if first['memory'] else 'off'}",
        style="bold",
    )
    for episode in payload["episodes"]:
        name = one_line(titles.get(episode["category_id"], episode["category_id"]))
        screen.print(f"\nEpisode {episode['episode']}: {name}", style="bold")
        for turn in payload["turns"]:
            if turn["episode"] != episode["episode"] or turn["kind"] == "probe":
                continue
            if turn["kind"] in ("ask", "answer") and turn["text"] is not None:
                speaker = "Agent" if turn["role"] == "agent" else "Customer"
                screen.print(f"  {speaker}: {one_line(turn['text'])}")
        if episode["status"] != "ok":
            screen.print(f"  No sale: {episode['status']}.")
            continue
        sold = one_line(titles.get(episode["item_id"], episode["item_id"]))
        screen.print(
            f"  Sold: {sold}. Rank {episode['rank']}, regret {episode['regret']:.1f} of "
            f"{episode['best']:.1f}, {episode['stars']} stars."
        )
        for turn in payload["turns"]:
            if turn["episode"] == episode["episode"] and turn["kind"] == "feedback":
                screen.print(f"  Customer: {one_line(turn['text'] or '')}")
    screen.print(f"\nRelease {payload['release']}.")


@app.command()
@cli.command()
def play(
    call: cli.Call,
    setting: SettingOption = "customer",
    feedback: FeedbackOption = "text",
    cell: CellOption = "unseen/seen",
    customer: CustomerOption = "statistical",
    episodes: Annotated[int, typer.Option(min=1, help="Episodes (count).")] = 1,
    seed: SeedOption = 0,
    release: cli.ReleaseOption = "products@latest",
) -> None:
    """Play the agent: ask questions in your own words, then sell a product (BIEL, fig. 17).

    Enter a question, the number of a product to sell it, or an empty line to quit. After the sale
    you see the scores, which agents never see.

    JSON (the conversation goes to standard error): {"regrets": points of each episode,
    "mean_regret": null without one}.
    """
    from sim.dialogue._sessions import Session, opened
    from sim.dialogue.suites import configured_customer

    tree, world = _opened(call, release)
    world, shopper = opened(world, configured_customer(customer, tree))
    session = Session(world, shopper, _rules(tree, setting, cell, episodes, feedback), seed)
    screen, regrets = cli.console(stderr=call.quiet), list[float]()
    while not session.over:
        regret = _visit(screen, session)
        if regret is None:
            break
        regrets.append(regret)
    mean = sum(regrets) / len(regrets) if regrets else None
    line = "" if mean is None else f"\nMean regret: {mean:.1f}"
    call.emit(
        {"regrets": regrets, "mean_regret": mean}, lambda shown: shown.print(line, style="bold")
    )


def _visit(screen: Console, session: Session) -> float | None:
    """One episode of a person's; None if they leave."""
    from pipelines.prompts import one_line
    from sim.dialogue.tools import shelf_text

    episode = session.episode
    shelf, y = episode.shelf, episode.y
    screen.print(f"\n{shelf_text(session)}")
    while True:
        left = session.dialogue.questions_left
        screen.print(f"\nQuestion ({left} left) or number: ", end="")
        line = sys.stdin.readline().strip()
        if not line:
            return None
        if line.isdecimal():
            if not 1 <= int(line) <= len(shelf):
                screen.print(f"Numbers are from 1 to {len(shelf)}.")
                continue
            break
        if not left:
            screen.print("No questions are left: sell a product.")
            continue
        screen.print(f"Customer: {one_line(session.ask(line))}")
    session.sell(int(line) - 1)
    if episode.comment is not None and episode.comment.text:
        screen.print(f"Customer: {one_line(episode.comment.text)}")
    screen.print("\nBest products, by score:")
    for n in (-y).argsort()[:3].tolist():
        place = episode.dialogue.number(n) + 1
        screen.print(f"  {place}. {one_line(shelf.titles[n])}: {y[n]:.1f}")
    score = y[episode.sold]
    screen.print(
        f"You sold {one_line(shelf.titles[episode.sold])}: {score:.1f}, "
        f"rank {1 + int((y > score).sum())}, regret {episode.regret:.1f}."
    )
    return float(episode.regret)


@app.command()
@cli.command()
def tasks(
    call: cli.Call,
    number: Annotated[int, typer.Option("--tasks", min=1, help="Rows (count).")] = 1_000,
    setting: SettingOption = "customer",
    feedback: FeedbackOption = "text",
    cell: CellOption = "seen/seen",
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of a lifetime (count).")] = 1,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="File (default: printed).")
    ] = None,
    release: cli.ReleaseOption = "products@latest",
) -> None:
    """Write tasks for post-training as JSON lines: a prompt, and an opaque `task`.

    `sim.dialogue.ShoppingTools` plays them; by default customers and categories are drawn from
    the seen ones, so that the test customers stay unseen.

    A line is {"prompt": [{"role", "content"}], "task"}.

    JSON: the list of these; with --out {"tasks": count, "file"}.
    """
    import orjson

    from pipelines.store.files import storage_errors
    from sim.dialogue import tasks as rows

    tree, world = _opened(call, release)
    rules = _rules(tree, setting, cell, episodes, feedback)
    examples = rows(world, range(seed, seed + number), rules)
    lines = (orjson.dumps(row).decode() + "\n" for row in examples)
    if out is None and call.quiet:
        call.emit(list(examples), lambda _: None)
    elif out is None:
        sys.stdout.writelines(lines)
    else:
        with storage_errors(out), out.open("w", encoding="utf-8") as file:
            file.writelines(lines)
        call.emit(
            {"tasks": number, "file": str(out)},
            lambda screen: screen.print(f"{number:,} tasks: {out}"),
        )
