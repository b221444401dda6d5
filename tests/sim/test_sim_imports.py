"""Imports of `sim` and of opening a release, seen from fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pipeline

FORBIDDEN = (
    "dagster",
    "dagster_dbt",
    "dbt",
    "torch",
    "pandas",
    "duckdb",
    "pandera",
    "orchestration",
)


def loaded(code: str, *names: str) -> list[str]:
    """Which of the modules a fresh interpreter has loaded after running the code."""
    script = f"import sys\n{code}\nprint(*[m for m in {names!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("module", ["sim", "understudy"])
def test_import_loads_nothing_heavy_and_registers_the_environments(module: str) -> None:
    code = f"import {module}, gymnasium\nassert 'Understudy/Movies-v0' in gymnasium.registry"
    assert loaded(code, *FORBIDDEN, "polars", "pyarrow", "scipy", "sim.environment") == []


def test_opening_a_release_and_reading_a_table_loads_nothing_heavy(home: Path) -> None:
    code = (
        "from sim import open_release\n"
        f"open_release('movies', home={str(home)!r})['items'].polars()"
    )
    assert loaded(code, *FORBIDDEN) == []


def test_an_episode_with_the_statistical_rater_loads_neither_torch_nor_an_orchestrator(
    home: Path,
) -> None:
    code = (
        "import sim, gymnasium\n"
        f"env = gymnasium.make('Understudy/Movies-v0', release='movies', home={str(home)!r})\n"
        "env.reset(seed=0)\nenv.step(3)"
    )
    assert loaded(code, *FORBIDDEN) == []


def test_release_reader_works_where_gymnasium_is_not_installed() -> None:
    code = (
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *a: None if n == 'gymnasium' else real(n, *a)\n"
        "import understudy\nassert understudy.open_release"
    )
    assert loaded(code, "gymnasium") == []
