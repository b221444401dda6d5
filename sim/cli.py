"""The command ``understudy episode``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.cli.options import (
    ConfigOption,
    HomeOption,
    JsonOption,
    ReleaseOption,
    console,
    full_ref,
    open_settings,
    write_json,
)

if TYPE_CHECKING:
    from sim._play import Player

__all__ = ["episode"]


def episode(
    release: ReleaseOption = "latest",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Longest episode (steps).")] = 10,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed; the same seed gives the same episode.")
    ] = 0,
    policy: Annotated[
        Literal["random", "popular", "best"],
        typer.Option(
            "--policy",
            help="What is recommended: any film, the most rated, or what the persona "
            "would rate highest (an oracle).",
        ),
    ] = "popular",
    persona: Annotated[
        str | None,
        typer.Option(
            "--persona",
            show_default=False,
            help="Persona id, such as persona:default:3; drawn if not given.",
        ),
    ] = None,
    rater: Annotated[
        Literal["embedded", "replay"],
        typer.Option(
            "--rater", help="Who rates: a fitted model of the data, or the release's stored scores."
        ),
    ] = "embedded",
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play one episode of the movie environment on a release and print it.

    JSON: {"release", "rater", "language_model", "note", "policy", "seed",
    "scale", "persona": {...}, "steps": [{"step", "item_id", "title", "year",
    "genres", "rating", "rating_status", "expected", "repeated", "drivers"}],
    "summary": {"steps", "rated", "mean_rating", "total", "end"}}.
    """
    from sim import open_release
    from sim._play import Player

    settings = open_settings(home, config)
    player = Player(
        open_release(full_ref(release, settings), home=settings.runtime.home),
        rater=rater,
        policy=policy,
        steps=steps,
    )
    opening = player.start(seed=seed, persona=persona)
    if as_json:
        played = list(player.play())
        write_json({**opening, "steps": played, "summary": player.summary()})
        return
    _print(player, opening)


def _print(player: Player, opening: dict[str, Any]) -> None:
    from sim.environment._text import persona_lines, step_line

    screen = console()
    heading, *rest = persona_lines(opening["persona"])
    screen.print(heading, style="bold", markup=False)
    for line in rest:
        screen.print(line, markup=False)
    screen.print()
    for step in player.play():
        screen.print(step_line(step, step, player.scale), markup=False)
    summary = player.summary()
    mean = summary["mean_rating"]
    shown = "none" if mean is None else f"{mean:.2f} on {player.scale.name}"
    screen.print()
    screen.print(
        f"{summary['steps']} steps ({summary['end']}), mean reward {shown}, "
        f"policy {opening['policy']}, seed {opening['seed']}",
        style="bold",
        markup=False,
    )
    screen.print(f"{opening['note']} Release {opening['release']}.", markup=False)
