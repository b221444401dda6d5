"""The unit tests of the dbt project, which runs leave out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.config import Settings
from pipelines.warehouse import WarehouseLayout, dbt_environment, dbt_vars

pytestmark = pytest.mark.pipeline

PROJECT = Path(__file__).resolve().parents[2] / "dbt"


def test_every_unit_test_passes(published_home: Path, tmp_path: Path) -> None:
    settings = Settings(runtime={"home": tmp_path})
    layout = WarehouseLayout(tmp_path)
    environment = {**os.environ, **dbt_environment(settings)}
    # They read no row, but the columns of what is built.
    shutil.copyfile(WarehouseLayout(published_home).database, layout.database)
    command = [str(Path(sys.executable).with_name("dbt")), "test", "--select", "test_type:unit"]
    command += ["--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT)]
    command += ["--vars", json.dumps(dbt_vars(settings))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    results = json.loads((layout.target / "run_results.json").read_bytes())["results"]
    declared = {
        unit["name"]
        for file in PROJECT.glob("models/**/*.yml")
        for unit in yaml.safe_load(file.read_text(encoding="utf-8")).get("unit_tests", [])
    }
    units = [r["unique_id"] for r in results if r["unique_id"].startswith("unit_test.")]
    assert {unit.split(".")[-1] for unit in units} == declared
    assert {result["status"] for result in results} <= {"pass", "success"}
