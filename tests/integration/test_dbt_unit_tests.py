"""The unit tests of the dbt project, which runs leave out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from support.marts import PROJECT, dbt

from pipelines.config import Settings
from pipelines.warehouse import WarehouseLayout

pytestmark = pytest.mark.pipeline


def test_every_unit_test_passes(published_home: Path, tmp_path: Path) -> None:
    settings = Settings(runtime={"home": tmp_path})
    layout = WarehouseLayout(tmp_path)
    # They read no row, but the columns of what is built.
    layout.database.parent.mkdir(parents=True)
    shutil.copyfile(WarehouseLayout(published_home).database, layout.database)
    done = dbt(settings, "test", "--select", "test_type:unit", unit_tests=True)
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
