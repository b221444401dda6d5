"""What people choose to see: held-out choices, like compared with like, and speed.

    python benchmarks/raters/exposure.py --home HOME

The home is one that `understudy run` made from MovieLens files. All films are scored for the
personas; the model's weights, its figures on the test split and the personas' mean rating of what
people watched, weighted by exposure and not, are printed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.raters import (
    fit_exposure,
    fit_statistical,
    judge_exposure,
    population_report,
    population_rows,
    scale_named,
    score_pairs,
)
from pipelines.store import Store

TABLES = ("items", "interactions", "splits", "item_stats", "item_embeddings")


def main() -> None:
    """Measure, and print the rows of the population report that are about choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--personas", type=int, default=300, help="personas (count)")
    parser.add_argument("--no-text", action="store_true", help="leave the items' text vectors out")
    options = parser.parse_args()
    store = Store(options.home)
    names = TABLES[:-1] if options.no_text else TABLES
    tables: dict[str, Any] = {name: store.current(f"movies.{name}").read() for name in names}
    known = store.current("movies.personas").read().filter(origin="sampled")
    people, items = known.sort("persona_id")[: options.personas], tables["items"]
    rater = fit_statistical(scale=scale_named("1-10"), seed=11, **tables)
    learned = {name: tables[name] for name in ("interactions", "splits")}
    started = time.process_time()
    model = fit_exposure(rater, **learned, seed=11)
    print(f"fit: {time.process_time() - started:.1f} s of CPU\n{model.metadata}\n")
    exposure = model.of(people["persona_id"], rater.persona_tastes(people))
    plan = people.select("persona_id").join(items.select("item_id"), how="cross")
    watched = exposure(people["persona_id"], items["item_id"])
    plan = plan.with_columns(inclusion=1.0, exposure=pl.Series(watched.ravel()))
    scores = pl.concat(score_pairs(rater, plan, people, items, seed=11))
    found = population_report(
        scores,
        personas=people,
        items=items,
        rater=rater,
        plan=plan,
        selection=judge_exposure(model, rater, **learned, seed=11),
        seed=11,
        **learned,
    )
    chosen = found.table.filter(pl.col("figure").str.contains("watched|choice|exposure"))
    for name, unit, personas, humans, _ in population_rows(chosen):
        print(f"| {name} | {unit} | {personas} | {humans} |")
    crowd = np.resize(rater.persona_tastes(people), (1_000, rater.catalogue.taste.shape[1]))
    wall, cpu = time.perf_counter(), time.process_time()
    pairs = sum(model.probabilities(crowd[n : n + 64]).size for n in range(0, len(crowd), 64))
    took = time.perf_counter() - wall, time.process_time() - cpu
    print(f"\n{pairs:,} pairs: {pairs / took[0]:,.0f}/s, {pairs / took[1]:,.0f} per CPU second")


if __name__ == "__main__":
    main()
