"""The stored rating model through every engine: agreement of distributions, and pairs per second.

    python benchmarks/tuning/engines.py --home HOME --vllm .venv-vllm/bin/python

Prompts are those of test ratings of people with at least --history training ratings, whose last
ones are shown. vLLM in process has a process of its own, in the environment that has vLLM; its CPU
seconds are that process's. Of `vllm_server` and of the whole rater (prompts, answer store) only the
clock is given: the server is another process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from support.ask_engine import ask, plain_requests  # noqa: E402

from pipelines.context import PipelineContext  # noqa: E402
from pipelines.llm.answers import AnswerStore  # noqa: E402
from pipelines.raters import open_rater  # noqa: E402
from pipelines.store import Store  # noqa: E402

MODEL = "movies.rating_model@latest"


def asked_pairs(store: Store, history: int, count: int) -> tuple[Any, Any, Any]:
    """People as personas, their histories on 1-10, and pairs (person, item) of test ratings."""
    splits = store.current("movies.splits").read()
    rated = store.current("movies.interactions").read()
    train = rated.join(splits.filter(split="train"), on=["user_id", "item_id"])
    train = train.sort("user_id", "rated_at", "item_id")
    known = train.group_by("user_id").len().filter(pl.col("len") >= history)["user_id"]
    test = splits.filter(pl.col("split") == "test", pl.col("user_id").is_in(known.implode()))
    test = test.sort("user_id", "item_id").head(count)
    people = test["user_id"].unique().sort()
    items = store.current("movies.items").read(["item_id"])["item_id"]
    place = {item: n for n, item in enumerate(items)}
    who = {user: n for n, user in enumerate(people)}
    pairs = np.array([[who[u], place[i]] for u, i in test.select("user_id", "item_id").rows()])
    past = train.filter(pl.col("user_id").is_in(people.implode()))
    past = past.group_by("user_id", maintain_order=True).tail(history)
    return (
        pl.DataFrame({"persona_id": people}),
        past.select(pl.col("user_id").alias("persona_id"), "item_id", pl.col("rating") * 2),
        pairs,
    )


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--vllm", type=Path, required=True, help="Python that has vLLM")
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--history", type=int, default=40)
    args = parser.parse_args()
    store = Store(args.home)
    tables = {name: store.current(f"movies.{name}") for name in ("interactions", "splits")}
    known = {name: found.scan() for name, found in tables.items()}
    items, stats = (store.current(f"movies.{name}").read() for name in ("items", "item_stats"))
    people, past, pairs = asked_pairs(store, args.history, args.pairs)
    settings = PipelineContext(
        {
            "runtime": {"home": str(args.home)},
            "scoring": {"layout": "ledger", "rater": "llm", "history": args.history},
            "engine": {"kind": "transformers", "model": MODEL},
            "serving": {"device": "cpu", "vllm_python": str(args.vllm)},
        }
    ).settings

    def rater_of(kind: str, answers: AnswerStore | None = None) -> Any:
        own = settings.model_copy(
            update={"engine": settings.engine.model_copy(update={"kind": kind})}
        )
        return open_rater(own, items=items, item_stats=stats, store=answers, **known)

    rater = rater_of("transformers")
    requests = plain_requests(rater.requests(people, items, past, pairs=pairs))
    rater.close()
    task: dict[str, Any] = {
        "model": settings.engine.model,
        "home": str(args.home),
        "requests": requests,
    }
    one = {"device": "cpu", "vllm_python": str(args.vllm)}
    found = {"transformers": ask({**task, "kind": "transformers", "serving": one})}
    with tempfile.TemporaryDirectory() as folder:
        for reuse in (True, False):
            name = "vllm, in process" + ("" if reuse else ", no prefix reuse")
            own = {"kv_cache_gib": 1.0, "prefix_reuse": reuse}
            given = {**task, "kind": "vllm", "serving": own, "out": f"{folder}/answers.json"}
            Path(folder, "task.json").write_text(json.dumps(given), encoding="utf-8")
            subprocess.run(
                [args.vllm, REPOSITORY / "tests/support/ask_engine.py", f"{folder}/task.json"],
                env=os.environ
                | {
                    "PYTHONPATH": str(REPOSITORY),
                    "TORCHDYNAMO_DISABLE": "1",
                    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                },
                stdout=subprocess.DEVNULL,
                check=True,
            )
            found[name] = json.loads(Path(folder, "answers.json").read_text(encoding="utf-8"))
    found["vllm_server"] = ask({**task, "kind": "vllm_server", "serving": one})
    plain = np.array(found["transformers"]["probabilities"])
    tokens = found["transformers"]["prompt_tokens"]
    print(f"{len(pairs):,} test ratings of {people.height} people, {tokens / len(pairs):.0f} tokens")
    print("\n| engine | largest difference | pairs/s | pairs per CPU s | load |\n|---|--:|--:|--:|--:|")
    for name, one in found.items():
        assert set(one["status"]) == {"ok"}, name
        off = np.abs(np.array(one["probabilities"]) - plain).max()
        rate = (len(pairs) - 1) / one["seconds"]
        cpu = "-" if name == "vllm_server" else f"{(len(pairs) - 1) / one['cpu']:.0f}"
        print(f"| {name} | {off:.1e} | {rate:.0f} | {cpu} | {one['load']:.1f} |")
    rater = rater_of("vllm_server")
    rater.rate(people[:1], items, past, pairs=pairs[:1])
    started = time.monotonic()
    batch = rater.rate(people, items, past, pairs=pairs)
    rate = len(pairs) / (time.monotonic() - started)
    rater.close()
    off = np.abs(batch.probabilities - plain).max()
    print(f"| whole rater, vllm_server | {off:.1e} | {rate:.0f} | - | {os.getloadavg()[0]:.1f} |")


if __name__ == "__main__":
    main()
