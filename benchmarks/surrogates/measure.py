"""Surrogates of several teachers on the current tables of a home: cost, fidelity, speed, learning.

    python benchmarks/surrogates/measure.py --home HOME fidelity --teacher statistical ensemble
    python benchmarks/surrogates/measure.py --home HOME bound
    python benchmarks/surrogates/measure.py --home HOME learning --steps 40000 --seed 0 1 2

Parts: `fidelity` (a surrogate per teacher; `mean-taste` is the statistical rater without draws of
taste, `ensemble` the mean of it with draws and of the rater `mean`, `rating-model` the stored
rating model through transformers; `shuffled` is the statistical teacher's with the facts of
personas and items exchanged), `bound` (error of the best possible guess of the statistical
teacher's ratings from a persona's facts: its mean over other ids with the same facts), `learning`
(A2C on the current surrogate and on its teacher, both judged by the teacher, beside random and
popular items).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines import raters, surrogates
from pipelines.config import SurrogateSettings
from pipelines.seeding import hash_ids, uniform
from pipelines.store import Store

_READ = ("personas", "items", "item_stats", "item_embeddings", "persona_embeddings")


def timed(call: Any) -> tuple[Any, float]:
    """Result of a call, and its CPU seconds."""
    started = time.process_time()
    return call(), time.process_time() - started


def shuffled(frame: pl.DataFrame, key: str, seed: int) -> pl.DataFrame:
    """The same ids with each other's facts."""
    order = np.random.default_rng(seed).permutation(frame.height).tolist()
    return frame.select(key).hstack(frame.drop(key)[order])


