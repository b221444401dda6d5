"""Quality, speed and memory of every recommender on a release, and LightGCN's tuning.

    python benchmarks/recommenders/run.py --home HOME
    python benchmarks/recommenders/run.py --home HOME --tune

Each recommender runs in a process of its own, so that peak memory is its own. `--tune` fits
LightGCN over a grid and judges it on the validation split.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

#: Users of the timed call of `recommend` (count).
USERS = 1_000
#: LightGCN: layers, L2 penalty, epochs.
GRID = [(n, 1e-4, e) for n in (1, 2, 3) for e in (60, 80, 100)] + [(2, 1e-3, 80)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--release", default="movies@latest")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--only", nargs="+", help="recommenders; default all but content")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.home, args.release, args.one)))
        return
    if args.tune:
        tune(args.home, args.release)
        return
    from sim.recommenders import RECOMMENDERS

    print(
        "| recommender | Recall@20 | NDCG@20 | fit, s | fit, s of CPU | recommend, s | peak, MiB |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name in args.only or [n for n in RECOMMENDERS if n != "content"]:
        command = [sys.executable, __file__, "--home", args.home, "--release", args.release]
        done = subprocess.run([*command, "--one", name], capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {name} | {row['recall']} | {row['ndcg']} | {row['fit']:.1f} | {row['cpu']:.1f} "
            f"| {row['recommend']:.2f} | {row['peak']:,.0f} |",
            flush=True,
        )


def measure(home: str, release: str, name: str) -> dict[str, object]:
    """Figures of a recommender on test, seconds, peak memory (MiB)."""
    from sim import open_release
    from sim.recommenders import evaluate_offline, known_items, open_recommender, people_release

    opened = open_release(release, home=home)
    users = opened["splits"].polars(["user_id"])["user_id"].unique().sort().to_list()
    view = people_release(opened, users)
    made = open_recommender(name)
    wall, cpu = time.perf_counter(), time.process_time()
    made.fit(view)
    fit, cpu = time.perf_counter() - wall, time.process_time() - cpu
    asked = np.arange(USERS) % len(users)
    seen = known_items(view)[asked]
    made.recommend(asked[:2], 20, seen=seen[:2])
    wall = time.perf_counter()
    made.recommend(asked, 20, seen=seen)
    recommend = time.perf_counter() - wall

    class Fitted:
        """The model that is there already."""

        name, note = made.name, made.note
        recommend = made.recommend

        def fit(self, *_: object, **__: object) -> object:
            return made

    row = evaluate_offline({name: Fitted()}, opened, against=name).rows[0]
    cells = {
        key: f"{f.value:.4f} [{f.low:.3f}, {f.high:.3f}]"
        for key, f in (("recall", row.recall), ("ndcg", row.ndcg))
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**cells, "fit": fit, "cpu": cpu, "recommend": recommend, "peak": peak}


def tune(home: str, release: str) -> None:
    """LightGCN over the grid, on validation."""
    from sim import open_release
    from sim.recommenders import evaluate_offline, open_recommender

    opened = open_release(release, home=home)
    print("| layers | penalty | epochs | Recall@20 | NDCG@20 |\n|--:|--:|--:|--:|--:|")
    for layers, penalty, epochs in GRID:
        made = open_recommender("lightgcn", layers=layers, regularization=penalty, epochs=epochs)
        report = evaluate_offline(
            {"lightgcn": made}, opened, split="validation", against="lightgcn"
        )
        row = report.rows[0]
        figures = f"{row.recall.value:.4f} | {row.ndcg.value:.4f}"
        print(f"| {layers} | {penalty:g} | {epochs} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
