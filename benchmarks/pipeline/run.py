"""Time and peak memory of every pipeline stage, each in a process of its own.

    python benchmarks/pipeline/run.py --world sample
    python benchmarks/pipeline/run.py --world folder --data ../shared/data
    python benchmarks/pipeline/run.py --world ml-25m-sized --stages tables

Every stage is a fresh Python process that materialises the stage's assets through Dagster, as
`understudy run --select` does; the time is the steps' own, without the start of Python. Peak
memory is the largest sum of resident sizes over the process and its children (dbt), sampled ten
times a second. `--repeat` runs the whole sequence several times in new homes; the median is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

STAGES: dict[str, list[str]] = {
    "find (or generate) files": ["sources/world_files"],
    "ingest MovieLens": [
        f"raw/movielens_{t}" for t in ("movies", "ratings", "links", "tags", "rejected")
    ],
    "ingest TMDB": [f"raw/tmdb_{t}" for t in ("movies", "missing", "rejected")],
    "dbt build (models and tests)": ["@dbt"],
    "marts to snapshots": [
        f"movies/{t}" for t in ("items", "interactions", "splits", "item_stats", "human_users")
    ],
    "personas": ["movies/personas"],
    "embeddings": ["movies/persona_embeddings", "movies/item_embeddings"],
    "score plan and scores": ["movies/score_plan", "movies/preference_scores"],
    "graph triples": ["movies/graph_triples"],
    "similar items": ["movies/item_similarity"],
    "release": ["releases/movies"],
}
TABLES = list(STAGES)[:5]


def main() -> None:
    """Measure and print a Markdown table (and JSON with ``--json``)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--world", choices=["sample", "folder", "ml-25m-sized"], default="sample")
    parser.add_argument("--data", help="the folder, for --world folder")
    parser.add_argument("--stages", choices=["all", "tables"], default="all")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--scratch", default=None, help="where the homes go (needs ~15 GB at 25M)")
    parser.add_argument("--memory-limit-mb", type=int, default=4096, help="DuckDB's limit")
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    runs = [_sequence(args) for _ in range(args.repeat)]
    rows = [
        {
            "stage": name,
            "rows": runs[0][name]["rows"],
            "seconds": round(statistics.median(r[name]["seconds"] for r in runs), 1),
            "peak_mb": round(statistics.median(r[name]["peak_mb"] for r in runs)),
        }
        for name in runs[0]
    ]
    _print(rows, args)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _sequence(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    scratch = Path(tempfile.mkdtemp(prefix="understudy-bench-", dir=args.scratch))
    try:
        env = os.environ | {
            "UNDERSTUDY_HOME": str(scratch / "home"),
            "UNDERSTUDY_RUNTIME__MEMORY_LIMIT_MB": str(args.memory_limit_mb),
        }
        out: dict[str, dict[str, float]] = {}
        if args.world == "folder":
            env["UNDERSTUDY_WORLD__FOLDER"] = str(Path(args.data).resolve())
        if args.world == "ml-25m-sized":
            env |= {
                "UNDERSTUDY_WORLD__SAMPLE__FILMS": "62000",
                "UNDERSTUDY_WORLD__SAMPLE__USERS": "162000",
                "UNDERSTUDY_WORLD__SAMPLE__RATINGS": "25000000",
            }
        for name in STAGES if args.stages == "all" else TABLES:
            out[name] = _stage(STAGES[name], env)
            print(f"  {name}: {out[name]}", file=sys.stderr, flush=True)
        return out
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _stage(assets: list[str], env: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).with_name("_stage.py")), *assets]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    peak = [0]
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, stop))
    watcher.start()
    output, _ = process.communicate()
    stop.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"stage {assets} failed: {output}")
    report = json.loads(output.strip().splitlines()[-1])
    return {**report, "peak_mb": peak[0] / 2**20}


def _watch(pid: int, peak: list[int], stop: threading.Event) -> None:
    root = psutil.Process(pid)
    while not stop.is_set():
        total = 0
        try:
            for process in (root, *root.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            pass
        peak[0] = max(peak[0], total)
        time.sleep(0.1)


def _print(rows: list[dict[str, float]], args: argparse.Namespace) -> None:
    memory = psutil.virtual_memory().total / 2**30
    print(
        f"\n{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}; world {args.world}; median of {args.repeat}\n"
    )
    print("| stage | rows | seconds | peak MiB |\n|---|---:|---:|---:|")
    for row in rows:
        print(
            f"| {row['stage']} | {int(row['rows']):,} | {row['seconds']:.1f} "
            f"| {int(row['peak_mb']):,} |"
        )
    total = sum(r["seconds"] for r in rows)
    print(f"| **all** | | **{total:.1f}** | **{max(int(r['peak_mb']) for r in rows):,}** |")


if __name__ == "__main__":
    main()
