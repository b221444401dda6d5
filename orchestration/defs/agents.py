"""Visits of agents to recommenders, with the visits as run configuration."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from orchestration.assets import asset_options, run_stage
from pipelines.context import PipelineContext
from sim.stages import simulation_stage

__all__ = ["AgentsConfig", "agent_assets"]


class AgentsConfig(dg.Config):
    """Which agents visit what; the options of ``sim agents``, on the latest release of a domain."""

    domain: str = "movies"
    cast: str = "matched"
    #: Each is visited by as many agents; reports compare them.
    recommenders: list[str] = Field(default_factory=lambda: ["random", "popular", "mean-rating"])
    brain: str = "statistical"
    agents: int = 1_000
    pages: int = 5
    per_page: int = 4
    seed: int = 0
    traits: bool = True
    graph: bool = True


def agent_assets() -> dg.AssetsDefinition:
    """Tables of the visits; no domain's job needs them."""

    @dg.multi_asset(**asset_options(simulation_stage()))
    def simulated_visits(
        context: dg.AssetExecutionContext,
        config: AgentsConfig,
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(simulation_stage(**config.model_dump()), context, workbench)

    return simulated_visits
