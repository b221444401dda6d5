"""Agents played by a language model: waves of many agents against one agent at a time.

    python benchmarks/agents/model.py --home HOME --model smollm2-135m --agents 32 --runs 3

HOME holds a release of films, and the model, fetched by `understudy models get`, or `--model` is a
folder. Both sides play the same visits with the same model in the same process: *waves* as `sim
agents` does, with packed prompts and shared beginnings; *one at a time* agent by agent, each prompt
by itself, as a plain loop would. Nothing is kept between runs. Then the waves once more against
the stored answers: a rerun asks nothing. CPU is that of this process: with a server (`--engine
vllm_server`) the clock alone counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.config import Settings, load_settings
from sim import open_release
from sim.agents import AgentWorld, open_brain, visit
from sim.recommenders import open_recommender, people_release


def settings_of(args: argparse.Namespace, home: str, *, reuse: bool) -> Settings:
    serving: dict[str, Any] = {
        "models": Path(args.models or Path(args.home) / "models"),
        "batch_tokens": args.batch_tokens,
        "prefix_reuse": reuse,
        "window": args.window if reuse else 1,
    }
    if args.vllm_python:
        serving["vllm_python"] = Path(args.vllm_python)
    engine = {"kind": args.engine, "model": args.model, "dtype": args.dtype}
    overrides = {"runtime": {"home": home}, "engine": engine, "serving": serving}
    return load_settings(overrides=overrides)


def played(
    args: argparse.Namespace, world: AgentWorld, shown: Any, settings: Settings, *, alone: bool
) -> dict[str, Any]:
    """Time, calls, tokens and sizes of batches of one run of visits."""
    sizes: Counter[int] = Counter()
    brain = open_brain("model", settings=settings).open(world)
    ask = brain._ask  # type: ignore[attr-defined]  # Only to count how many are asked at once.

    def counted(requests: Any) -> Any:
        waiting = list(requests)
        sizes[len(waiting)] += 1
        return ask(iter(waiting))

    brain._ask = counted  # type: ignore[attr-defined]
    agents = np.arange(args.alone or args.agents if alone else args.agents)
    wall, cpu = time.perf_counter(), time.process_time()
    for part in agents[:, None] if alone else [agents]:
        tables = visit(world, brain, shown, part, seed=args.seed)
        assert not (tables["agents"]["exit_reason"] == "failed").all()
    out = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    tally = brain.tally.to_dict()  # type: ignore[attr-defined]
    brain.close()  # type: ignore[attr-defined]
    return out | {"sizes": sizes, **tally}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--release", default="movies@latest")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--models", help="folder of fetched models (default: HOME/models)")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--engine", default="transformers", help="or vllm_server")
    parser.add_argument("--vllm-python", help="python of vLLM's environment")
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--alone", type=int, help="agents one at a time (default: all)")
    parser.add_argument("--pages", type=int, default=1)
    parser.add_argument("--recommender", default="popular")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    release = open_release(args.release, home=args.home)
    if "matched_personas" not in release:
        release = people_release(release, release["training_traits"].polars()["user_id"].sort())
    world = AgentWorld.open(release, pages=args.pages)
    shown = open_recommender(args.recommender).fit(release)
    # Imports and loading at first use are in neither side's time.
    with tempfile.TemporaryDirectory() as home:
        first = argparse.Namespace(**vars(args) | {"agents": 1})
        played(first, world, shown, settings_of(first, home, reuse=True), alone=False)
    found: dict[str, list[dict[str, Any]]] = {"waves": [], "one at a time": []}
    for _ in range(args.runs):
        for name, alone in (("waves", False), ("one at a time", True)):
            with tempfile.TemporaryDirectory() as home:
                settings = settings_of(args, home, reuse=not alone)
                one = played(args, world, shown, settings, alone=alone)
                found[name].append(one)
                cached = one["cached_tokens"] / max(one["prompt_tokens"], 1)
                print(
                    f"{name}: {one['wall']:.1f} s, {one['cpu']:.1f} s of CPU, {one['calls']} "
                    f"calls, {one['prompt_tokens']:,} + {one['completion_tokens']:,} tokens, "
                    f"{cached:.0%} of the prompts cached, asked at once (size: times) "
                    f"{dict(sorted(one['sizes'].items()))}, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
                if not alone:
                    again = played(args, world, shown, settings, alone=False)
                    print(f"  again: {again['wall']:.1f} s, {again['calls']} calls", flush=True)
    for unit in ("wall", "cpu"):
        waves, alone = (
            statistics.median(one[unit] / (one["prompt_tokens"] + one["completion_tokens"])
                              for one in runs)
            for runs in found.values()
        )  # fmt: skip
        print(
            f"{unit}: {1 / waves:,.0f} tokens/s in waves, {1 / alone:,.0f} one at a time, "
            f"{alone / waves:.1f} times"
        )


if __name__ == "__main__":
    main()
