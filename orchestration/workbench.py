"""What every asset works with: the settings, the store and a way to report progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.config import Settings, load_settings
from pipelines.store import Snapshot, Store

__all__ = ["Progress", "Workbench", "environment"]

#: ``progress(stage, done, total)``; ``total`` is None while unknown.
Progress = Callable[[str, int, "int | None"], None]


def _silent(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Workbench:
    """The one resource of the definitions.

    A plain object instead of configurable resource fields, because Dagster shows and stores
    resource configuration, and the settings tree holds secrets.
    """

    overrides: Mapping[str, Any] = field(default_factory=dict)
    config: Path | None = None
    progress: Progress = _silent

    @cached_property
    def settings(self) -> Settings:
        """Settings from file, environment and the overrides of `build_defs`."""
        return load_settings(self.config, self.overrides)

    @cached_property
    def store(self) -> Store:
        """The versioned store below the configured home."""
        return Store(self.settings.runtime.home)

    def plots(self, snapshot: Snapshot) -> dict[str, bytes]:
        """The dataset's pictures, as PNG bytes by title."""
        from pipelines.quality import plots_for

        return plots_for(snapshot.dataset, snapshot, store=self.store, settings=self.settings)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the block only (dbt is configured through them)."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
