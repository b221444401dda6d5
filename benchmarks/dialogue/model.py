"""Dialogues played by a language model: all at once against one request at a time.

    python benchmarks/dialogue/model.py --dialogues 256 --alone 6

A Llama of about 15 million random parameters (the shape of benchmarks/engines) plays agent and
customer on a generated world. *Together*: all dialogues move turn by turn through `ask`, with
packed prompts. *Alone*: dialogue after dialogue, each request by itself, as a plain loop would;
`--alone` of the same dialogues are played. Then all of them once more against the stored answers:
a rerun asks nothing. CPU is that of this process; imports and loading at first use come before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import Settings, load_settings
from sim.dialogue import DialogueWorld, Lifetimes, play
from sim.dialogue.agents import open_agent
from sim.dialogue.customers import open_customer
from sim.dialogue.testing import sample_world


def settings_of(args: argparse.Namespace, home: str, *, together: bool) -> Settings:
    serving: dict[str, Any] = {
        "prefix_reuse": together,
        "window": args.window if together else 1,
        "batch_tokens": args.batch_tokens,
    }
    engine = {"kind": "transformers", "model": str(args.model), "dtype": args.dtype}
    overrides = {"runtime": {"home": home}, "engine": engine, "serving": serving}
    return load_settings(overrides=overrides)


def played(
    args: argparse.Namespace, world: DialogueWorld, seeds: range, settings: Settings, *, block: int
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Times, calls and tokens of a run, and its turns."""
    agent = open_agent(args.agent, settings=settings, confidences=args.confidences)
    customer = open_customer("model", settings=settings, session=agent)
    lifetimes = Lifetimes.draw(world, seeds, episodes=1)
    wall, cpu = time.perf_counter(), time.process_time()
    found = play(world, lifetimes, agent, customer, max_questions=args.questions, block=block)
    out = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    for side in (agent, customer):
        for name, value in side.tally.to_dict().items():  # type: ignore[attr-defined]
            if isinstance(value, int):
                out[name] = out.get(name, 0) + value
    out["status"] = dict(found.episodes["status"].value_counts().iter_rows())
    agent.close()  # type: ignore[attr-defined]
    assert found.turns is not None
    return out | {"dialogues": len(lifetimes)}, found.turns.drop("answer_key")


def shown(name: str, one: dict[str, Any]) -> str:
    return (
        f"{name}: {one['dialogues']} dialogues, {one['wall']:.0f} s, {one['cpu']:.0f} s of CPU, "
        f"{one['dialogues'] / one['cpu']:.3f} per s of CPU, {one['calls']} calls, "
        f"{one['prompt_tokens']:,} ({one['cached_tokens'] / max(one['prompt_tokens'], 1):.0%} "
        f"shared) + {one['completion_tokens']:,} tokens, {json.dumps(one['status'])}, "
        f"load {os.getloadavg()[0]:.1f}, "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:,.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of a model (default: 15 M parameters)")
    parser.add_argument("--agent", default="model-base")
    parser.add_argument("--confidences", default="none")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--dialogues", type=int, default=256)
    parser.add_argument("--alone", type=int, default=6)
    parser.add_argument("--questions", type=int, default=2)
    parser.add_argument("--products", type=int, default=15)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=393_216)
    args = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    world = sample_world(2, sets=12, products=args.products)
    with tempfile.TemporaryDirectory() as scratch:
        if args.model is None:
            sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
            from _stage import make_model

            args.model = Path(make_model(Path(scratch) / "model")["folder"])
        home = f"{scratch}/together"
        settings = settings_of(args, home, together=True)
        every, few = range(args.dialogues), range(args.alone)
        warm = settings_of(args, f"{scratch}/warm", together=True)
        played(args, world, range(1), warm, block=1)
        together, turns = played(args, world, every, settings, block=args.dialogues)
        print(shown("together", together), flush=True)
        again, repeated = played(args, world, every, settings, block=args.dialogues)
        print(shown("again", again), flush=True)
        assert again["calls"] == 0
        assert repeated.equals(turns)
        single = settings_of(args, f"{scratch}/alone", together=False)
        alone, by_one = played(args, world, few, single, block=1)
        print(shown("alone", alone))
    same = turns.filter(pl.col("seed").is_in(list(few))).drop("run")
    equal = [
        a == b
        for a, b in zip(
            same.partition_by("seed"), by_one.drop("run").partition_by("seed"), strict=True
        )
        for a, b in [(a.to_dicts(), b.to_dicts())]
    ]
    ratio = alone["cpu"] / alone["dialogues"] / (together["cpu"] / together["dialogues"])
    print(f"{ratio:.1f} times the dialogues per s of CPU; {np.sum(equal)} of {len(equal)} equal")


if __name__ == "__main__":
    main()
