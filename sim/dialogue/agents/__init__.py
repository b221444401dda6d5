"""Agents by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines import plugins
from sim.dialogue._protocol import Agent

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["AGENTS", "open_agent"]

#: The project's agents by name; imported on first use.
AGENTS: dict[str, str] = {
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
}


def open_agent(name: str, *, settings: Settings | None = None, **options: Any) -> Agent:
    """An agent by name, before `open`.

    A name is one of `AGENTS`, ``module:Class`` or ``path/to/file.py:Class``. Options are arguments
    of its class; one that takes ``settings``, such as for its engine, is given them.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Agent`, or an option is unknown.
    """
    agent: Agent = plugins.open_plugin(
        name,
        AGENTS,
        options,
        offered=None if settings is None else {"settings": settings},
        kind="agent",
        methods=("open", "act", "learn", "wipe", "metadata"),
        implement="sim.dialogue.Agent (docs/dialogue.md)",
    )
    return agent
