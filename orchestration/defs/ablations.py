"""Scores of raters on the ablation suites, with the suite's size as run configuration."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from orchestration.assets import asset_options, run_stage
from pipelines.config import Settings
from pipelines.context import PipelineContext
from sim.stages import scores_stage

__all__ = ["SuiteConfig", "suite_assets"]


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


def _scores_asset(domain: str, settings: Settings) -> dg.AssetsDefinition:
    @dg.multi_asset(**asset_options(scores_stage(domain), settings))
    def step(
        context: dg.AssetExecutionContext,
        config: SuiteConfig,
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from run_stage(scores_stage(domain, **config.model_dump()), context, workbench)

    return step


def suite_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """Scores of every suite; no domain's job needs them."""
    return [_scores_asset(domain, settings) for domain in ("movies", "books")]
