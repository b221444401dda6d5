"""Dagster's staleness and runs of a home in this process: what the UI asks and launches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from orchestration.definitions import build_defs

__all__ = ["DagsterProcess"]


class DagsterProcess:
    """Definitions over a home under some settings, with the home's instance.

    The webserver asks the same resolver for *stale*; its processes, which take half a minute to
    start a run, have tests of their own.
    """

    def __init__(self, home: Path, instance: dg.DagsterInstance) -> None:
        self.home = home
        self.instance = instance
        self.load({})

    def load(self, settings: dict[str, Any]) -> None:
        """Load the definitions again, under other settings."""
        defs = build_defs(self.home, overrides=settings, executor=dg.in_process_executor)
        self.graph = defs.resolve_asset_graph()
        self.job = defs.resolve_implicit_global_asset_job_def()

    def upstream(self, key: str) -> list[str]:
        """An asset and every one that it is made from."""
        found, todo = set[dg.AssetKey](), {dg.AssetKey(key.split("/"))}
        while todo:
            found |= todo
            parents = {parent for one in todo for parent in self.graph.get(one).parent_keys}
            todo = (parents & self.graph.materializable_asset_keys) - found
        return sorted(one.to_user_string() for one in found)

    def stale(self, keys: Sequence[str]) -> set[tuple[str, str | None]]:
        """Which of these assets are stale or missing, with the partition."""
        resolver = CachingStaleStatusResolver(
            self.instance, self.graph, LoadingContextForTest(self.instance)
        )
        found = set()
        for name in keys:
            key = dg.AssetKey(name.split("/"))
            partitions = self.graph.get(key).partitions_def
            cohorts = (
                partitions.get_partition_keys(dynamic_partitions_store=self.instance)
                if partitions
                else [None]
            )
            found |= {
                (name, cohort)
                for cohort in cohorts
                if resolver.get_status(key, cohort).value != "FRESH"
            }
        return found

    def launch(
        self, keys: Sequence[str], partition: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """Materialise or observe assets; raises what a step raises."""
        return self.job.execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(key.split("/")) for key in keys],
            partition_key=partition,
        )
