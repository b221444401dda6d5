"""Dagster's command line `dg` in the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pipeline


def test_dg_lists_the_definitions_of_the_project(repository: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("dg")
    if not program.exists():
        pytest.skip("dagster-dg-cli is not installed (extra `dev`)")
    result = subprocess.run(
        [program, "list", "defs", "--json"],
        cwd=repository,
        env=os.environ | {"UNDERSTUDY_HOME": str(tmp_path), "VIRTUAL_ENV": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert "releases/movies" in {asset["asset_key"] for asset in found["assets"]}
    assert {"movies", "ingest"} <= {job["name"] for job in found["jobs"]}
