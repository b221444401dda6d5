"""The commands ``understudy episode`` and ``understudy episodes``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.cli import options as cli
from pipelines.errors import AnswerError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["episode", "episodes"]

RaterOption = Annotated[
    str,
    typer.Option(
        "--rater",
        help="Rater: `statistical` (a fitted model of the data), `replay` (the release's "
        "stored scores), `llm` (the language model that its settings name), another name"
        " of `scoring.rater`, or file.py:Class of your own.",
    ),
]
RetrieverOption = Annotated[
    Literal["none", "recent", "features", "embedding", "graph"],
    typer.Option("--retriever", help="How past items are selected for the rater."),
]


@cli.command(rows="steps")
def episode(
    call: cli.Call,
    release: cli.ReleaseOption = "latest",
    steps: Annotated[int, typer.Option(min=1, help="Longest episode (steps).")] = 10,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed; the same seed gives the same episode.")
    ] = 0,
    policy: Annotated[
        Literal["random", "popular", "best"],
        typer.Option(
            help="Recommended items: random, the most rated, or those that the persona would rate"
            " highest (an oracle)."
        ),
    ] = "popular",
    persona: Annotated[
        str | None,
        typer.Option(
            help="Persona id, such as persona:default:3; default: a sampled persona is drawn."
        ),
    ] = None,
    rater: RaterOption = "statistical",
    retriever: RetrieverOption = "recent",
) -> None:
    """Play one episode on a release and print it.

    Examples:
      understudy episode --policy popular --steps 20
      understudy episode --release books@latest --persona persona:default:3

    JSON: {"release", "rater", "language_model", "note", "policy", "seed",
    "scale", "persona": {...}, "steps": [{"step", "item_id", "title", "year",
    "genres", "rating", "rating_status", "expected", "average", "repeated", "drivers"}],
    "summary": {"steps", "rated", "mean_rating", "total", "end"}}.
    """
    from sim import Release
    from sim.environment import World
    from sim.play import Player

    world = World.open(Release(call.release(release)), rater=rater, retriever=retriever)
    player = Player(world, policy=policy, steps=steps)
    if not call.quiet:
        screen = cli.console()
        # Step by step: a language model takes its time.
        for n, line in enumerate(player.text(seed=seed, persona=persona)):
            screen.print(line, style=None if n else "bold")
        return
    opening = player.start(seed=seed, persona=persona)
    played = list(player.play())
    payload = {**opening, "steps": played, "summary": player.summary()}
    call.emit(payload)


@cli.command()
def episodes(
    call: cli.Call,
    release: cli.ReleaseOption = "latest",
    number: Annotated[
        int, typer.Option("--episodes", min=1, help="Episodes to play (count).")
    ] = 100,
    envs: Annotated[
        int, typer.Option(min=1, help="Environments that are stepped together (count).")
    ] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Longest episode (steps).")] = 200,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed; the same seed gives the same episodes.")
    ] = 0,
    policy: Annotated[
        Literal["random", "popular"],
        typer.Option(help="Recommended items: random unseen ones, or the most rated."),
    ] = "random",
    rater: RaterOption = "statistical",
    retriever: RetrieverOption = "recent",
    memory: Annotated[
        Literal["episode", "persistent"],
        typer.Option(help="Whether memories last for one episode or persist."),
    ] = "episode",
    parquet: Annotated[
        Path | None, typer.Option(help="Write a row per step to this Parquet file.")
    ] = None,
    minari: Annotated[
        Path | None, cli.folder_option("--minari", "Write a Minari dataset into this folder.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Id of the Minari dataset; default: understudy/<domain>-<policy>-v0."),
    ] = None,
) -> None:
    """Play many episodes on a release and record them.

    JSON: {"release", "rater", "language_model", "scale", "policy", "seed", "episodes", "steps",
    "mean_reward", "mean_length", "parquet", "minari"}; the paths are null unless
    requested.
    """
    from sim import Release
    from sim.environment import RecommendationVectorEnv
    from sim.episodes import collect, write_minari, write_parquet

    env = RecommendationVectorEnv(
        min(envs, number),
        Release(call.release(release)),
        rater=rater,
        retriever=retriever,
        memory=memory,
        length_limit=steps,
        on_unrated="truncate",
        observation="compact" if minari is None else "recent",
    )
    log = collect(env, number, policy=policy, seed=seed)
    statuses = {str(status) for played in log for status in played.infos["rating_status"]}
    if "ok" not in statuses:
        raise AnswerError(
            f"no step got a rating ({', '.join(sorted(statuses))})",
            where=f"rater {env.rater.name}",
            hint=f"`understudy episode --rater {rater}` shows the reason",
        )
    written = None if parquet is None else write_parquet(log, parquet)
    folder = None
    if minari is not None:
        name = dataset or f"understudy/{env.release.domain}-{policy}-v0"
        folder = write_minari(log, minari, name, algorithm=policy)
    total = sum(float(episode.rewards.sum()) for episode in log)
    payload: dict[str, Any] = {
        **{key: log.metadata[key] for key in ("release", "rater", "language_model", "scale")},
        "policy": policy,
        "seed": seed,
        "episodes": len(log),
        "steps": log.steps,
        "mean_reward": total / log.steps,
        "mean_length": log.steps / len(log),
        "parquet": None if written is None else str(written),
        "minari": None if folder is None else str(folder),
    }

    def render(screen: Console) -> None:
        screen.print(
            f"{payload['episodes']} episodes, {payload['steps']} steps, mean reward "
            f"{payload['mean_reward']:.2f} on {payload['scale']}, policy {policy}, seed {seed}",
            style="bold",
        )
        for path in (written, folder):
            if path is not None:
                screen.print(f"written: {path}")
        screen.print(f"{log.metadata['note']} Release {payload['release']}.")

    call.emit(payload, render)
