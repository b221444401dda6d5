"""Dagster's instance of a home, opened by several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPENED_BY_MANY = """
import multiprocessing, pathlib, sys
from orchestration.instance import open_instance

def open_home(home, barrier):
    barrier.wait()
    with open_instance(pathlib.Path(home), f"movies/{multiprocessing.current_process().name}"):
        pass

context = multiprocessing.get_context("fork")
for home in sys.argv[1:]:
    barrier = context.Barrier(4)
    openings = [context.Process(target=open_home, args=(home, barrier)) for _ in range(4)]
    for one in openings:
        one.start()
    for one in openings:
        one.join()
    assert [one.exitcode for one in openings] == [0] * 4
"""


@pytest.mark.night
def test_processes_that_open_a_new_home_at_once_make_its_databases_once(tmp_path: Path) -> None:
    homes = [str(tmp_path / str(number)) for number in range(2)]
    command = [sys.executable, "-c", OPENED_BY_MANY, *homes]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
