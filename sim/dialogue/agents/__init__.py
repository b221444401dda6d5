"""Agents by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.plugins import Registry
from sim.dialogue._protocol import Agent

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["AGENTS", "agent", "open_agent"]

AGENTS = Registry(
    "agent",
    {
        "random": "sim.dialogue.agents.baselines:RandomAgent",
        "popularity": "sim.dialogue.agents.baselines:PopularityAgent",
        "oracle": "sim.dialogue.agents.baselines:OracleAgent",
        "best": "sim.dialogue.agents.baselines:BestAgent",
        "base": "sim.dialogue.agents.belief:BaseAgent",
        "greedy": "sim.dialogue.agents.belief:GreedyAgent",
        "dp": "sim.dialogue.agents.belief:PlanningAgent",
        "thompson": "sim.dialogue.agents.belief:ThompsonAgent",
        "linear": "sim.dialogue.agents.linear:LinearAgent",
        "model-base": "sim.dialogue.agents.model:ModelAgent",
        "model-greedy": "sim.dialogue.agents.model:Greedy",
        "model-dp": "sim.dialogue.agents.model:Planner",
        "model-cot": "sim.dialogue.agents.model:Reasoner",
        "model-summary": "sim.dialogue.agents.model:Summariser",
        "model-oracle": "sim.dialogue.agents.model:Oracle",
    },
    methods=("open", "act", "learn", "metadata"),
    implement="sim.dialogue.Agent (docs/dialogue.md)",
)
#: Decorator that registers an agent in this process: ``@agent("mine")``.
agent = AGENTS.register


def open_agent(name: str, *, settings: Settings | None = None, **options: Any) -> Agent:
    """An agent by name, before `open`.

    A name is one of `AGENTS`, or your own (:class:`pipelines.plugins.Registry`). Options are
    arguments of its class; one that takes ``settings``, such as for its engine, is given them.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Agent`, or an option is unknown.
    """
    opened: Agent = AGENTS.open(
        name, offered=None if settings is None else {"settings": settings}, **options
    )
    return opened
