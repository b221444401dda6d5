"""Environment speed and memory on generated worlds.

    python benchmarks/environment/run.py            # all cases
    python benchmarks/environment/run.py vector     # some of: single, vector, memory

Each case runs in a new process; speeds are the best of five runs in it.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

GENRES = 18
DIMENSION = 384


def tables(items: int, personas: int, ratings: int, seed: int = 0) -> dict[str, Any]:
    """A world of that size: everything that the environment and the statistical rater read."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed)
    names = np.array([f"Genre {n}" for n in range(GENRES)])
    ids = np.char.add("ml:", np.char.zfill(np.arange(items).astype(str), 6)).tolist()
    people = np.char.add("persona:g:", np.char.zfill(np.arange(personas).astype(str), 6)).tolist()

    def lists(rows: int, most: int) -> list[list[str]]:
        pick = rng.integers(0, GENRES, (rows, most))
        size = rng.integers(1, most + 1, rows)
        return [sorted(set(names[p[:s]])) for p, s in zip(pick, size, strict=True)]

    def vectors(key: str, keys: list[str]) -> pl.DataFrame:
        rows = rng.normal(size=(len(keys), DIMENSION)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return pl.DataFrame(
            {key: keys, "vector": pl.Series(rows, dtype=pl.Array(pl.Float32, DIMENSION))}
        ).with_columns(pl.col("vector").arr.to_list())

    frame = pl.DataFrame(
        {
            "item_id": ids,
            "title": [f"Film {n}" for n in range(items)],
            "year": rng.integers(1930, 2024, items),
            "genres": lists(items, 3),
            "vote_average": rng.normal(6.5, 1.0, items).clip(0, 10),
            "vote_count": rng.integers(0, 5_000, items),
        }
    )
    who = rng.integers(0, max(1, ratings // 100), ratings)
    what = (items * rng.random(ratings) ** 2).astype(int)
    pairs = (
        pl.DataFrame({"user": who, "item": what, "rating": rng.integers(1, 11, ratings) / 2})
        .unique(["user", "item"], maintain_order=True)
        .with_columns(scale=pl.lit("0.5-5"))
    )
    interactions = pairs.select(
        user_id=pl.format("ml-user:{}", "user"),
        item_id=pl.col("item").replace_strict(dict(enumerate(ids)), return_dtype=pl.String),
        rating="rating",
        scale="scale",
        rated_at=pl.from_epoch(pl.int_range(pl.len()), time_unit="s").dt.replace_time_zone("UTC"),
    )
    stats = (
        frame.select("item_id")
        .join(
            interactions.group_by("item_id").agg(
                ratings=pl.len().cast(pl.Int64),
                mean_rating=pl.col("rating").mean(),
                train_ratings=pl.len().cast(pl.Int64),
                train_mean_rating=pl.col("rating").mean(),
            ),
            on="item_id",
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col("ratings", "train_ratings").fill_null(0))
    )
    return {
        "items": frame,
        "item_stats": stats.with_columns(popularity_rank=pl.int_range(1, pl.len() + 1)),
        "interactions": interactions,
        "splits": interactions.select("user_id", "item_id", split=pl.lit("train")),
        "item_embeddings": vectors("item_id", ids),
        "persona_embeddings": vectors("persona_id", people),
        "personas": pl.DataFrame(
            {
                "persona_id": people,
                "name": people,
                "job": ["clerk"] * personas,
                "age": rng.integers(18, 80, personas),
                "gender": rng.choice(["female", "male"], personas),
                "likes": lists(personas, 4),
                "dislikes": [[]] * personas,
                "description": ["Likes films."] * personas,
            },
            schema_overrides={"dislikes": pl.List(pl.String)},
        ),
    }


def world(items: int, personas: int, retriever: str) -> Any:
    """The generated world, opened."""
    import numpy as np
    import polars as pl

    from pipelines.raters import SCALES, LiveStatistical, fit_statistical
    from pipelines.retrieval import open_retriever
    from sim.environment import Catalogue, PersonaTable, World

    made = tables(items, personas, 200_000)
    personas_frame = made.pop("personas")
    rater = fit_statistical(scale=SCALES["1-10"], **made)
    live = LiveStatistical(rater, personas_frame, made["items"])
    ranked = made["items"].with_columns(popularity_rank=pl.int_range(1, pl.len() + 1))
    opened = World(
        SimpleNamespace(ref="generated"),  # type: ignore[arg-type]
        Catalogue(ranked),
        PersonaTable(personas_frame),
        live,
        open_retriever(
            retriever, items=made["items"], item_stats=made["item_stats"],
            item_embeddings=made["item_embeddings"],
        ),
    )  # fmt: skip
    # No persona is matched to people: their ratings would come from a release.
    opened.__dict__.update(known=np.zeros((personas, 0), np.int64), traits=None)
    return opened


def best(run: Any, steps: int) -> dict[str, float]:
    """Wall and processor time per step of a run, in microseconds; the best of five."""
    runs = []
    for _ in range(5):
        with harness.Clock() as clock:
            run()
        runs.append(clock.figures(per=steps / 1e6))
    return {f"{kind}_us": min(one[f"{kind}_s"] for one in runs) for kind in ("wall", "cpu")}


def single(retriever: str) -> dict[str, Any]:
    """Time a step of an environment whose memory holds 159 items."""
    import numpy as np

    from sim.environment import RecommendationEnv

    env = RecommendationEnv(
        world=world(10_000, 600, retriever), leave_probability=0.0, length_limit=10**9
    )
    rng = np.random.default_rng(0)
    actions = rng.permutation(10_000)
    env.reset(seed=0)
    for action in actions[:159]:
        env.step(int(action))
    state = env.state()
    some = [int(a) for a in actions[159:179]]

    def run() -> None:
        for _ in range(10):
            env.restore(state)
            for action in some:
                env.step(action)

    return {"case": f"single, {retriever}", **best(run, 200)}


def vector(envs: int, retriever: str, observation: str, personas: int = 600) -> dict[str, Any]:
    """Steps of many environments, episodes ending and beginning as they do."""
    import numpy as np

    from sim.environment import RecommendationVectorEnv

    env = RecommendationVectorEnv(
        envs, world=world(10_000, personas, retriever), observation=observation,  # type: ignore[arg-type]
        history_length=200 if observation == "compact" else 10,
    )  # fmt: skip
    actions = np.random.default_rng(0).integers(10_000, size=(100, envs))
    env.reset(seed=0)
    for action in actions[:60]:
        env.step(action)

    def run() -> None:
        for action in actions:
            env.step(action)

    took = best(run, 100 * envs)
    rate = {"steps_per_s": 1e6 / took["wall_us"], "steps_per_cpu_s": 1e6 / took["cpu_us"]}
    name = f"{envs} environments, {retriever}, {observation}, {personas} personas"
    return {"case": name, **rate}


def memory(items: int, personas: int, observation: str) -> dict[str, Any]:
    """Memory of a process with 64 environments, their world generated in it."""
    import numpy as np

    from sim.environment import RecommendationVectorEnv

    start = time.perf_counter()
    made = world(items, personas, "embedding")
    opened = time.perf_counter() - start
    env = RecommendationVectorEnv(64, world=made, observation=observation)  # type: ignore[arg-type]
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    wall = time.perf_counter()
    for _ in range(100):
        env.step(rng.integers(items, size=64))
    rate = 6400 / (time.perf_counter() - wall)
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "case": f"{items} items, {personas} personas, {observation}",
        "opened_s": opened,
        "held_mib": pages * 4096 / 2**20,
        "steps_per_s": rate,
    }


CASES: dict[str, list[tuple[Any, ...]]] = {
    "single": [("recent",), ("features",), ("embedding",)],
    "vector": [
        (64, "recent", "compact"),
        (256, "recent", "compact"),
        (1024, "recent", "compact"),
        (256, "none", "compact"),
        (256, "recent", "recent"),
        (256, "recent", "ratings"),
        (256, "embedding", "compact"),
        (256, "recent", "compact", 10_000),
    ],
    "memory": [
        (10_000, 600, "recent"),
        (60_000, 10_000, "compact"),
        (60_000, 10_000, "recent"),
    ],
}
COLUMNS = {
    "case": "{case}", "wall, µs": "{wall_us:,.0f}", "CPU, µs": "{cpu_us:,.0f}",
    "steps/s": "{steps_per_s:,.0f}", "steps per CPU s": "{steps_per_cpu_s:,.0f}",
    "opened, s": "{opened_s:.0f}", "held, MiB": "{held_mib:,.0f}", "peak, MiB": "{peak_mib:,.0f}",
}  # fmt: skip


def main() -> None:
    """Measure the cases."""
    parser = harness.parser(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*CASES, []], default=[])
    args = parser.parse_args()
    functions = {"single": single, "vector": vector, "memory": memory}
    rows = [
        {"part": part, **harness.measure(functions[part], *case)}
        for part in args.parts or CASES
        for case in CASES[part]
    ]
    harness.report(args, rows, COLUMNS)


if __name__ == "__main__":
    harness.start(main)
