"""Scores of whole choice sets on 0-100: time, disk and memory of writing and opening them.

    .venv/bin/python benchmarks/scoring/choice_sets.py                  # two million pairs
    .venv/bin/python benchmarks/scoring/choice_sets.py --personas 100 --sets 20

Made-up products with eight facets, vectors of 384 numbers, personas with five tastes. Both
statistical raters are averaged, scored and committed to a store, as the stage does;
then the table is opened as a matrix per choice set. Each step runs in a process of its own, which
reports its peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

PRODUCTS, FACETS, VALUES, WIDTH = 40, 8, 4, 384
DATASET = "movies.preference_scores"


def world(personas: int, sets: int) -> dict[str, pl.DataFrame]:
    """Tables that the raters read."""
    dice = np.random.default_rng(7)
    ids = [f"ml:{n}" for n in range(sets * PRODUCTS)]
    members = pl.DataFrame({"item_id": ids}).with_columns(
        category_id=pl.format("category:{}", pl.int_range(pl.len()) // PRODUCTS)
    )
    facets = members.join(
        pl.DataFrame({"facet_id": [f"f{n}" for n in range(FACETS)]}), how="cross"
    ).with_columns(
        kind=pl.lit("vocabulary"),
        value=pl.Series(dice.integers(0, VALUES, len(ids) * FACETS)).cast(pl.String),
    )
    tastes = [
        [f"f{f}:{v}" for f, v in zip(dice.permutation(FACETS)[:5], row, strict=True)]
        for row in dice.integers(0, VALUES, (personas, 5))
    ]
    people = pl.DataFrame(
        {
            "persona_id": [f"persona:b:{n:07d}" for n in range(personas)],
            "likes": [row[:3] for row in tastes],
            "dislikes": [row[3:] for row in tastes],
        }
    )

    def vectors(key: str, names: pl.Series) -> pl.DataFrame:
        drawn = dice.normal(size=(len(names), WIDTH)).astype(np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        return pl.DataFrame({key: names, "vector": pl.Series(drawn).arr.to_list()})

    return {
        "items": members.select("item_id"),
        "choice_set_items": members,
        "facets": facets,
        "personas": people,
        "item_embeddings": vectors("item_id", members["item_id"]),
        "persona_embeddings": vectors("persona_id", people["persona_id"]),
    }


def write(home: Path, personas: int, sets: int) -> dict[str, Any]:
    """Plan, score and commit; seconds, bytes and pairs."""
    from pipelines import raters
    from pipelines.config import ProductScoringSettings
    from pipelines.store import Store

    tables = world(personas, sets)
    scale, chosen = raters.SCALES["0-100"], tables["choice_set_items"]
    plan = raters.plan_choice_sets(tables["personas"], chosen, ProductScoringSettings())
    before = _peak()
    clock, cpu = time.perf_counter(), time.process_time()
    rater = raters.EnsembleRater(
        [
            raters.FacetRater(chosen, tables["facets"], scale),
            raters.TextRater(
                chosen, tables["item_embeddings"], tables["persona_embeddings"], scale
            ),
        ]
    )
    scores = raters.CohortScores("b", plan.height)
    part = raters.Part(plan, tables["personas"], tables["persona_embeddings"])
    rows = list(scores.rows(raters.ScorePart(rater, tables["items"], batch=1_622), [part]))
    scored = time.perf_counter()
    scored_cpu = time.process_time()
    store = Store(home)
    with store.write(DATASET, code_version="benchmark") as writer:
        for frame in rows:
            writer.append(frame)
    table = store.current(DATASET)
    return {
        "pairs": table.rows,
        "score_s": scored - clock,
        "score_cpu_s": scored_cpu - cpu,
        "write_s": time.perf_counter() - scored,
        "write_cpu_s": time.process_time() - scored_cpu,
        "mb": table.manifest.bytes / 1e6,
        "bytes_per_row": table.manifest.bytes / table.rows,
        "tables_peak_mb": before,
        "peak_mb": _peak(),
    }


def read(home: Path, personas: int, sets: int) -> dict[str, Any]:
    """Open the expected scores as a matrix of personas and products per set."""
    from pipelines.raters import choice_set_figures
    from pipelines.store import Store

    chosen = world(2, sets)["choice_set_items"]
    before = _peak()
    clock = time.perf_counter()
    table = Store(home).current(DATASET)
    column = table.scan().select("expected").collect(engine="streaming")["expected"]
    y = column.to_numpy().astype(np.float32).reshape(personas, -1)
    opened, peak = time.perf_counter(), _peak()
    figures = choice_set_figures(table.scan(), chosen.lazy())
    return {
        "values": int(y.size),
        "open_s": opened - clock,
        "open_peak_mb": peak,
        "tables_peak_mb": before,
        "check_s": time.perf_counter() - opened,
        "check_peak_mb": _peak(),
        "worth": figures["worth"].mean(),
        "deviation": figures["deviation"].mean(),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run both steps, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--personas", type=int, default=500)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--step", choices=("write", "read"), help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        measure = {"write": write, "read": read}[given.step]
        print(json.dumps(measure(given.home, given.personas, given.sets)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for step in ("write", "read"):
            words = [sys.executable, __file__, "--step", step, "--home", folder]
            words += ["--personas", str(given.personas), "--sets", str(given.sets)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(step, json.dumps({k: round(v, 1) for k, v in found.items()}))


if __name__ == "__main__":
    main()
