"""Open a release of many scores and read one column, in fresh processes.

python benchmarks/releases/run.py [--personas 10000] [--items 1000] [--repeat 5] [--home FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.contracts import CONTRACTS
from pipelines.store import Store

DATASET = "movies.preference_scores"
#: Personas per batch that is written.
BATCH = 500

READ = """
import json, resource, sys, time
begun = time.perf_counter()
import understudy
imported = time.perf_counter()
release = understudy.open_release("movies", home=sys.argv[1])
table = release["preference_scores"]
opened = time.perf_counter()
as_polars = sys.argv[2] == "polars"
column = table.polars(["expected"])["expected"] if as_polars else table.numpy("expected")
read = time.perf_counter()
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "import": imported - begun, "open": opened - imported, "read": read - opened,
    "rows": len(column), "cpu": usage.ru_utime + usage.ru_stime,
    "memory_mb": usage.ru_maxrss / 1024,
}))
"""


def cohort_frames(cohort: str, personas: int, items: int) -> Iterator[pl.DataFrame]:
    """Scores of a cohort, some personas at a time."""
    schema = CONTRACTS[DATASET].polars_schema()
    rng = np.random.default_rng(0)
    names = sorted(f"ml:{n}" for n in range(1, items + 1))
    # Every batch has the same distributions: drawing them would take longer than writing them.
    raw = rng.dirichlet(np.ones(10), BATCH * items).round(4)
    raw[:, 0] = np.abs(raw[:, 0] + 1 - raw.sum(axis=1))
    raw /= raw.sum(axis=1, keepdims=True)
    mode = raw.argmax(axis=1) + 1
    drawn = pl.DataFrame(
        {
            "item_id": names * BATCH,
            "probabilities": raw,
            "expected": raw @ np.arange(1, 11),
            "mode": mode,
            "sample": mode,
            "entropy": -(raw * np.log(np.maximum(raw, 1e-12))).sum(axis=1),
        }
    ).with_columns(
        pl.col("probabilities").arr.to_list(),
        rater=pl.lit("statistical"),
        scale=pl.lit("1-10"),
        status=pl.lit("ok"),
    )
    for first in range(0, personas, BATCH):
        here = [f"persona:{cohort}:{n:07}" for n in range(first, min(personas, first + BATCH))]
        frame = drawn.head(len(here) * items).with_columns(
            persona_id=pl.Series(here).gather(np.repeat(np.arange(len(here)), items))
        )
        empty = [pl.lit(None, kind).alias(c) for c, kind in schema.items() if c not in frame]
        yield frame.with_columns(empty).select(*schema).cast(dict(schema))


def build(home: Path, personas: int, items: int) -> None:
    """Commit a table of scores, persona by persona, and pin it."""
    store = Store(home)
    with store.write(DATASET, code_version="benchmark") as writer:
        for frame in cohort_frames("default", personas, items):
            writer.append(frame)
    store.publish(
        "movies", {"preference_scores": writer.snapshot}, world="sample", required={}, card="# x\n",
        settings={},
    )  # fmt: skip


def forget(home: Path) -> None:
    """Ask the system to drop the files' pages."""
    for file in home.rglob("*.parquet"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def main() -> None:
    """Build, or take a home that has the release, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--personas", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    home = asked.home or Path(tempfile.mkdtemp(prefix="understudy-releases-"))
    if not (home / "releases").is_dir():
        begun = time.process_time()
        build(home, asked.personas, asked.items)
        print(f"built in {time.process_time() - begun:.0f} s of processor time")
    size = sum(f.stat().st_size for f in home.rglob("*.parquet"))
    load = os.getloadavg()[0]
    print(f"{size / 2**20:,.0f} MiB, {os.cpu_count()} cores, load {load:.1f}\n")
    print("| read as | page cache | import s | open s | read s | processor s | peak MB |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for form in ("polars", "numpy"):
        for cache in ("warm", "dropped"):
            runs = []
            for _ in range(asked.repeat):
                if cache == "dropped":
                    forget(home)
                done = subprocess.run(
                    [sys.executable, "-c", READ, str(home), form],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                runs.append(json.loads(done.stdout))
            middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            print(
                f"| {form} | {cache} | {middle['import']:.2f} | {middle['open']:.3f} | "
                f"{middle['read']:.3f} | {middle['cpu']:.2f} | {middle['memory_mb']:.0f} |"
            )
    print(f"\n{middle['rows']:,} rows, medians of {asked.repeat} processes")


if __name__ == "__main__":
    main()
