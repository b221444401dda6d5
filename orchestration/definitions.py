"""The code location: `build_defs` for everything that needs other settings, `defs` for Dagster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.assets import stage_asset
from orchestration.defs.ablations import suite_assets
from orchestration.defs.agents import agent_assets, dialogue_assets, experiment_assets
from orchestration.defs.checks import dataset_checks
from orchestration.defs.jobs import JOBS, SCHEDULES
from orchestration.defs.releases import release_assets
from orchestration.defs.warehouse import dbt_resource, model_assets
from pipelines.context import PipelineContext
from pipelines.downloads import Progress
from pipelines.stages import STAGES
from sim.stages import POLICIES

__all__ = ["build_defs", "defs"]

#: A step starts in a fork of a server that has done the slow imports once.
_PRELOAD = ["orchestration.definitions", "polars", "pyarrow.parquet", "pandera.polars"]


def build_defs(
    home: Path | str | None = None,
    *,
    executor: dg.ExecutorDefinition | None = None,
    overrides: Mapping[str, Any] | None = None,
    config: Path | None = None,
    progress: Progress | None = None,
) -> dg.Definitions:
    """Definitions over a given home and settings.

    Parameters
    ----------
    home
        The store's folder; default: settings.
    executor
        Default: several processes started from a fork server, as many as there are cores.
    overrides
        Settings that win over file and environment, nested.
    config
        Settings file; default as `pipelines.config.load_settings` finds it.
    progress
        Called with (stage, done, total) by slow steps.
    """
    merged: dict[str, Any] = dict(overrides or {})
    if home is not None:
        merged["runtime"] = {**merged.get("runtime", {}), "home": str(home)}
    workbench = PipelineContext(merged, config, *([progress] if progress else []))
    return dg.Definitions(
        assets=[
            *(stage_asset(stage) for stage in (*STAGES, POLICIES)),
            *model_assets().values(),
            *release_assets(),
            *suite_assets(),
            agent_assets(),
            experiment_assets(),
            dialogue_assets(),
        ],
        asset_checks=dataset_checks(),
        jobs=JOBS,
        schedules=SCHEDULES,
        resources={"workbench": workbench, "dbt": dbt_resource()},
        executor=executor
        or dg.multiprocess_executor.configured(
            {"max_concurrent": 0, "start_method": {"forkserver": {"preload_modules": _PRELOAD}}}
        ),
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Code location of `dagster dev`: settings from the file and the environment."""
    return build_defs()
