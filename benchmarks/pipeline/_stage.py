"""A stage of the benchmark in a process of its own; prints seconds and rows as JSON."""

from __future__ import annotations

import json
import sys

from orchestration.defs.warehouse import model_assets
from orchestration.headless import run_job

assets = sys.argv[1:]
if assets == ["@dbt"]:
    assets = sorted(key.to_user_string() for key in model_assets()["movies"].keys)
report = run_job("everything", overrides={}, select=assets)
print(
    json.dumps(
        {
            "seconds": sum(step.seconds for step in report.steps),
            "rows": sum(step.rows for step in report.steps),
        }
    )
)
