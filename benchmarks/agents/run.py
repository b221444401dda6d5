"""Time and figures of statistical agents on a home that holds a release of films.

    python benchmarks/agents/run.py --home HOME --agents 1000 --runs 3
    python benchmarks/agents/run.py --home HOME --agents 100000 --recommender random

Where the release has no matched personas, its real users are the personas, each matched to itself.
Tables go into a temporary folder. Times are those of `simulate` alone: recommender and brain are
fitted before.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import orjson

from pipelines.progress import listening
from sim import open_release
from sim.agents import AgentWorld, open_brain, simulate, visit_study
from sim.recommenders import open_recommender, people_release


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
    runs = []
    with tempfile.TemporaryDirectory() as scratch:
        for brain_name in args.brain or ["statistical"]:
            wall, cpu = time.perf_counter(), time.process_time()
            brain = open_brain(brain_name).open(world)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(f"open {brain_name}: {wall:.1f} s, {cpu:.1f} s of CPU, peak {peak_mib():.0f} MiB")
            print(orjson.dumps(brain.metadata(), option=orjson.OPT_SERIALIZE_NUMPY).decode())
            for name in args.recommender or ["popular"]:
                shown = open_recommender(name).fit(release)
                times = []
                for number in range(args.runs):
                    folder = Path(scratch) / f"{brain_name}-{name}-{number}"
                    wall, cpu = time.perf_counter(), time.process_time()
                    with listening(
                        lambda _, done, __: print(
                            f"  {done:,} agents, peak {peak_mib():.0f} MiB", flush=True
                        )
                    ):
                        run = simulate(
                            world, brain, shown, agents=args.agents, folder=folder, seed=args.seed
                        )
                    times.append((time.perf_counter() - wall, time.process_time() - cpu))
                size = sum(p.stat().st_size for p in folder.glob("*.parquet")) / 2**20
                walls, cpus = zip(*times, strict=True)
                print(
                    f"{brain_name}, {name}, {args.agents:,} agents: median of {args.runs} "
                    f"{statistics.median(walls):.1f} s, {statistics.median(cpus):.1f} s of CPU, "
                    f"load {os.getloadavg()[0]:.1f}, {size:.0f} MiB of tables",
                    flush=True,
                )
                runs.append(run)
        print(visit_study(runs).markdown(release=release.ref))


if __name__ == "__main__":
    main()
