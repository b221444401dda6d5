"""The example of a Dagster instance on Postgres is one that Dagster takes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from dagster._core.instance.config import dagster_instance_config

from orchestration.instance import DAGSTER_YAML


def test_postgres_example_is_valid_and_keeps_our_settings(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "operations.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "dagster.yaml").write_text(example)
    found, _ = dagster_instance_config(str(tmp_path))
    assert found["storage"]["postgres"]["postgres_db"]["password"] == {"env": "DAGSTER_PG_PASSWORD"}
    ours = yaml.safe_load(DAGSTER_YAML)
    for section in ("concurrency", "run_monitoring", "run_retries"):
        assert found[section] == ours[section]
