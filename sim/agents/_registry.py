"""Brains by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines import plugins
from sim.agents._protocol import Brain

if TYPE_CHECKING:
    from pipelines.config import Settings

#: The project's brains by name; imported on first use.
BRAINS: dict[str, str] = {
    "random": "sim.agents._baselines:RandomBrain",
    "always": "sim.agents._baselines:AlwaysBrain",
    "statistical": "sim.agents._statistical:StatisticalBrain",
    "model": "sim.agents._model:ModelBrain",
}


def open_brain(name: str, *, settings: Settings | None = None, **options: Any) -> Brain:
    """A brain by name, before `open`.

    A name is one of `BRAINS`, ``module:Class`` or ``path/to/file.py:Class``. Options are arguments
    of its class; one that takes ``settings``, such as for its engine, is given them.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Brain`, or an option is unknown.
    """
    brain: Brain = plugins.open_plugin(
        name,
        BRAINS,
        options,
        offered=None if settings is None else {"settings": settings},
        kind="brain",
        methods=("open", "judge", "decide", "reflect", "interview", "classify", "metadata"),
        implement="sim.agents.Brain (docs/agents.md)",
    )
    return brain
