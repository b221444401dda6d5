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
    from sim.training import TrainingReport

__all__ = ["train"]


def train(
    release: cli.ReleaseOption = "latest",
    algo: Annotated[
        str | None, cli.setting_option("--algo", "training.algo", "a2c, ppo, trpo or dqn")
    ] = None,
    steps: Annotated[
        int | None, cli.setting_option("--steps", "training.steps", "Steps to train for", min=1)
    ] = None,
    seed: Annotated[
        list[int] | None,
        cli.setting_option(
            "--seed",
            "training.seeds",
            "Seed; may be repeated, three give intervals over seeds",
            min=0,
        ),
    ] = None,
    rater: Annotated[
        str | None, cli.setting_option("--rater", "training.rater", "statistical, replay or llm")
    ] = None,
    envs: Annotated[
        int | None,
        cli.setting_option("--envs", "training.envs", "Environments per step", unset="32", min=1),
    ] = None,
    users: Annotated[
        int | None,
        cli.setting_option(
            "--users",
            "training.users",
            "Maximum number of personas evaluated on",
            unset="all",
            min=2,
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        cli.setting_option(
            "--evaluate-every",
            "training.evaluate_every",
            "Steps between points of the evaluation curve",
            min=1,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        cli.setting_option(
            "--checkpoint-every", "training.checkpoint_every", "Steps between checkpoints", min=1
        ),
    ] = None,
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
        Path | None,
        typer.Option(
            "--checkpoint", dir_okay=False, help="Resume from this checkpoint (.pt) instead."
        ),
    ] = None,
    settings: cli.SetOption = None,
    home: cli.HomeOption = None,
    config: cli.ConfigOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Train recommendation policies on a release and compare them with baselines.

    The table has the ceiling (an oracle that knows every expected rating), the best common list
    (the same for everybody), and the share of the headroom between them that a policy earns.
    Policies, checkpoints, TensorBoard logs, curves and plots go to a folder. Ctrl-C writes a
    checkpoint that --resume continues from.

    JSON: {"release", "rater", "language_model", "note", "scale", "algo", "steps",
    "seeds", "users", "seconds", "figures": {name: title}, "rows": [{"recommender",
    "trained", "note", "unrated_users", "figures": {name: {"value", "low", "high",
    "by_seed", "seed_low", "seed_high"}}}], "runs": [{"seed", "folder", "curve"}]}.
    """
    _installed()
    tree = cli.open_settings(home, config, settings)
    from sim.environment import World
    from sim.training import Stopped, run_settings
    from sim.training import train as run

    chosen = tree.training
    seeds = list(seed or chosen.seeds)
    wanted = run_settings(
        chosen,
        seed=seeds[0],
        algo=algo,
        steps=steps,
        envs=envs,
        users=users,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
    )
    world = World.open(
        cli.full_ref(release, tree),
        home=tree.runtime.home,
        rater=rater or chosen.rater,
        retriever=wanted.retriever,
    )
    folder = out or tree.runtime.home / "training" / f"{world.release.name}-{wanted.algo}"
    with (
        _interruptible() as asked,
        stoppable(asked),
        cli.progress_bar(f"{wanted.algo} on {world.release.name}", unit="steps", disable=as_json),
    ):
        try:
            report = run(
                world,
                wanted,
                seeds,
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
    if as_json:
        cli.write_json(report.as_json())
        return
    _print(report, folder)


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
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        del number, frame
        if asked:
            raise KeyboardInterrupt
        asked = True
        cli.console(stderr=True).print("stopping after this rollout (repeat to stop at once)")

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(report: TrainingReport, folder: Path) -> None:
    from sim.training._report import COLUMNS

    screen = cli.console()
    titles = list(COLUMNS.items())
    # Tables of three figures each fit a terminal of 80 columns.
    for start in range(0, len(titles), 3):
        part = titles[start : start + 3]
        names = [title for _, title in part]
        shown = cli.table("recommender", *names, numeric=names)
        for name, figures in report.rows.items():
            cells = (figures[key] for key, _ in part)
            shown.add_row(name, *(_shown(cell) for cell in cells))
        screen.print(shown)
        screen.print()
    for line in report.sentences():
        screen.print(line, soft_wrap=True)
    screen.print(f"Policies, curves and plots: {folder}", soft_wrap=True)


def _shown(figure: Any) -> str:
    if figure.value != figure.value:
        return "–"
    return f"{figure.value:.3f}\n[{figure.low:.2f}, {figure.high:.2f}]"
