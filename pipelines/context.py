"""The context of a pipeline: settings and store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.config import Settings, load_settings
from pipelines.store import Store

__all__ = ["PipelineContext"]


@dataclass(frozen=True)
class PipelineContext:
    """Settings and store that stages are built with."""

    #: Settings that win over file and environment, nested.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    #: Settings file; default as `pipelines.config.load_settings` finds it.
    config: Path | None = None

    @classmethod
    def of(cls, store: Store, settings: Settings) -> PipelineContext:
        """The context of a store and settings that are open already."""
        context = cls()
        vars(context).update(store=store, settings=settings)
        return context

    @cached_property
    def settings(self) -> Settings:
        """Settings from file, environment and the overrides.

        The version of a model of the store stands in place of ``latest``: it is part of what is
        built with it.
        """
        settings = load_settings(self.config, self.overrides)
        model, home = settings.engine.model, settings.serving.home
        if home is None or not model.endswith("@latest"):
            return settings
        from pipelines.llm.engines.checkpoints import pinned_model

        pinned = settings.engine.model_copy(update={"model": pinned_model(model, home)})
        return settings.model_copy(update={"engine": pinned})

    @cached_property
    def store(self) -> Store:
        """The versioned store below the configured home."""
        return Store(self.settings.runtime.home)
