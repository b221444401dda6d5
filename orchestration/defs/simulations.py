"""Suites, visits of agents, experiments and dialogues: their options as run configuration."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from orchestration.assets import asset_options, run_stage
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.stages import Stage
from sim.stages import dialogues_stage, experiments_stage, scores_stage, simulation_stage


class SuiteConfig(dg.Config):
    """The part of a suite that is run.

    Attributes
    ----------
    grid
        `small` (one option changed at a time) or `full`.
    seeds
        Independent seeds (count).
    cases
        Cases of each test and seed that are asked at most (count); None: all.
    models
        Models of the configured engine that are judged beside the raters without one; the
        configured one is judged anyway if `scoring.rater` is `llm`.
    """

    grid: str = "small"
    seeds: int = 3
    cases: int | None = None
    models: list[str] = Field(default_factory=list)


class AgentsConfig(dg.Config):
    """Options of ``understudy agents run``, run on the latest release of a domain."""

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


class ExperimentsConfig(dg.Config):
    """Options of ``understudy experiment run``, run on the latest release of a domain."""

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


def _assets(
    stage: Callable[..., Stage], options: type[dg.Config], settings: Settings
) -> dg.AssetsDefinition:
    def step(
        context: dg.AssetExecutionContext,
        config: dg.Config,
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(stage(**config.model_dump()), context, workbench)

    step.__annotations__["config"] = options
    return dg.multi_asset(**asset_options(stage(), settings))(step)


def suite_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """Scores of every suite; no domain's job needs them."""
    domains = ("movies", "books")
    return [_assets(partial(scores_stage, domain), SuiteConfig, settings) for domain in domains]


def simulation_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """Visits of agents, experiments on them, dialogues; no domain's job needs them."""
    return [
        _assets(simulation_stage, AgentsConfig, settings),
        _assets(experiments_stage, ExperimentsConfig, settings),
        _assets(dialogues_stage, DialoguesConfig, settings),
    ]
