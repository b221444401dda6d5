"""The command ``understudy train``."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import options as cli
from pipelines.errors import ConfigError
from pipelines.extras import install_hint
from pipelines.progress import stoppable

if TYPE_CHECKING:
    from rich.console import Console

    from sim.training import TrainingReport

__all__ = ["train"]


@cli.command(
    {
        f"--{name.replace('_', '-')}": f"training.{name}"
        for name in (
            *("algo", "steps", "rater", "envs", "users", "evaluate_every", "checkpoint_every"),
        )
    }
    | {"--seed": "training.seeds"},
    rows="rows",
)
def train(
    call: cli.Call,
    release: cli.ReleaseOption = "latest",
    out: Annotated[
        Path | None,
        cli.folder_option(
            "--out", "Folder of the run (default: training/<release>-<algo> in the store's folder)."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from the latest checkpoint in the folder.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Resume from this checkpoint (.pt) instead.")
    ] = None,
) -> None:
    """Train recommendation policies on a release and compare them with baselines.

    The table has the ceiling (an oracle that knows every expected rating), the best common list
    (the same for everybody), and the share of the headroom between them that a policy earns.
    Policies, checkpoints, TensorBoard logs, curves and plots go to a folder. Ctrl-C writes a
    checkpoint that --resume continues from.

    Examples:
      understudy train --algo ppo --steps 100000
      understudy train --seed 0 --seed 1 --seed 2 --resume

    JSON: {"release", "rater", "language_model", "note", "scale", "algo", "steps",
    "seeds", "users", "seconds", "figures": {name: title}, "rows": [{"recommender",
    "trained", "note", "unrated_users", "figures": {name: {"value", "low", "high",
    "by_seed", "seed_low", "seed_high"}}}], "runs": [{"seed", "folder", "curve"}]}.
    """
    _installed()
    from sim import Release
    from sim.environment import World
    from sim.training import Stopped, run_settings
    from sim.training import train as run

    chosen = call.settings.training
    options = run_settings(chosen, seed=chosen.seeds[0])
    world = World.open(
        Release(call.release(release)), rater=chosen.rater, retriever=options.retriever
    )
    folder = out or call.home / "training" / f"{world.release.name}-{options.algo}"
    with (
        _interruptible() as interrupted,
        stoppable(interrupted),
        call.progress(f"{options.algo} on {world.release.name}", "steps"),
    ):
        try:
            report = run(
                world,
                options,
                list(chosen.seeds),
                folder,
                # A checkpoint is of a run that is there already.
                resume=resume or checkpoint is not None,
                checkpoint=checkpoint,
            )
        except Stopped as stopped:
            cli.console(stderr=True).print(
                f"stopped at {stopped.steps:,} steps; the checkpoint is {stopped.path}; "
                "the same command with --resume continues",
                soft_wrap=True,
            )
            raise KeyboardInterrupt from None
    call.emit(report.as_json(), lambda screen: _render(screen, report, folder))


def _installed() -> None:
    """Check that the extra `train` is installed."""
    from importlib.util import find_spec

    missing = [m for m in ("stable_baselines3", "sb3_contrib", "tensorboard") if not find_spec(m)]
    if missing:
        raise ConfigError(
            f"training needs {', '.join(missing)}",
            where="understudy train",
            hint=install_hint("train"),
        )


@contextmanager
def _interruptible() -> Iterator[Any]:
    """Yield a function that reports whether Ctrl-C or SIGTERM arrived; a second is immediate."""
    interrupted = False

    def ask(number: int, frame: Any) -> None:
        nonlocal interrupted
        del number, frame
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        cli.console(stderr=True).print("stopping after this rollout (repeat to stop at once)")

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield lambda: interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _render(screen: Console, report: TrainingReport, folder: Path) -> None:
    from sim.training._report import COLUMNS

    titles = list(COLUMNS.items())
    # Tables of three figures each fit a terminal of 80 columns.
    for start in range(0, len(titles), 3):
        part = titles[start : start + 3]
        names = [title for _, title in part]
        rows = [(name, *(figures[key] for key, _ in part)) for name, figures in report.rows.items()]
        screen.print(cli.table("recommender", *names, rows=rows, numeric=names))
        screen.print()
    for line in (report.study.legend, *report.study.notes):
        screen.print(line, soft_wrap=True)
    screen.print(f"Policies, curves and plots: {folder}", soft_wrap=True)
