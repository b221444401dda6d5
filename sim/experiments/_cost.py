"""Experiment ``cost``: time, calls, tokens and price of visits."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from sim.agents import Brain, visit
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import bars
from sim.experiments._protocol import Result, Row, TooFew
from sim.metrics import Figure, over_seeds
from sim.recommenders import Recommender

#: Seeds of timed visits are those of the context and this: no other run has stored answers to them.
_APART = 1_000_003
#: Raised whenever other things are timed.
_VERSION = "2"
#: Meanings of the figures by name.
_FIGURES = {
    "seconds": "wall-clock time of 1,000 agents, without fitting (s)",
    "cpu_seconds": "processor time of 1,000 agents in this process (s)",
    "calls": "calls of a model per 1,000 agents",
    "prompt_tokens": "prompt tokens per 1,000 agents",
    "completion_tokens": "tokens of replies per 1,000 agents",
    "cached_share": "share of the prompt tokens that the engine had in its prefix cache, 0-1",
    "price": "price of 1,000 agents (USD)",
}


@dataclass(frozen=True)
class CostSettings:
    """Settings of ``cost``."""

    #: Recommender that is visited.
    recommender: str = "popular"
    #: Timed runs, each with another seed (count); the sample of a model is divided among them.
    rounds: int = 3
    #: Agents that figures need (count).
    min_agents: int = 10
    #: Prices of a million tokens (USD) where the settings of the engine have none: those of
    #: gpt-4o-mini, the model of SimUSER's appendix I.
    input_price: float = 0.15
    output_price: float = 0.60


class Cost:
    """Time, calls, tokens and price of 1,000 agents."""

    name = "cost"
    question = "How much time, how many calls and tokens, and which price do 1,000 agents take?"
    anchor = "Agent4Rec, its published logs; SimUSER, Table 12 and appendix I"
    figures = _FIGURES

    def __init__(self, settings: CostSettings | None = None) -> None:
        self.settings = settings or CostSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Time visits of every brain."""
        chosen = self.settings
        rows: list[Row] = []
        counts: dict[str, int] = {}
        machines = set()
        shown = context.recommender(chosen.recommender)
        for name in dict.fromkeys(("always", *context.brains)):
            brain = context.brain(name)
            source, agents = context.source(brain), context.agents_of(brain)
            least = chosen.rounds if source == "model" else chosen.min_agents
            if agents < least:
                raise TooFew(
                    "agents",
                    found=agents,
                    needed=least,
                    where=f"experiment {self.name}, brain {name}",
                    hint="--agents or --model-agents",
                )
            key = {
                "version": _VERSION,
                **asdict(chosen),
                "brain": context.identity(brain),
                "agents": agents,
                "seed": context.seed,
            }
            frame = context.cell(
                self.name, key, partial(_timed, context, brain, shown, agents, chosen.rounds)
            )
            counts["agents"] = counts.get("agents", 0) + int(frame["agents"].sum())
            if frame["failed"].sum():
                counts[f"failed, {name}"] = int(frame["failed"].sum())
            machines.add(int(frame["cpus"][0]))
            rows.append(self._row(context, name, source, frame))
        cpus = " and ".join(str(n) for n in sorted(machines))
        notes = [
            f"Visits to `{chosen.recommender}`, {context.pages} pages of {context.per_page} items "
            f"at most ({context.sample['model_pages']} pages with a model), on {cpus} processors "
            f"shared with whatever else ran; {chosen.rounds} runs of each brain, intervals over "
            "runs (Student's t). Fitting of brains and recommenders comes before and is not in "
            "these times.",
            f"Price: {self._prices(context)} Rows without a language model have no calls and cost "
            "nothing but the machine.",
        ]
        return Result(rows, [], notes, {"seconds": _picture(rows)}, counts)

    def _row(self, context: ExperimentContext, name: str, source: str, frame: pl.DataFrame) -> Row:
        numbers = frame["agents"].to_numpy()
        figures: dict[str, Figure | float | None] = {
            column: per_thousand(frame[column].to_numpy(), numbers)
            for column in ("seconds", "cpu_seconds", "calls", "prompt_tokens", "completion_tokens")
        }
        asked, cached = frame["prompt_tokens"].to_numpy(), frame["cached_tokens"].to_numpy()
        figures["cached_share"] = per_thousand(cached / asked, None) if asked.all() else None
        prices = self._pair(context)
        figures["price"] = per_thousand(
            price_of(asked, frame["completion_tokens"].to_numpy(), *prices), numbers
        )
        hits = int(frame["hits"].sum())
        note = f"{hits:,} answers were stored before: seconds are too low." if hits else ""
        return Row(
            {"brain": name, "recommender": self.settings.recommender},
            source,
            figures,
            int(numbers.sum()),
            note,
        )

    def _pair(self, context: ExperimentContext) -> tuple[float, float]:
        """Prices of a million prompt and reply tokens (USD)."""
        serving = context.settings.serving
        if serving.input_price or serving.output_price:
            return serving.input_price, serving.output_price
        return self.settings.input_price, self.settings.output_price

    def _prices(self, context: ExperimentContext) -> str:
        asked, replied = self._pair(context)
        own = context.settings.serving.input_price or context.settings.serving.output_price
        of = "serving.input_price and output_price" if own else "no price is set; gpt-4o-mini's"
        return f"{asked:g} USD per million prompt tokens, {replied:g} of replies ({of})."


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
    whole = np.arange(agents)
    divided = context.source(brain) == "model"
    if not divided:
        # Warm-up: one-time initialisation is not part of the timed runs.
        visit(world, brain, shown, whole[:1], seed=context.seed + _APART)
    # A recommender may be fitted at its first list.
    shown.recommend([0], 1)
    lines = []
    for number in range(rounds):
        part = np.array_split(whole, rounds)[number] if divided else whole
        tally = getattr(brain, "tally", None)
        before: dict[str, Any] = {} if tally is None else tally.to_dict()
        wall, cpu = time.perf_counter(), time.process_time()
        found = visit(world, brain, shown, part, seed=context.seed + _APART + number)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        after: dict[str, Any] = {} if tally is None else tally.to_dict()
        used = {n: after.get(n, 0) - before.get(n, 0) for n in _COUNTED}
        failed = int((found["agents"]["exit_reason"] == "failed").sum())
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


def _picture(rows: list[Row]) -> bytes:
    names = [row.labels["brain"] for row in rows]
    series = {name: [row.figures[name] for row in rows] for name in ("seconds", "cpu_seconds")}
    return bars("Time of 1,000 agents", names, series, "seconds")
