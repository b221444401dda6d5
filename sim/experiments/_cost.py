"""Experiment ``cost``: time, calls, tokens and price of visits."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipelines.study import Figure, Study, over_seeds
from sim.agents import Brain, visit
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment, page
from sim.recommenders import Recommender

#: Seeds of timed visits are those of the context and this: no other run has stored answers to them.
_APART = 1_000_003


@experiment(
    question="How much time, how many calls and tokens, and which price do 1,000 agents take?",
    paper="Agent4Rec, its published logs; SimUSER, Table 12 and appendix I",
    conditions=("brain", "recommender"),
    version="2",
    **page("cost"),
)
def cost(
    study: Study,
    context: ExperimentContext,
    *,
    recommender: str = "popular",  # that is visited
    rounds: int = 3,  # timed runs, each with another seed; a model's sample is divided among them
    min_agents: int = 10,
    input_price: float = 0.15,  # of a million tokens (USD) where the settings have none:
    output_price: float = 0.60,  # gpt-4o-mini's, the model of SimUSER's appendix I
) -> None:
    """Time visits of every brain."""
    serving = context.settings.serving
    prices, origin = (input_price, output_price), "no price is set; gpt-4o-mini's"
    if serving.input_price or serving.output_price:
        prices = serving.input_price, serving.output_price
        origin = "serving.input_price and output_price"
    machines = set()
    shown = context.recommender(recommender)
    for name in dict.fromkeys(("always", *context.brains)):
        brain = context.brain(name)
        source, agents = context.source(brain), context.agents_of(brain)
        least = rounds if source == "model" else min_agents
        study.require("agents", agents, least, "--agents or --model-agents", of=f"brain {name}")
        frame = context.cell(
            study,
            {"brain": context.identity(brain), "agents": agents},
            partial(_timed, context, brain, shown, agents, rounds),
        )
        numbers = frame["agents"].to_numpy()
        study.counts["agents"] = study.counts.get("agents", 0) + int(numbers.sum())
        if frame["failed"].sum():
            study.counts[f"failed, {name}"] = int(frame["failed"].sum())
        machines.add(int(frame["cpus"][0]))
        prompted, cached, replied = (
            frame[c].to_numpy() for c in ("prompt_tokens", "cached_tokens", "completion_tokens")
        )
        figures: dict[str, Figure | None] = {
            column: per_thousand(frame[column].to_numpy(), numbers)
            for column in ("seconds", "cpu_seconds", "calls", "prompt_tokens", "completion_tokens")
        }
        figures["cached_share"] = per_thousand(cached / prompted, None) if prompted.all() else None
        figures["price"] = per_thousand(price_of(prompted, replied, *prices), numbers)
        hits = int(frame["hits"].sum())
        note = f"{hits:,} answers were stored before: seconds are too low." if hits else ""
        study.add((name, recommender), source, figures=figures, n=int(numbers.sum()), note=note)
    cpus = " and ".join(str(n) for n in sorted(machines))
    study.notes += [
        f"Visits to `{recommender}`, {context.pages} pages of {context.per_page} items at most "
        f"({context.sample['model_pages']} pages with a model), on {cpus} processors shared with "
        f"whatever else ran; {rounds} runs of each brain, intervals over runs (Student's t). "
        "Fitting of brains and recommenders comes before and is not in these times.",
        f"Price: {prices[0]:g} USD per million prompt tokens, {prices[1]:g} of replies ({origin}). "
        "Rows without a language model have no calls and cost nothing but the machine.",
    ]


def price_of(prompt: Any, completion: Any, input_price: float, output_price: float) -> Any:
    """Price of tokens (USD), at prices of a million each.

    >>> price_of(2_000_000, 500_000, 0.15, 0.60)
    0.6
    """
    return (prompt * input_price + completion * output_price) / 1_000_000


def per_thousand(totals: Any, agents: Any) -> Figure:
    """Mean over runs per 1,000 agents with its 95 % interval (Student's t), never below 0.

    ``totals`` and ``agents`` (count) are by run; without ``agents`` the totals are shares.

    >>> found = per_thousand(np.array([7.0, 8.0, 9.0]), np.array([1000, 1000, 1000]))
    >>> found.value, round(found.low, 2), round(found.high, 2)
    (8.0, 5.52, 10.48)
    """
    values = np.asarray(totals, np.float64)
    if agents is not None:
        values = 1_000 * values / np.asarray(agents, np.float64)
    mean = float(values.mean())
    low, high = over_seeds(values.tolist(), min_seeds=2)
    if low is None or high is None:
        return Figure(mean, float("nan"), float("nan"))
    return Figure(mean, max(low, 0.0), high)


def _timed(
    context: ExperimentContext, brain: Brain, shown: Recommender, agents: int, rounds: int
) -> pl.DataFrame:
    """Time and calls of each run: the sample of a model is divided, others play it again."""
    world = context.world_of(brain)
    everybody = np.arange(agents)
    divided = context.source(brain) == "model"
    if not divided:
        # Warm-up: one-time initialisation is not part of the timed runs.
        visit(world, brain, shown, everybody[:1], seed=context.seed + _APART)
    # A recommender may be fitted at its first list.
    shown.recommend([0], 1)
    lines = []
    for number in range(rounds):
        part = np.array_split(everybody, rounds)[number] if divided else everybody
        tally = getattr(brain, "tally", None)
        before: dict[str, Any] = {} if tally is None else tally.to_dict()
        wall, cpu = time.perf_counter(), time.process_time()
        visits = visit(world, brain, shown, part, seed=context.seed + _APART + number)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        after: dict[str, Any] = {} if tally is None else tally.to_dict()
        used = {n: after.get(n, 0) - before.get(n, 0) for n in _COUNTED}
        failed = int((visits["agents"]["exit_reason"] == "failed").sum())
        lines.append(
            {
                "run": number,
                "agents": len(part),
                "failed": failed,
                "seconds": wall,
                "cpu_seconds": cpu,
                "cpus": os.cpu_count() or 1,
                **used,
            }
        )
    return pl.DataFrame(lines)


_COUNTED = ("calls", "hits", "prompt_tokens", "completion_tokens", "cached_tokens")
