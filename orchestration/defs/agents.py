"""Visits of agents, experiments on them, dialogues: their options as run configuration."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from orchestration.assets import asset_options, run_stage
from pipelines.config import Settings
from pipelines.context import PipelineContext
from sim.stages import dialogues_stage, experiments_stage, simulation_stage

__all__ = [
    "AgentsConfig",
    "DialoguesConfig",
    "ExperimentsConfig",
    "agent_assets",
    "dialogue_assets",
    "experiment_assets",
]


class AgentsConfig(dg.Config):
    """Options of ``understudy agents``, run on the latest release of a domain."""

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


def agent_assets(settings: Settings) -> dg.AssetsDefinition:
    """Tables of the visits; no domain's job needs them."""

    @dg.multi_asset(**asset_options(simulation_stage(), settings))
    def simulated_visits(
        context: dg.AssetExecutionContext,
        config: AgentsConfig,
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(simulation_stage(**config.model_dump()), context, workbench)

    return simulated_visits


class ExperimentsConfig(dg.Config):
    """Options of ``understudy experiment``, run on the latest release of a domain."""

    domain: str = "movies"
    names: list[str] = Field(default_factory=lambda: ["all"])
    #: Beside `random` and `statistical`.
    brains: list[str] = Field(default_factory=list)
    #: Empty: those whose libraries are installed.
    recommenders: list[str] = Field(default_factory=list)
    agents: int = 1_000
    pages: int = 5
    per_page: int = 4
    model_agents: int = 20
    model_pages: int = 2
    seed: int = 0


def experiment_assets(settings: Settings) -> dg.AssetsDefinition:
    """Figures and comparisons of experiments; no domain's job needs them."""

    @dg.multi_asset(**asset_options(experiments_stage(), settings))
    def experiments(
        context: dg.AssetExecutionContext,
        config: ExperimentsConfig,
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(experiments_stage(**config.model_dump()), context, workbench)

    return experiments


class DialoguesConfig(dg.Config):
    """Options of ``understudy dialogue run``."""

    suites: list[str] = Field(default_factory=lambda: ["all"])
    customer: str = "statistical"
    #: None: of the settings, 60 of the suite `planning`.
    seeds: int | None = None
    episodes: int | None = None
    #: Agents that ask the language model of the section `engine`.
    models: list[str] = Field(default_factory=list)
    model_seeds: int = 2
    model_episodes: int = 3


def dialogue_assets(settings: Settings) -> dg.AssetsDefinition:
    """Episodes, turns and figures of dialogues; no domain's job needs them."""

    @dg.multi_asset(**asset_options(dialogues_stage(), settings))
    def dialogues(
        context: dg.AssetExecutionContext,
        config: DialoguesConfig,
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(dialogues_stage(**config.model_dump()), context, workbench)

    return dialogues
