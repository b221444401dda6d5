"""Write the scores of one more cohort beside those of others.

python benchmarks/releases/cohorts.py [--cohorts 10] [--pairs 1000000] [--repeat 3] [--home FOLDER]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from run import DATASET, cohort_frames

from pipelines.config import load_settings
from pipelines.context import PipelineContext
from pipelines.stages import Stage, build
from pipelines.store import Store, cohort_dataset

ITEMS = 1_000


def written_bytes() -> int:
    """Bytes that this process has passed to the system to be written."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def main() -> None:
    """Write the cohorts, then one more several times beside them, and print a table row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    home = asked.home or Path(tempfile.mkdtemp(prefix="understudy-cohorts-"))
    people = asked.pairs // ITEMS

    def frames(cohort: str) -> Iterator[pl.DataFrame]:
        return cohort_frames(cohort, people, ITEMS)

    store = Store(home)
    if not store.has(DATASET):
        for number in range(asked.cohorts):
            name = f"c{number:04}"
            with store.write(cohort_dataset(DATASET, name), code_version="1") as writer:
                for frame in frames(name):
                    writer.append(frame)
    before = store.current(DATASET).rows
    context = PipelineContext.of(store, load_settings(overrides={"runtime": {"home": str(home)}}))
    rows = []
    for number in range(asked.repeat):
        # Made before: what is measured is the writing.
        made = list(frames(f"x{number}"))
        stage = Stage(
            datasets=(DATASET,), code_version="1", make=lambda *_, made=made: made, by_cohort=True
        )
        begun, cpu, sent = time.perf_counter(), time.process_time(), written_bytes()
        build(stage, context, cohort=f"x{number}")
        rows.append(
            (
                time.process_time() - cpu,
                time.perf_counter() - begun,
                (written_bytes() - sent) / 2**20,
            )
        )
        assert store.current(DATASET).rows == before + (number + 1) * people * ITEMS
    cpu_s, wall_s, mib = (statistics.median(values) for values in zip(*rows, strict=True))
    load = os.getloadavg()[0]
    print(f"| {asked.cohorts} | {mib:,.1f} | {cpu_s:.2f} | {wall_s:.2f} | load {load:.1f}")


if __name__ == "__main__":
    main()
