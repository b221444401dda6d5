"""A stage of the benchmark in a process of its own; prints seconds and rows as JSON."""

from __future__ import annotations

import json
import sys

from orchestration.definitions import build_defs
from orchestration.headless import run_job

assets = sys.argv[1:]
if assets == ["@dbt"]:
    layers = {"staging", "intermediate", "marts"}
    keys = build_defs().resolve_job_def("__ASSET_JOB").asset_layer.selected_asset_keys
    assets = sorted(k.to_user_string() for k in keys if k.path[0] in layers)
report = run_job("everything", overrides={}, select=assets)
print(
    json.dumps(
        {
            "seconds": sum(step.seconds for step in report.steps),
            "rows": sum(step.rows for step in report.steps),
        }
    )
)
