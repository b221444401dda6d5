"""Peak memory and time of planning and scoring a large cohort by the statistical rater.

python benchmarks/scale/cohort.py [--personas 100000 400000] [--nodes 0 2] [--home FOLDER]

Items and people are those of the tests' small release, the personas copies of its six; vectors of
personas and items have 384 random numbers. Each size is measured in a process of its own. With
nodes, scores are made by so many Ray nodes of one core each on this machine, whose start is not
counted; their CPU time and memory are not those of the process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines import instructions

instructions.fix()  # as a Ray worker does, before NumPy is loaded

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
WIDTH = 384


def vectors(key: str, ids: pl.Series) -> pl.DataFrame:
    """Random unit vectors."""
    raw = np.random.default_rng(0).standard_normal((len(ids), WIDTH), dtype=np.float32)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    return pl.DataFrame(
        {
            key: ids,
            "model": ["random"] * len(ids),
            "text_sha256": ["0" * 64] * len(ids),
            "vector": pl.Series(raw).arr.to_list(),
        }
    )


def prepare(home: Path, count: int) -> None:
    """Commit the tables that scores are made from."""
    # A folder of the tests has the name of the package.
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]
    from support import small_release

    from pipelines.store import Store

    frames = small_release.frames()
    six = small_release.conform("movies.personas", frames["movies.personas"])
    ids = pl.Series("persona_id", [f"persona:default:{n:07}" for n in range(count)])
    people = six[np.arange(count) % six.height].with_columns(ids)
    small_release.build(home)
    store = Store(home)
    for dataset, frame in (
        ("movies.personas", people),
        ("movies.persona_embeddings", vectors("persona_id", ids)),
        ("movies.item_embeddings", vectors("item_id", frames["movies.items"]["item_id"])),
    ):
        conformed = small_release.conform(dataset, frame)
        store.commit(dataset, conformed, code_version="benchmark")


def score(home: Path, nodes: int) -> None:
    """Plan and score the cohort; print what it took as JSON."""
    from pipelines.context import PipelineContext
    from pipelines.stages import build, stage_of

    chosen = {"scale": "1-5", "max_pairs": 100_000_000, "rater": "statistical", "seed": 7}
    with cluster(nodes) as execution:
        context = PipelineContext(
            {"runtime": {"home": str(home)}, "scoring": chosen, "execution": execution}
        )
        took: dict[str, float | str] = {}
        for name in ("score_plan", "preference_scores"):
            begun, clock = time.process_time(), time.perf_counter()
            built = build(stage_of(f"movies.{name}"), context, cohort="default")
            took[name] = time.process_time() - begun
            took[f"{name}_s"] = time.perf_counter() - clock
            rows = built.snapshots[f"movies.{name}"].rows
            took[f"{name}_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took["version"] = built.snapshots["movies.preference_scores"].version
    print(json.dumps({**took, "rows": rows}))


@contextmanager
def cluster(nodes: int) -> Iterator[dict[str, str]]:
    """Settings of the executor that scores."""
    if not nodes:
        yield {}
        return
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=1)
        yield {"executor": "ray", "address": made.address}
    finally:
        made.shutdown()


def main() -> None:
    """Measure each size, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--personas", type=int, nargs="+", default=[100_000, 400_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[0])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--step", choices=["prepare", "score"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    home = asked.home or Path(tempfile.mkdtemp(prefix="understudy-cohort-"))
    if asked.step == "prepare":
        prepare(home, asked.personas[0])
    elif asked.step == "score":
        score(home, asked.nodes[0])
    else:
        head = "personas | pairs | nodes | plan, CPU s | scores, CPU s | scores, s | plan, MiB"
        print(f"| {head} | scores, MiB | version | load |")
        print("|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|")
        for number, (count, nodes) in enumerate(itertools.product(asked.personas, asked.nodes)):
            here = home / str(count)
            words = [sys.executable, __file__, "--personas", str(count), "--nodes", str(nodes)]
            if not here.exists():
                prepared = [*words, "--home", str(here), "--step", "prepare"]
                subprocess.run(prepared, check=True)
            # A home of its own: nothing is scored yet.
            copy = home / f"{count}-{number}"
            shutil.copytree(here, copy)
            scored = [*words, "--home", str(copy), "--step", "score"]
            done = subprocess.run(scored, check=True, stdout=subprocess.PIPE, text=True)
            shutil.rmtree(copy)
            found = json.loads(done.stdout.splitlines()[-1])
            print(
                f"| {count:,} | {found['rows']:,} | {nodes} | {found['score_plan']:.0f} | "
                f"{found['preference_scores']:.0f} | {found['preference_scores_s']:.0f} | "
                f"{found['score_plan_mb']:,.0f} | {found['preference_scores_mb']:,.0f} | "
                f"{found['version']} | {os.getloadavg()[0]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
