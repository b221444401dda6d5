"""The code location of the pipeline: `defs` for Dagster, `build_defs` for other settings."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.assets import Cohorts, stage_asset
from orchestration.defs.jobs import (
    DOMAIN_JOBS,
    OPTIONAL_JOBS,
    SCHEDULES,
    ingest,
    original_files,
    sensors,
)
from orchestration.defs.releases import dataset_checks, release_assets
from orchestration.defs.simulations import simulation_assets, suite_assets
from orchestration.defs.warehouse import configured_models, dbt_resource
from orchestration.launchpad import workbench_resource
from orchestration.naming import MODEL_TAG, SHARED, domain_of, optional_group
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS
from pipelines.extras import missing_package
from pipelines.personas import OWN
from pipelines.stages import STAGES
from sim.stages import policies_stage

__all__ = ["PRELOAD", "SOURCE", "build_defs", "defs", "shared_defs"]

#: A step starts in a fork of a server that has done the slow imports once.
PRELOAD = [
    "orchestration.definitions",
    "polars",
    "pyarrow.parquet",
    "pandera.polars",
    "great_expectations.expectations",
    "matplotlib.pyplot",
    # Storage of Dagster's instance, which is imported by name: SQLAlchemy and Alembic with it.
    "dagster._core.storage.event_log",
    "dagster._core.storage.runs",
    "dagster._core.storage.schedules",
    # Builds the definitions with these settings, 1 s of CPU time that each step would take.
    "orchestration.prebuilt",
]
#: Environment variable of that server with the arguments of :func:`shared_defs` (JSON list).
SOURCE = "STEPS_ARE_DEFINED_BY"


def build_defs(
    home: Path | str | None = None,
    *,
    executor: dg.ExecutorDefinition | None = None,
    overrides: Mapping[str, Any] | None = None,
    config: Path | None = None,
    part: str | None = None,
) -> dg.Definitions:
    """Definitions over a given home and settings.

    Parameters
    ----------
    home
        The store's folder; default: settings.
    executor
        Default: that of ``runtime.executor`` for runs of Dagster's daemon and UI.
    overrides
        Settings that win over file and environment, nested.
    config
        Settings file; default as `pipelines.config.load_settings` finds it.
    part
        Of a code location: ``pipeline``, all that releases are made of, without a domain of own
        data where there is none; or ``optional``, the tables that no release waits for. Default:
        everything.
    """
    merged: dict[str, Any] = dict(overrides or {})
    if home is not None:
        merged["runtime"] = {**merged.get("runtime", {}), "home": str(home)}
    workbench = PipelineContext(merged, config)
    settings = workbench.settings
    common: dict[str, Any] = {
        "resources": {"workbench": workbench_resource(workbench), "dbt": dbt_resource()},
        "executor": executor or _step_executor(settings),
    }
    stages = (*STAGES, policies_stage(settings.training.domain))
    optional = [stage for stage in stages if optional_group(stage.datasets[0])]
    tables = dg.Definitions(
        assets=[
            *(stage_asset(stage, settings) for stage in optional),
            *suite_assets(settings),
            *simulation_assets(settings),
        ],
        jobs=OPTIONAL_JOBS,
        **common,
    )
    if part == "optional":
        return tables
    domains = [name for name in DOMAINS if part is None or name != OWN or _has_own(workbench)]
    shown = {*domains, SHARED}
    pipeline = dg.Definitions(
        assets=[
            original_files,
            *(
                stage_asset(stage, settings)
                for stage in stages
                if stage not in optional and domain_of(stage.datasets[0]) in shown
            ),
            *configured_models(settings, domains),
            *release_assets(settings, domains),
        ],
        asset_checks=dataset_checks(settings, domains),
        jobs=[ingest, *(DOMAIN_JOBS[name] for name in domains)],
        schedules=[SCHEDULES[name] for name in domains],
        sensors=sensors(settings),
        **common,
    )
    return pipeline if part else dg.Definitions.merge(pipeline, tables)


def _has_own(workbench: PipelineContext) -> bool:
    """Return True if settings or store have data of one's own."""
    named = bool(workbench.settings.data.own.named)
    return named or workbench.store.has("raw.own_items")


def _step_executor(settings: Settings) -> dg.ExecutorDefinition:
    """Executor of the steps; `auto` is `multiprocess` here, and `understudy run`'s choice there."""
    if settings.runtime.executor == "in_process":
        return dg.in_process_executor
    if settings.runtime.executor != "k8s":
        return dg.multiprocess_executor.configured(
            {
                "max_concurrent": settings.runtime.processes,
                "start_method": {"forkserver": {"preload_modules": PRELOAD}},
                "tag_concurrency_limits": [{"key": MODEL_TAG, "limit": 1}]
                if _asks_model(settings)
                else [],
            }
        )
    try:
        from dagster_k8s import k8s_job_executor
    except ModuleNotFoundError as error:
        raise missing_package(error, where="runtime.executor=k8s", extra="cluster") from error
    # Left open to a run's configuration, where `per_step_k8s_config` wins over the steps' tags.
    return k8s_job_executor


def _asks_model(settings: Settings) -> bool:
    """Return True if steps load a language model, which each process would do for itself."""
    names: set[str] = {settings.personas.writer}
    for scoring in (settings.scoring, settings.product_scoring):
        names |= {scoring.rater, *(member.rater for member in scoring.ensemble)}
    return not names.isdisjoint({"model", "llm", "listwise"})


@cache
def shared_defs(
    overrides: str = "{}", config: str | None = None, part: str | None = None
) -> dg.Definitions:
    """Definitions of one process and its forks, built once; ``overrides`` are JSON."""
    place = Path(config) if config else None
    return build_defs(overrides=json.loads(overrides), config=place, part=part)


@dg.definitions
def defs() -> dg.Definitions:
    """Code location of `dagster dev`: settings from the file and the environment."""
    return _code_location()


def _code_location() -> dg.Definitions:
    """The definitions; a command for tables of cohorts that names none ends with the remedy.

    Dagster would end it with a traceback.
    """
    built = shared_defs(part="pipeline")
    if sys.argv[1:3] != ["asset", "materialize"] and sys.argv[1:2] != ["launch"]:
        return built
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--select", "--assets", default="")
    parser.add_argument("--partition", "--partition-range")
    given, _ = parser.parse_known_args()
    named = [] if given.partition else list(filter(None, given.select.split(",")))
    graph = built.resolve_asset_graph()
    for key in dg.AssetSelection.from_coercible(named).resolve(graph) if named else ():
        if isinstance(cohorts := graph.get(key).partitions_def, Cohorts):
            sys.exit(
                f"error: {key.to_user_string()} has a partition per cohort, and none is named: "
                f"add --partition {cohorts.standing} (docs/dagster.md)"
            )
    return built
