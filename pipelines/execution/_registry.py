"""Executors by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines import plugins
from pipelines.execution._protocol import Executor

if TYPE_CHECKING:
    from pipelines.config import ExecutionSettings

#: The project's executors by name; imported on first use.
EXECUTORS: dict[str, str] = {
    "local": "pipelines.execution._local:LocalExecutor",
    "ray": "pipelines.execution._ray:RayExecutor",
}


def open_executor(settings: ExecutionSettings) -> Executor:
    """The executor that the settings name; to be closed.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Executor`, or its cluster can't be reached.
    MissingPackageError
        If its package is not installed.
    """
    executor: Executor = plugins.open_plugin(
        settings.executor,
        EXECUTORS,
        {"settings": settings},
        kind="executor",
        methods=("map", "close"),
        implement="pipelines.execution.Executor (docs/scale.md)",
    )
    return executor
