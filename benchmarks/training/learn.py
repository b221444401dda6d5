"""Learning curves of all algorithms with default settings: table, plot and JSON.

    python benchmarks/training/learn.py --home HOME --out FOLDER --steps 1600000 --seed 0 1 2

Trains on the release of HOME (see README.md), one algorithm after the other, one thread. Writes
`FOLDER/<algo>/` as `understudy train` does, `learning.json` and `learning.png`, and prints the
table.
An algorithm that is done is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from pipelines.config import TrainingSettings
from pipelines.progress import listening

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness


def trained(world: Any, algo: str, args: argparse.Namespace) -> dict[str, Any]:
    """Report of one algorithm, with the CPU time and load of its training."""
    from sim.training import run_settings, train

    kept = args.out / algo / "measured.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    settings = run_settings(
        TrainingSettings(), seed=args.seed[0], algo=algo, steps=args.steps,
        evaluate_every=args.every, users=args.users,
    )  # fmt: skip
    load = [os.getloadavg()[0]]

    def along(_: str, done: int, total: int | None) -> None:
        load.append(os.getloadavg()[0])
        print(f"{algo}: {done:,} of {total:,} steps", end="\r", flush=True)

    with harness.Clock() as clock, listening(along):
        report = train(world, settings, args.seed, args.out / algo).as_json()
    report |= {"cpu_seconds": clock.cpu_s, "load": [min(load), max(load)]}
    kept.write_text(json.dumps(report))
    return report


def line(name: str, row: dict[str, Any], more: str) -> str:
    """A row of the table."""
    reward, share = row["figures"]["average_reward"], row["figures"]["headroom"]
    seeds = "–"
    if row["trained"] and reward["seed_low"] is not None:
        seeds = f"{reward['seed_low']:.3f} to {reward['seed_high']:.3f}"
    return (
        f"| {name} | {reward['value']:.3f} | {reward['low']:.3f} to {reward['high']:.3f} | {seeds} "
        f"| {share['value']:.0%} ({share['low']:.0%} to {share['high']:.0%}) | {more} |"
    )


def plot(reports: list[dict[str, Any]], references: dict[str, float], path: Path) -> None:
    """Mean reward over seeds by steps, with the range of the seeds, and the references as lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), dpi=110, layout="constrained")
    axes: Any = figure.subplots()
    for report, colour in zip(reports, ("#2a6f97", "#bc4749", "#6a994e", "#7b5ea7"), strict=False):
        curves = [run["curve"] for run in report["runs"]]
        steps = [row["steps"] for row in curves[0]]
        values = [[row["average_reward"] for row in rows] for rows in zip(*curves, strict=True)]
        axes.plot(steps, [sum(v) / len(v) for v in values], color=colour, label=report["algo"])
        axes.fill_between(
            steps, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.2
        )
    for name, value in references.items():
        axes.axhline(value, color="0.45", linewidth=1, linestyle=":")
        axes.annotate(
            name, (0.99, value), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=7, color="0.35",
        )  # fmt: skip
    first = reports[0]
    axes.set_title(
        f"Average rating of ten recommendations, {len(first['seeds'])} seeds (band: range)\n"
        f"{first['release'].split('@')[0]}, rater {first['rater']} (no language model)",
        fontsize=10, loc="left",
    )  # fmt: skip
    axes.set_xlabel("steps")
    axes.set_ylabel("rating, 1-10")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=7, frameon=False, loc="center right")
    canvas: Any = FigureCanvasAgg(figure)
    with path.open("wb") as out:
        canvas.print_png(out)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--home", required=True, help="store's folder")
    parser.add_argument("--release", default="movies@latest")
    parser.add_argument("--algo", nargs="+", default=["a2c", "ppo", "trpo", "dqn"])
    parser.add_argument("--steps", type=int, default=1_600_000)
    parser.add_argument("--every", type=int, default=100_000, help="steps between evaluations")
    parser.add_argument("--users", type=int, help="personas evaluated on")
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    from sim.environment import World

    args.out.mkdir(parents=True, exist_ok=True)
    world = World.open(args.release, home=args.home)
    reports = [trained(world, algo, args) for algo in args.algo]
    print(f"{harness.heading(args)}\n")
    print(
        f"{len(world.catalogue):,} items, {len(world.cast):,} personas, "
        f"{reports[0]['users']:,} evaluated on, {args.steps:,} steps, seeds {args.seed}\n\n"
        "| recommender | average reward | over users | over seeds | headroom earned | CPU minutes "
        "per seed (load) |\n|---|--:|--:|--:|--:|--:|"
    )
    references = {}
    for row in reports[0]["rows"]:
        if row["trained"]:
            for report in reports:
                (own,) = [r for r in report["rows"] if r["trained"]]
                minutes = report["cpu_seconds"] / 60 / len(args.seed)
                load = "{:.1f} to {:.1f}".format(*report["load"])
                print(line(report["algo"], own, f"{minutes:.1f} ({load})"))
        else:
            references[row["recommender"]] = row["figures"]["average_reward"]["value"]
            print(line(row["recommender"], row, "–"))
    (args.out / "learning.json").write_text(json.dumps(reports))
    plot(reports, references, args.out / "learning.png")


if __name__ == "__main__":
    harness.start(main)
