"""Time and figures of statistical agents on a home that holds a release of films.

    python benchmarks/agents/run.py --home HOME --agents 1000 --runs 3
    python benchmarks/agents/run.py --home HOME --agents 100000 --recommender random

Where the release has no matched personas, its real users are the personas, each matched to itself.
Tables go into a temporary folder. Times are those of `simulate` alone: recommender and brain are
fitted before.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import orjson

from pipelines.progress import listening
from sim import open_release
from sim.agents import AgentWorld, open_brain, simulate, visit_study
from sim.recommenders import open_recommender, people_release

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

COLUMNS = {
    "case": "{case}", "wall, s": "{wall_s:.1f}", "CPU, s": "{cpu_s:.1f}",
    "peak, MiB": "{peak_mib:,.0f}", "tables, MiB": "{mib:.0f}",
}  # fmt: skip


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--release", default="movies@latest")
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--cast", choices=("matched", "personas"), default="matched")
    parser.add_argument("--pages", type=int, default=5)
    parser.add_argument("--recommender", action="append", default=[])
    parser.add_argument("--brain", action="append", default=[])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # Imported by the first run otherwise.
    import pipelines.contracts  # noqa: F401

    release = open_release(args.release, home=args.home)
    if args.cast == "matched" and "matched_personas" not in release:
        release = people_release(release, release["training_traits"].polars()["user_id"].sort())
    world = AgentWorld.open(release, cast=args.cast, pages=args.pages)
    print(f"{release.ref}: {len(world)} people, {len(world.catalogue)} items", flush=True)
    runs, rows = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for brain_name in args.brain or ["statistical"]:
            with harness.Clock() as clock:
                brain = open_brain(brain_name).open(world)
            row = {"case": f"open {brain_name}", **clock.figures()}
            rows.append({**row, "peak_mib": harness.peak_mib()})
            print(orjson.dumps(brain.metadata(), option=orjson.OPT_SERIALIZE_NUMPY).decode())
            for name in args.recommender or ["popular"]:
                shown = open_recommender(name).fit(release)
                times = []
                for number in range(args.runs):
                    folder = Path(scratch) / f"{brain_name}-{name}-{number}"
                    with harness.Clock() as clock, listening(progress):
                        run = simulate(
                            world, brain, shown, agents=args.agents, folder=folder, seed=args.seed
                        )
                    times.append(clock.figures())
                row = harness.medians(times) | {
                    "case": f"{brain_name}, {name}, {args.agents:,} agents, median of {args.runs}",
                    "peak_mib": harness.peak_mib(),
                    "mib": sum(p.stat().st_size for p in folder.glob("*.parquet")) / 2**20,
                }
                rows.append(row)
                runs.append(run)
        print(visit_study(runs).markdown(release=release.ref))
    harness.report(args, rows, COLUMNS)


def progress(_: str, done: int, __: int | None) -> None:
    print(f"  {done:,} agents, peak {harness.peak_mib():.0f} MiB", flush=True)


if __name__ == "__main__":
    harness.start(main)
