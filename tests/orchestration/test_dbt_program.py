"""The dbt program ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from orchestration import dbt_program

COMMAND = [sys.executable, "-P", "-m", dbt_program.__name__, "--version"]


@pytest.mark.faults
def test_dbt_whose_parent_was_killed_before_it_asked_is_killed() -> None:
    # Another process is the parent by now, as after the adoption of an orphan.
    env = os.environ | {dbt_program.PARENT: str(os.getppid())}
    done = subprocess.run(COMMAND, env=env, capture_output=True, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL


def test_dbt_of_a_living_parent_runs() -> None:
    env = os.environ | {dbt_program.PARENT: str(os.getpid())}
    done = subprocess.run(COMMAND, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "duckdb" in done.stdout
