"""Selection model: held-out AUC, means of watched items with and without exposure, speed.

    python benchmarks/raters/exposure.py --home HOME

The home is one that `understudy run` made from MovieLens files. All films are scored for the
personas; the model's weights, its figures on the test split and the personas' mean rating of what
people watched, weighted by exposure and not, are printed.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
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
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the draws (count)")
    options = parser.parse_args()
    store = Store(options.home)
    tables: dict[str, Any] = {name: store.current(f"movies.{name}").read() for name in TABLES}
    known = store.current("movies.personas").read().filter(origin="sampled")
    people, items = known.sort("persona_id")[: options.personas], tables["items"]
    rater = fit_statistical(scale=scale_named("1-10"), seed=11, **tables)
    learned = {name: tables[name] for name in ("interactions", "splits")}
    started = time.process_time()
    model = fit_exposure(rater, **learned, seed=11)
    print(f"fit: {time.process_time() - started:.1f} s of CPU\n{model.metadata}\n")
    held_out = judge_exposure(model, rater, **learned, seed=11)
    plan = people.select("persona_id").join(items.select("item_id"), how="cross")
    found: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        drawn = replace(rater, seed=seed)
        exposure = model.of(people["persona_id"], drawn.persona_tastes(people))
        watched = exposure(people["persona_id"], items["item_id"]).ravel()
        report = population_report(
            pl.concat(score_pairs(drawn, plan, people, items, seed=seed)),
            personas=people,
            items=items,
            rater=drawn,
            plan=plan.with_columns(inclusion=1.0, exposure=pl.Series(watched)),
            selection=held_out,
            seed=seed,
            **learned,
        )
        chosen = report.table.filter(pl.col("figure").str.contains("watched|choice|exposure"))
        if not seed:
            for name, unit, personas, humans, _ in population_rows(chosen):
                print(f"| {name} | {unit} | {personas} | {humans} |")
        for row in chosen.drop_nulls("personas_value").iter_rows(named=True):
            found.setdefault(row["figure"], []).append(row["personas_value"])
    print("\n| over seeds | mean | standard deviation of one |\n|---|--:|--:|")
    for name, values in found.items():
        print(f"| {name} | {np.mean(values):.3f} | {np.std(values, ddof=1):.3f} |")
    crowd = np.resize(rater.persona_tastes(people), (1_000, rater.catalogue.taste.shape[1]))
    wall, cpu = time.perf_counter(), time.process_time()
    pairs = sum(model.probabilities(crowd[n : n + 64]).size for n in range(0, len(crowd), 64))
    took = time.perf_counter() - wall, time.process_time() - cpu
    print(f"\n{pairs:,} pairs: {pairs / took[0]:,.0f}/s, {pairs / took[1]:,.0f} per CPU second")


if __name__ == "__main__":
    main()