def pairs_of(scores: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> Any:
    """Row numbers of scored personas and items, of shape (pairs, 2)."""
    return np.column_stack(
        [
            scores.select(key).join(
                tables[side].select(key).with_row_index("row"), on=key, how="left",
                maintain_order="left",
            )["row"].to_numpy()
            for key, side in (("persona_id", "personas"), ("item_id", "items"))
        ]
    ).astype(np.int64)  # fmt: skip


def rating_model(home: Path, tables: dict[str, Any]) -> raters.Rater:
    """The current rating model, calibrated, through transformers."""
    from pipelines.context import PipelineContext

    settings = PipelineContext(
        {
            "runtime": {"home": str(home)},
            "scoring": {"rater": "llm", "layout": "ledger", "calibration": "model"},
            "engine": {"kind": "transformers", "model": "movies.rating_model@latest"},
            "serving": {"device": "cpu"},
        }
    ).settings
    return raters.open_rater(settings, **tables)


def bound(args: argparse.Namespace) -> None:
    """Error of the teacher's mean over its draws, which is all that facts can tell."""
    store = Store(args.home)
    tables = {name: store.current(f"movies.{name}").read() for name in _READ}
    learned: dict[str, Any] = {
        t: store.current(f"movies.{t}").scan() for t in ("interactions", "splits")
    }
    stored = store.current("movies.preference_scores").read()
    people = tables["personas"].join(stored, on="persona_id", how="semi").sort("persona_id")
    # Those that no surrogate with the default settings learns from.
    own = surrogates.RECIPE
    order = np.argsort(uniform(own.seed, hash_ids(people["persona_id"]), 1), kind="stable")
    people = people[order[: round(own.hold_out_personas * len(order))].tolist()]
    stored = stored.join(people, on="persona_id", how="semi")
    pairs = pairs_of(stored, {**tables, "personas": people})

    def renamed(frame: pl.DataFrame, copy: int) -> pl.DataFrame:
        return frame.with_columns(persona_id=pl.format("{}#{}", "persona_id", pl.lit(copy)))

    vectors = tables["persona_embeddings"].filter(
        pl.col("persona_id").is_in(people["persona_id"].implode())
    )
    copies = range(args.draws)
    known = {k: v for k, v in tables.items() if k not in ("personas", "persona_embeddings")}
    rater = raters.fit_rater(
        "statistical", scale="1-10", seed=11, taste="drawn", **known, **learned,
        persona_embeddings=pl.concat([vectors, *(renamed(vectors, n) for n in copies)]),
    )  # fmt: skip
    truth = rater.rate(people, tables["items"], pairs=pairs).expected
    total = np.zeros(len(pairs))
    for n in copies:
        total += rater.rate(renamed(people, n), tables["items"], pairs=pairs).expected
    # The mean of finitely many draws has an error of its own.
    square = (total / args.draws - truth) ** 2 / (1 + 1 / args.draws)
    sums = np.bincount(pairs[:, 0], square), np.bincount(pairs[:, 0])
    rng = np.random.default_rng(0)
    drawn = rng.integers(people.height, size=(1_000, people.height))
    low, high = np.quantile(np.sqrt(sums[0][drawn].sum(1) / sums[1][drawn].sum(1)), (0.025, 0.975))
    same = float(np.abs(truth - stored["expected"].to_numpy()).max())
    print(
        f"{len(pairs):,} pairs of {people.height} personas, {args.draws} draws: RMSE of their mean "
        f"{np.sqrt(square.mean()):.3f} [{low:.3f}, {high:.3f}]; "
        f"from the stored scores at most {same:.0e}"
    )


def scores_by(
    name: str, tables: dict[str, pl.DataFrame], store: Store, pairs_at_most: int
) -> pl.DataFrame:
    """The stored scores, or another teacher's for the same pairs."""
    stored = store.current("movies.preference_scores").read()
    stored = stored.sample(min(pairs_at_most, stored.height), seed=0)
    if name in ("statistical", "shuffled"):
        return stored
    learned: dict[str, Any] = {
        t: store.current(f"movies.{t}").scan() for t in ("interactions", "splits")
    }
    known = {k: v for k, v in tables.items() if k != "personas"}

    def fitted(kind: str, taste: str) -> raters.Rater:
        return raters.fit_rater(kind, scale="1-10", seed=11, taste=taste, **known, **learned)

    rater: raters.Rater
    if name == "rating-model":
        rater = rating_model(store.home, {**known, **learned})
    else:
        rater = fitted("statistical", "mean")
    if name == "ensemble":
        rater = raters.EnsembleRater([fitted("statistical", "drawn"), fitted("mean", "drawn")])
    pairs = pairs_of(stored, tables)
    parts = [
        rater.rate(tables["personas"], tables["items"], pairs=pairs[start : start + 65_536])
        for start in range(0, len(pairs), 65_536)
    ]
    chances = pl.Series(np.concatenate([p.probabilities for p in parts]).tolist())
    return stored.with_columns(rater=pl.lit(name), probabilities=chances)


def fidelity(args: argparse.Namespace) -> None:
    """A surrogate per teacher."""
    store = Store(args.home)
    tables = {name: store.current(f"movies.{name}").read() for name in _READ}
    for name in args.teacher:
        teacher = surrogates.teacher_of(
            scores_by(name, tables, store, args.pairs), rater=None, error_budget=0.01
        )
        given = dict(tables)
        if name == "shuffled":
            for side, key in (("personas", "persona_id"), ("items", "item_id")):
                given[side] = shuffled(tables[side], key, 1)
                vectors = tables[f"{side[:-1]}_embeddings"]
                given[f"{side[:-1]}_embeddings"] = shuffled(vectors, key, 2)
            given["item_stats"] = shuffled(tables["item_stats"], "item_id", 1)
        recipe = surrogates.Recipe(sweeps=args.sweeps)
        teach = partial(surrogates.teach, settings=SurrogateSettings(), recipe=recipe)
        taught, cpu = timed(partial(teach, teacher, **given))
        counts = taught.model.metadata["counts"]
        print(f"## {name}\n\n{counts}, {cpu:.0f} CPU seconds, load {os.getloadavg()[0]:.0f}")
        print(f"loss by sweep: {[round(v, 5) for v in taught.course]}\n\n{taught.markdown()}")
        more = {k: v for k, v in given.items() if k.endswith(("stats", "embeddings"))}
        rater = raters.SurrogateRater(taught.model, **more)
        bound = rater.bind(given["personas"], given["items"])
        rng = np.random.default_rng(0)
        who = rng.integers(given["personas"].height, size=1_000_000)
        what = rng.integers(given["items"].height, size=1_000_000)
        runs = sorted(timed(partial(bound.rate, who, what))[1] for _ in range(5))
        print(f"\n1,000,000 random pairs rated in {runs[2]:.2f} CPU seconds (median of 5)\n")


def learning(args: argparse.Namespace) -> None:
    """Policies trained on the surrogate and on its teacher, judged by the teacher."""
    from sim.environment import World
    from sim.metrics import evaluate
    from sim.recommenders import Audience, open_recommender
    from sim.training import RunSettings, Training

    release = args.release
    teacher = World.open(release, home=args.home, rater="statistical")
    student = World.open(release, home=args.home, rater="surrogate")
    audience = Audience(teacher, users=args.users, seed=0, retrieved=10)
    played: dict[str, list[Any]] = {"random": [], "popular": []}
    for seed in args.seed:
        for name in ("random", "popular"):
            options = {"seed": seed} if name == "random" else {}
            made = open_recommender(name, **options).fit(teacher.release)
            played[name].append(audience.play(made, seed=1_000 + seed))
    for name, world in (("a2c on the teacher", teacher), ("a2c on the surrogate", student)):
        for seed in args.seed:
            settings = RunSettings(
                steps=args.steps, seed=seed, evaluate_every=args.steps,
                checkpoint_every=args.steps, users=2,
            )  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                run = Training(world, settings, Path(folder) / "run")
                trained, cpu = timed(run.run)
            print(f"{name}, seed {seed}: {args.steps / cpu:,.0f} steps per CPU second", flush=True)
            played.setdefault(name, []).append(audience.play(trained.policy, seed=1_000 + seed))
    print(f"\nload {os.getloadavg()[0]:.0f}, {len(audience.users)} users, judged by the teacher")
    for name, lists in played.items():
        figure = evaluate(lists)["average_reward"]
        print(f"| {name} | {figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}] |")


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("fidelity")
    one.add_argument("--teacher", nargs="+", default=["statistical"])
    one.add_argument("--pairs", type=int, default=10_000_000, help="sampled at most (count)")
    one.add_argument("--sweeps", type=int, default=surrogates.RECIPE.sweeps)
    one.set_defaults(call=fidelity)
    three = parts.add_parser("bound")
    three.add_argument("--draws", type=int, default=40)
    three.set_defaults(call=bound)
    two = parts.add_parser("learning")
    two.add_argument("--release", default="movies@latest")
    two.add_argument("--steps", type=int, default=40_000)
    two.add_argument("--seed", type=int, nargs="+", default=[0, 1, 2])
    two.add_argument("--users", type=int)
    two.set_defaults(call=learning)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
