"""Brains by name and from ``module:Class``."""

from __future__ import annotations

from typing import Any

from pipelines import plugins
from sim.agents._protocol import Brain

__all__ = ["BRAINS", "METHODS", "open_brain"]

#: The project's brains by name; imported on first use.
BRAINS: dict[str, str] = {
    "random": "sim.agents._baselines:RandomBrain",
    "always": "sim.agents._baselines:AlwaysBrain",
}
METHODS = ("open", "judge", "decide", "reflect", "interview", "classify", "metadata")


def open_brain(name: str, **options: Any) -> Brain:
    """A brain by name, before `open`.

    Parameters
    ----------
    name
        One of `BRAINS`, ``module:Class`` or ``path/to/file.py:Class``.
    options
        Arguments of its class.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Brain`, or an option is unknown.
    """
    target = plugins.plugin_class(
        name,
        BRAINS,
        kind="brain",
        methods=METHODS,
        implement="sim.agents.Brain (docs/agents.md)",
    )
    brain: Brain = plugins.construct(target, f"brain {name}", options)
    return brain
