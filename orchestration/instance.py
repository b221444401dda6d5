"""The Dagster instance that belongs to a home: runs started anywhere are seen in one UI."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import dagster as dg

from orchestration.defs.personas import COHORTS

__all__ = ["DAGSTER_YAML", "dagster_home", "open_instance"]

#: Pools hold one step unless said otherwise in the UI: one process writes the DuckDB file.
#: Slots of a run that ended or was cancelled are freed, or it would block the pool for ever.
#: Only a run whose worker died is started again by itself; failed steps follow their own
#: retry policy, which permanent faults opt out of.
DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    default_limit: 1
    granularity: op
  runs:
    max_concurrent_runs: 4
run_monitoring:
  enabled: true
  start_timeout_seconds: 180
  cancel_timeout_seconds: 60
  free_slots_after_run_end_seconds: 30
run_retries:
  enabled: true
  max_retries: 1
  retry_on_asset_or_op_failure: false
retention:
  schedule:
    purge_after_days: 90
  sensor:
    purge_after_days: 30
"""


def dagster_home(home: Path) -> Path:
    """Folder of the instance below ``home``, made with its `dagster.yaml` if it is missing."""
    folder = Path(home).resolve() / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "dagster.yaml"
    if not target.exists():
        handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(DAGSTER_YAML)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    return folder


def open_instance(home: Path, *cohorts: str) -> dg.DagsterInstance:
    """The home's instance, with the cohorts' partitions known to it."""
    folder = dagster_home(home)
    os.environ["DAGSTER_HOME"] = str(folder)
    instance = dg.DagsterInstance.from_config(str(folder))
    instance.add_dynamic_partitions(str(COHORTS.name), list(dict.fromkeys(cohorts)))
    return instance
