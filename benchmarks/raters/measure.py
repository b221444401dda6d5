"""Speed, memory and held-out figures of the statistical rater.

    python benchmarks/raters/measure.py --home ml-latest-small=HOME --home ml-100k=HOME
    python benchmarks/raters/measure.py --home ml-latest-small=HOME --tune

Each home is one that `understudy run` made from that data set; only its tables of films are
read. Where it has no item embeddings, texts are encoded once into a file of --cache.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.raters import fit_rater, score_pairs, whole_report
from pipelines.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

#: Settings of matrix factorisation that are tried (Surprise's names).
GRID = {
    "n_factors": (20, 50, 100),
    "n_epochs": (30, 60),
    "lr_all": (0.005, 0.007, 0.01),
    "reg_all": (0.05, 0.1, 0.15),
}
COLUMNS = {
    "pairs": "{pairs:,}", "s": "{wall_s:.1f}", "pairs/s": "{per_second:,.0f}",
    "pairs per CPU second": "{per_cpu_second:,.0f}", "peak, MiB": "{peak_mib:,.0f}",
}  # fmt: skip
TABLES = ("items", "interactions", "splits", "item_stats", "human_users")


def main() -> None:
    """Measure, and print Markdown."""
    parser = harness.parser(__doc__)
    parser.add_argument("--home", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "understudy-bench")
    parser.add_argument("--personas", type=int, default=1_000, help="personas to score (count)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs; the median is shown")
    parser.add_argument("--tune", action="store_true", help="matrix factorisation's grid only")
    parser.add_argument("--no-speed", action="store_true", help="held-out figures only")
    parser.add_argument("--speed", action="store_true", help="speed of the first home only")
    options = parser.parse_args()
    for number, given in enumerate(options.home):
        name, folder = given.split("=", 1)
        if options.tune:
            for rmse, settings in tune(Store(Path(folder))):
                print(f"{rmse:.4f} {json.dumps(settings)}", flush=True)
            continue
        tables = read(name, Path(folder), options.cache)
        traits = tables.pop("human_users")
        raters = [fit_rater(n, scale="1-10", **tables) for n in ("statistical", "mean", "random")]
        if not options.speed:
            report = whole_report(raters, **tables, human_users=traits)
            print(f"\n## {name}\n\n{report.study().markdown(level=3)}\n")
        if number == 0 and not options.no_speed:
            row = speed(raters[0], tables["items"], options.personas, options.runs)
            harness.report(options, [row], COLUMNS)
        if options.speed:
            return


def tune(store: Store) -> Iterator[tuple[float, dict[str, Any]]]:
    """RMSE on validation ratings of matrix factorisation fitted on training ratings, by setting."""
    from surprise import SVD, Dataset, Reader

    interactions, splits = (store.current(f"movies.{t}").read() for t in ("interactions", "splits"))
    rows = interactions.join(splits, on=["user_id", "item_id"])
    train, held = (
        rows.filter(split=s).select("user_id", "item_id", "rating").to_pandas()
        for s in ("train", "validation")
    )
    ends = Reader(rating_scale=(float(train["rating"].min()), float(train["rating"].max())))
    known = Dataset.load_from_df(train, ends).build_full_trainset()
    for values in itertools.product(*GRID.values()):
        settings = dict(zip(GRID, values, strict=True))
        found = SVD(random_state=0, **settings).fit(known).test(held.to_numpy().tolist())
        yield float(np.sqrt(np.mean([(p.est - p.r_ui) ** 2 for p in found]))), settings


def read(name: str, home: Path, cache: Path) -> dict[str, Any]:
    """Tables of the films of a home, with embeddings from it or from the cache."""
    store = Store(home)
    tables = {t: store.current(f"movies.{t}").read() for t in TABLES}
    if store.has("movies.item_embeddings"):
        tables["item_embeddings"] = store.current("movies.item_embeddings").read()
        return tables
    path = cache / f"{name}.parquet"
    if not path.exists():
        from pipelines.config import EmbeddingSettings, RuntimeSettings
        from pipelines.embeddings import item_text, load_embedder

        cache.mkdir(parents=True, exist_ok=True)
        encoder = load_embedder(EmbeddingSettings(), RuntimeSettings())
        vectors = encoder.encode(item_text(tables["items"]).to_list())
        column = pl.Series(np.asarray(vectors, dtype=np.float32)).arr.to_list()
        tables["items"].select("item_id", column.alias("vector")).write_parquet(path)
    tables["item_embeddings"] = pl.read_parquet(path)
    return tables


def speed(rater: Any, items: pl.DataFrame, count: int, runs: int) -> harness.Figures:
    """Pairs per second of all films with `count` personas, frames and checks included."""
    rng = np.random.default_rng(0)
    ids = [f"persona:bench:{n:07d}" for n in range(count)]
    vectors = rng.normal(size=(count, rater.catalogue.vectors.shape[1])).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    genres = list(rater.catalogue.genres)
    people = pl.DataFrame(
        {
            "persona_id": ids,
            "likes": [sorted(rng.choice(genres, 3, replace=False)) for _ in ids],
            "dislikes": [sorted(rng.choice(genres, 1)) for _ in ids],
            "description": [f"Number {n} loves comedies. A harsh critic." for n in range(count)],
        }
    )
    table = pl.DataFrame({"persona_id": ids, "vector": pl.Series(vectors).arr.to_list()})
    rater = dataclasses.replace(rater, persona_vectors=table)
    plan = people.select("persona_id").join(
        items.select("item_id"), how="cross", maintain_order="left_right"
    )
    times = []
    for _ in range(runs):
        with harness.Clock() as clock:
            rows = sum(frame.height for frame in score_pairs(rater, plan, people, items))
        if rows != plan.height:
            raise SystemExit(f"{rows} scores for {plan.height} pairs")
        times.append(clock.figures())
    middle = harness.medians(times)
    return middle | {
        "pairs": plan.height,
        "per_second": plan.height / middle["wall_s"],
        "per_cpu_second": plan.height / middle["cpu_s"],
        "peak_mib": harness.peak_mib(),
    }


if __name__ == "__main__":
    harness.start(main)
