"""Dagster runs of a home, executed in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.definitions import build_defs

__all__ = ["DagsterProcess"]


class DagsterProcess:
    """Definitions over a home under some settings, with the home's instance."""

    def __init__(self, home: Path, instance: dg.DagsterInstance) -> None:
        self.home = home
        self.instance = instance
        self.load({})

    def load(self, settings: dict[str, Any]) -> None:
        """Load the definitions again, under other settings."""
        defs = build_defs(self.home, overrides=settings, executor=dg.in_process_executor)
        self.job = defs.resolve_implicit_global_asset_job_def()

    def launch(
        self, keys: Sequence[str], partition: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """Materialise or observe assets; raises what a step raises."""
        return self.job.execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(key.split("/")) for key in keys],
            partition_key=partition,
        )
