"""Brains by name and from ``module:Class``."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pipelines import plugins
from sim.agents._protocol import Brain

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["BRAINS", "METHODS", "open_brain"]

#: The project's brains by name; imported on first use.
BRAINS: dict[str, str] = {
    "random": "sim.agents._baselines:RandomBrain",
    "always": "sim.agents._baselines:AlwaysBrain",
    "statistical": "sim.agents._statistical:StatisticalBrain",
    "model": "sim.agents._model:ModelBrain",
}
METHODS = ("open", "judge", "decide", "reflect", "interview", "classify", "metadata")


def open_brain(name: str, *, settings: Settings | None = None, **options: Any) -> Brain:
    """A brain by name, before `open`.

    Parameters
    ----------
    name
        One of `BRAINS`, ``module:Class`` or ``path/to/file.py:Class``.
    settings
        Given to a class that takes them, such as for its engine.
    options
        Further arguments of its class.

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
    if settings is not None and "settings" in inspect.signature(target).parameters:
        options["settings"] = settings
    brain: Brain = plugins.construct(target, f"brain {name}", options)
    return brain
