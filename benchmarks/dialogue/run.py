"""Speed and memory of dialogues: `python benchmarks/dialogue/run.py [part ...]`, one thread.

Each part runs in a process of its own, and prints its dialogues per processor second and its
peak resident memory.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sim.dialogue import DialogueWorld, Lifetimes, open_agent, open_customer, play
from sim.dialogue.testing import sample_world

#: One thread, in a process that starts with these.
ONE = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)
#: The shape of the paper's choice sets: 350 train personas, 50 products, 30 facets.
SHAPE = {"sets": 40, "products": 50, "personas": 500, "facets": 30, "unseen": 0.2}


def measure(world: DialogueWorld, agent: Any, lifetimes: int, **options: Any) -> str:
    """Play lifetimes of ten episodes; dialogues per processor second and wall second."""
    setting = options.pop("setting", "customer")
    life = Lifetimes.draw(world, range(lifetimes), setting=setting, episodes=10)
    warm = Lifetimes.draw(world, range(20), setting=setting, episodes=10)
    play(world, warm, agent, open_customer("statistical"), keep_turns=False)
    gc.collect()
    processor, wall = time.process_time(), time.perf_counter()
    found = play(world, life, agent, open_customer("statistical"), **options)
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    n = found.episodes.height
    asked = found.episodes["questions"].mean()
    return (
        f"{n:,} dialogues, {asked:.1f} questions each: {n / processor:,.0f} per processor second, "
        f"{n / wall:,.0f} per second"
    )


def baselines() -> None:
    world = sample_world(**SHAPE)
    for name in ("random", "popularity"):
        print(f"{name}: {measure(world, open_agent(name), 4096, keep_turns=False)}")


def base() -> None:
    world = sample_world(**SHAPE)
    print(f"base: {measure(world, open_agent('base'), 2048, keep_turns=False)}")


def dp() -> None:
    """Eight questions each: no question costs too much, and none may be left out."""
    world = sample_world(**SHAPE)
    for setting, memory in (("customer", True), ("customer", False), ("category", True)):
        agent = open_agent("dp", questions=8, question_cost=0.0)
        rate = measure(
            world, agent, 1024, setting=setting, memory=memory, must_ask=8, keep_turns=False
        )
        print(f"dp, {setting}, memory {memory}: {rate}")


def asking() -> None:
    """Other agents, at their own number of questions."""
    world = sample_world(**SHAPE)
    for name, options in (("dp", {}), ("greedy", {}), ("linear", {}), ("dp", {"depth": 2})):
        agent = open_agent(name, **options)
        lifetimes = 4 if options else 64
        print(f"{name} {options or ''}: {measure(world, agent, lifetimes, keep_turns=False)}")


def turns() -> None:
    """100,000 dialogues with their turns."""
    world = sample_world(**SHAPE)
    print(f"base, with turns: {measure(world, open_agent('base', questions=8), 10_000)}")


def belief() -> None:
    """One value of information of 30 facets."""
    from sim.dialogue._answers import AnswerModel
    from sim.dialogue._belief import Types

    types = Types(sample_world(**SHAPE).disclosed(), AnswerModel())
    table, rng = types.tables(0), np.random.default_rng(0)
    print(f"{len(types)} types, {table.p.shape[1]} columns of answers")
    beliefs = rng.dirichlet(np.ones(len(types)), 512).astype(np.float32)
    table.evi(beliefs[0])
    start = time.process_time()
    for w in beliefs:
        table.evi(w)
    print(f"evi of a belief: {(time.process_time() - start) / len(beliefs) * 1e6:,.0f} µs")


PARTS: dict[str, Callable[[], None]] = {
    f.__name__: f for f in (baselines, base, dp, asking, turns, belief)
}


def main() -> None:
    """Run parts in processes of their own, or one part here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    for part in given.parts or PARTS:
        if given.here:
            PARTS[part]()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{part}: peak {peak:,.0f} MiB, load {os.getloadavg()[0]:.1f}")
        else:
            subprocess.run(
                [sys.executable, __file__, "--here", part], check=True, env=os.environ | ONE
            )


if __name__ == "__main__":
    main()
