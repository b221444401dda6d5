"""Imports go down, and opening the light parts loads none of the heavy ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pipeline


def _loaded(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``code``."""
    script = f"{code}\nimport sys\nprint(' '.join({{m.partition('.')[0] for m in sys.modules}}))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import pipelines, pipelines.store, pipelines.config, pipelines.contracts",
        "import sim",
        "import pipelines.sources, pipelines.quality, pipelines.warehouse",
        "import pipelines.personas, pipelines.embeddings, pipelines.raters, pipelines.graph",
        "import pipelines.cli.main",
    ],
)
def test_no_layer_below_orchestration_loads_an_orchestrator(code: str) -> None:
    loaded = _loaded(code)
    assert not loaded & {"dagster", "dagster_dbt", "dbt", "ray", "obstore"}
    assert not loaded & {"torch", "sentence_transformers", "great_expectations", "matplotlib"}


def test_the_reference_pages_are_up_to_date(repository: Path) -> None:
    result = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
