"""Personas beside people, with drawn and with mean tastes, and the speed of scoring.

    python benchmarks/raters/population.py --home HOME

The home is one that `understudy run` made from ml-latest-small with 500 personas. The pairs of its
score plan are scored, several seeds one after the other; the report is that of a release
(:func:`pipelines.raters.population_report`).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.raters import (
    fit_statistical,
    population_markdown,
    population_report,
    scale_named,
    score_pairs,
)
from pipelines.store import Store

TABLES = ("items", "interactions", "splits", "item_stats", "item_embeddings")


def main() -> None:
    """Measure, and print a table per kind of taste and the spread over seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--personas", type=int, default=500, help="personas (count)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the draws (count)")
    options = parser.parse_args()
    store = Store(options.home)
    tables: dict[str, Any] = {name: store.current(f"movies.{name}").read() for name in TABLES}
    known = store.current("movies.personas").read().sort("origin", "persona_id")
    people = known.filter(pl.col("origin").is_in(["sampled", "imported"]))[-options.personas :]
    people = people.sort("persona_id")
    pairs = store.current("movies.score_plan").read().sort("persona_id", "item_id")
    plan = pairs.select("persona_id", "item_id").join(people, on="persona_id", how="semi")
    for taste in ("mean", "drawn"):
        found: dict[str, list[float]] = {}
        for seed in range(options.seeds if taste == "drawn" else 1):
            rater = fit_statistical(scale=scale_named("1-10"), seed=seed, taste=taste, **tables)
            started = time.process_time()
            scores = pl.concat(score_pairs(rater, plan, people, tables["items"], seed=seed))
            speed = plan.height / (time.process_time() - started)
            report = population_report(
                scores,
                personas=people,
                rater=rater,
                seed=seed,
                **{name: tables[name] for name in ("items", "interactions", "splits")},
            )
            if seed == 0:
                text = population_markdown(report.table, report.metadata)
                print(
                    f"## taste: {taste}\n\n{text}\n\n{speed:,.0f} pairs per CPU second\n",
                    flush=True,
                )
            for row in report.table.iter_rows(named=True):
                found.setdefault(row["figure"], []).append(row["personas_value"])
        if taste == "drawn":
            print("| figure | mean over seeds | standard deviation of one |\n|---|--:|--:|")
            for name, values in found.items():
                print(f"| {name} | {np.mean(values):.4f} | {np.std(values, ddof=1):.4f} |")


if __name__ == "__main__":
    main()
