"""Brains by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.plugins import Registry
from sim.agents._protocol import Brain

if TYPE_CHECKING:
    from pipelines.config import Settings

BRAINS = Registry(
    "brain",
    {
        "random": "sim.agents._baselines:RandomBrain",
        "always": "sim.agents._baselines:AlwaysBrain",
        "statistical": "sim.agents._statistical:StatisticalBrain",
        "model": "sim.agents._model:ModelBrain",
    },
    group="understudy.brains",
    methods=("open", "judge", "decide", "reflect", "interview", "classify", "metadata"),
    implement="sim.agents.Brain (docs/agents.md)",
)
#: Decorator that registers a brain in this process: ``@brain("mine")``.
brain = BRAINS.register


def open_brain(name: str, *, settings: Settings | None = None, **options: Any) -> Brain:
    """A brain by name, before `open`.

    A name is one of `BRAINS`, or your own (:class:`pipelines.plugins.Registry`). Options are
    arguments of its class; one that takes ``settings``, such as for its engine, is given them.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Brain`, or an option is unknown.
    """
    opened: Brain = BRAINS.open(
        name, offered=None if settings is None else {"settings": settings}, **options
    )
    return opened
