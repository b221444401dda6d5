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
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

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


COLUMNS = {
    "stage": "{stage}",
    "rows": "{rows:,}",
    "seconds": "{seconds:.1f}",
    "peak MiB": "{peak_mib:,.0f}",
    "disk GiB": "{disk_gib:.1f}",
}


def main() -> None:
    """Measure and print a Markdown table."""
    parser = harness.parser(__doc__)
    parser.add_argument("--world", choices=["sample", "folder", "ml-25m-sized"], default="sample")
    parser.add_argument("--data", type=Path, help="the folder, for --world folder")
    parser.add_argument(
        "--times", type=int, default=1, help="multiple of ml-25m's users and ratings"
    )
    parser.add_argument("--stages", choices=list(PARTS), default="all")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--scratch", help="folder of the homes (default: temporary)")
    parser.add_argument("--home", type=Path, help="one home, which stays")
    parser.add_argument("--memory-limit-mb", type=int, default=4096, help="DuckDB's limit")
    args = parser.parse_args()
    if args.home and args.repeat > 1:
        parser.error("a second sequence in one --home would find the tables of the first")
    runs = [sequence(args) for _ in range(args.repeat)]
    rows = [harness.medians(list(same)) for same in zip(*runs, strict=True)]
    peaks = {name: max(row[name] for row in rows) for name in ("peak_mib", "disk_gib")}
    seconds = sum(row["seconds"] for row in rows)
    harness.report(args, [*rows, {"stage": "**all**", "seconds": seconds, **peaks}], COLUMNS)


def sequence(args: argparse.Namespace) -> list[harness.Figures]:
    """Figures of the stages, one after the other in one home."""
    home = args.home or Path(tempfile.mkdtemp(prefix="understudy-bench-", dir=args.scratch))
    home.mkdir(parents=True, exist_ok=True)
    env = {
        "UNDERSTUDY_HOME": str(home),
        "UNDERSTUDY_RUNTIME__MEMORY_LIMIT_MB": str(args.memory_limit_mb),
    }
    if args.world == "folder":
        env["UNDERSTUDY_WORLD__FOLDER"] = str(args.data.resolve())
    if args.world == "ml-25m-sized":
        env |= {
            "UNDERSTUDY_WORLD__SAMPLE__FILMS": "62000",
            "UNDERSTUDY_WORLD__SAMPLE__USERS": str(162_000 * args.times),
            "UNDERSTUDY_WORLD__SAMPLE__RATINGS": str(25_000_000 * args.times),
        }
    used = psutil.disk_usage(str(home)).used
    try:
        return [
            {"stage": name, **harness.measure(materialise, STAGES[name], home, used, env=env)}
            for name in PARTS[args.stages]
        ]
    finally:
        if not args.home:
            shutil.rmtree(home, ignore_errors=True)


def materialise(assets: list[str], home: str, used: int) -> harness.Figures:
    """Seconds and rows of a stage's steps, with the peaks of memory and disk meanwhile."""
    from orchestration.defs.warehouse import model_assets
    from orchestration.headless import run_job

    if assets == ["@dbt"]:
        assets = sorted(key.to_user_string() for key in model_assets()["movies"].keys)
    peaks = {"peak_mib": 0.0, "disk_gib": 0.0}
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=(home, used, peaks, ended))
    watcher.start()
    try:
        steps = run_job("everything", overrides={}, select=assets).steps
    finally:
        ended.set()
        watcher.join()
    figures = {"seconds": float(sum(s.seconds for s in steps)), "rows": sum(s.rows for s in steps)}
    return figures | peaks


def watch(home: str, used: int, peaks: dict[str, float], ended: threading.Event) -> None:
    """Keep the peaks of the resident sizes of this process and its children, and of disk used."""
    process = psutil.Process()
    while not ended.wait(0.1):
        total = 0
        for one in (process, *process.children(recursive=True)):
            try:
                total += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        grown = psutil.disk_usage(home).used - used
        peaks["peak_mib"] = max(peaks["peak_mib"], total / 2**20)
        peaks["disk_gib"] = max(peaks["disk_gib"], grown / 2**30)


if __name__ == "__main__":
    harness.start(main)
