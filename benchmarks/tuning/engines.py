"""The stored rating model through every engine: agreement of distributions, and pairs per second.

    python benchmarks/tuning/engines.py --home HOME --vllm .venv-vllm/bin/python

Prompts are those of test ratings of people with at least --history training ratings, whose last
ones are shown. vLLM in process has a process of its own, in the environment that has vLLM; its CPU
seconds are that process's. Of `vllm_server` and of the whole rater (prompts, answer store) only the
clock is given: the server is another process.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from support.ask_engine import ask  # noqa: E402
from support.rating_model import MODEL, asked_pairs, asked_requests, asks_elsewhere  # noqa: E402

from pipelines.context import PipelineContext  # noqa: E402
from pipelines.raters import open_rater  # noqa: E402
from pipelines.store import Store  # noqa: E402


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
    people, past, pairs = asked_pairs(args.home, args.history, args.pairs)
    settings = PipelineContext(
        {
            "runtime": {"home": str(args.home)},
            "scoring": {"layout": "ledger", "rater": "llm", "history": args.history},
            "engine": {"kind": "transformers", "model": MODEL},
            "serving": {"device": "cpu", "vllm_python": str(args.vllm)},
        }
    ).settings

    def rater_of(kind: str) -> Any:
        own = settings.model_copy(
            update={"engine": settings.engine.model_copy(update={"kind": kind})}
        )
        return open_rater(own, items=items, item_stats=stats, **known)

    model, requests = asked_requests(args.home, args.pairs, args.history)
    task: dict[str, Any] = {"model": model, "home": str(args.home), "requests": requests}
    one = {"device": "cpu", "vllm_python": str(args.vllm)}
    found = {"transformers": ask({**task, "kind": "transformers", "serving": one})}
    with tempfile.TemporaryDirectory() as folder:
        for reuse in (True, False):
            name = "vllm, in process" + ("" if reuse else ", no prefix reuse")
            own = {"kv_cache_gib": 1.0, "prefix_reuse": reuse}
            given = {**task, "kind": "vllm", "serving": own}
            found[name] = asks_elsewhere(args.vllm, given, Path(folder))
    found["vllm_server"] = ask({**task, "kind": "vllm_server", "serving": one})
    plain = np.array(found["transformers"]["probabilities"])
    tokens = found["transformers"]["prompt_tokens"]
    print(
        f"{len(pairs):,} test ratings of {people.height} people, {tokens / len(pairs):.0f} tokens"
    )
    print("\n| engine | largest difference | pairs/s | pairs per CPU s | load |")
    print("|---|--:|--:|--:|--:|")
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
