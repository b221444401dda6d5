"""Time and peak memory of every pipeline stage, each in a process of its own.

    python benchmarks/pipeline/run.py --world sample
    python benchmarks/pipeline/run.py --world folder --data ../shared/data
    python benchmarks/pipeline/run.py --world ml-25m-sized --stages tables [--times 10]

Every stage is a fresh Python process that materialises the stage's assets through Dagster, as
`understudy run --select` does; the time is the steps' own, without the start of Python. Peak
memory is the largest sum of resident sizes over the process and its children (dbt), sampled ten
times a second; disk is the largest growth of what is used on the home's disk since the sequence
began. `--repeat` runs the whole sequence several times in new homes; the median is shown. A
`--home` stays, so that a world can be made there first and its tables later.
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
    "dbt build (models and tests of the films)": ["@dbt"],
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
PARTS = {
    "all": list(STAGES),
    "tables": list(STAGES)[:5],
    "world": list(STAGES)[:1],
    "warehouse": list(STAGES)[1:5],
    "marts": list(STAGES)[4:5],
}


def main() -> None:
    """Measure and print a Markdown table (and JSON with ``--json``)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--world", choices=["sample", "folder", "ml-25m-sized"], default="sample")
    parser.add_argument("--data", help="the folder, for --world folder")
    parser.add_argument(
        "--times", type=int, default=1, help="multiple of ml-25m's users and ratings"
    )
    parser.add_argument("--stages", choices=list(PARTS), default="all")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--scratch", default=None, help="folder of the homes (default: temporary)")
    parser.add_argument("--home", type=Path, help="one home, which stays")
    parser.add_argument("--memory-limit-mb", type=int, default=4096, help="DuckDB's limit")
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    if args.home and args.repeat > 1:
        parser.error("a second sequence in one --home would find the tables of the first")
    runs = [_sequence(args) for _ in range(args.repeat)]
    rows = [
        {
            "stage": name,
            "rows": runs[0][name]["rows"],
            "seconds": round(statistics.median(r[name]["seconds"] for r in runs), 1),
            "peak_mb": round(statistics.median(r[name]["peak_mb"] for r in runs)),
            "disk_gb": round(statistics.median(r[name]["disk_gb"] for r in runs), 1),
        }
        for name in runs[0]
    ]
    _print(rows, args)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _sequence(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    home = args.home or Path(tempfile.mkdtemp(prefix="understudy-bench-", dir=args.scratch))
    home.mkdir(parents=True, exist_ok=True)
    try:
        env = os.environ | {
            "UNDERSTUDY_HOME": str(home),
            "UNDERSTUDY_RUNTIME__MEMORY_LIMIT_MB": str(args.memory_limit_mb),
        }
        out: dict[str, dict[str, float]] = {}
        if args.world == "folder":
            env["UNDERSTUDY_WORLD__FOLDER"] = str(Path(args.data).resolve())
        if args.world == "ml-25m-sized":
            env |= {
                "UNDERSTUDY_WORLD__SAMPLE__FILMS": "62000",
                "UNDERSTUDY_WORLD__SAMPLE__USERS": str(162_000 * args.times),
                "UNDERSTUDY_WORLD__SAMPLE__RATINGS": str(25_000_000 * args.times),
            }
        before = psutil.disk_usage(str(home)).used
        for name in PARTS[args.stages]:
            out[name] = _stage(STAGES[name], env, home, before)
            print(f"  {name}: {out[name]}", file=sys.stderr, flush=True)
        return out
    finally:
        if not args.home:
            shutil.rmtree(home, ignore_errors=True)


def _stage(assets: list[str], env: dict[str, str], home: Path, before: int) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).with_name("_stage.py")), *assets]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    peak = [0, 0]
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, home, peak, stop))
    watcher.start()
    output, _ = process.communicate()
    stop.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"stage {assets} failed: {output}")
    report = json.loads(output.strip().splitlines()[-1])
    return {**report, "peak_mb": peak[0] / 2**20, "disk_gb": (peak[1] - before) / 2**30}


def _watch(pid: int, home: Path, peak: list[int], stop: threading.Event) -> None:
    root = psutil.Process(pid)
    while not stop.is_set():
        total = 0
        try:
            for process in (root, *root.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            pass
        peak[:] = max(peak[0], total), max(peak[1], psutil.disk_usage(str(home)).used)
        time.sleep(0.1)


def _print(rows: list[dict[str, float]], args: argparse.Namespace) -> None:
    memory = psutil.virtual_memory().total / 2**30
    print(
        f"\n{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}; world {args.world} x {args.times}; median of "
        f"{args.repeat}; DuckDB {args.memory_limit_mb} MiB\n"
    )
    print("| stage | rows | seconds | peak MiB | disk GiB |\n|---|---:|---:|---:|---:|")
    for row in rows:
        print(
            f"| {row['stage']} | {int(row['rows']):,} | {row['seconds']:.1f} "
            f"| {int(row['peak_mb']):,} | {row['disk_gb']:.1f} |"
        )
    total = sum(r["seconds"] for r in rows)
    peak, disk = max(int(r["peak_mb"]) for r in rows), max(r["disk_gb"] for r in rows)
    print(f"| **all** | | **{total:.1f}** | **{peak:,}** | **{disk:.1f}** |")


if __name__ == "__main__":
    main()
