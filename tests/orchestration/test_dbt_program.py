"""The dbt program gets its variables by a file and ends with the process that started it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration import dbt_program, dbt_project
from orchestration.dbt_project import manifest_path, parsed_path
from orchestration.defs.warehouse import _start_fault
from pipelines.errors import LockedError, StoreError


@pytest.fixture(scope="module")
def parsed() -> Path:
    manifest_path()
    return parsed_path()


def _version(target: Path) -> subprocess.CompletedProcess[str]:
    return _run(target, "--version")


def _run(target: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", dbt_program.__name__, *words]
    env = os.environ | {"DBT_TARGET_PATH": str(target)}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=300
    )


def _variables(folder: Path, **others: str) -> dict[str, str]:
    sources = str(folder / "sources")
    paths = {"DBT_TARGET_PATH": str(folder), "DBT_LOG_PATH": str(folder)}
    return {**paths, "WAREHOUSE_SOURCES": sources, **others}


@pytest.mark.pipeline
@pytest.mark.faults
def test_dbt_whose_parent_was_killed_before_it_asked_is_killed(
    tmp_path: Path, parsed: Path
) -> None:
    target = dbt_program.prepared(_variables(tmp_path), "killed", parsed)
    # Another process is the parent by now, as after the adoption of an orphan.
    given = target / dbt_program.VARIABLES
    given.write_text(json.dumps({dbt_program.PARENT: str(os.getppid())}))
    assert _version(target).returncode == -signal.SIGKILL


def test_variables_are_those_of_the_invocation_and_not_of_the_process_that_starts_it(
    tmp_path: Path,
) -> None:
    before = dict(os.environ)
    one, two = (
        dbt_program.prepared(_variables(tmp_path, WAREHOUSE_JOBS=jobs), "movies", Path("parsed"))
        for jobs in "12"
    )
    assert dict(os.environ) == before
    assert one.parent == two.parent == tmp_path
    for target, jobs in ((one, "1"), (two, "2")):
        assert json.loads((target / dbt_program.VARIABLES).read_text()) == {
            "WAREHOUSE_JOBS": jobs,
            "WAREHOUSE_SOURCES": str(tmp_path / "sources"),
            dbt_program.PARENT: str(os.getpid()),
            dbt_program.PARSED: "parsed",
        }


@pytest.mark.pipeline
def test_what_dbt_could_not_run_is_said(tmp_path: Path, parsed: Path) -> None:
    target = dbt_program.prepared(_variables(tmp_path), "wrong", parsed)
    done = _run(target, "buidl")
    assert done.returncode == 2
    assert "buidl" in (target / dbt_program.FAILURE).read_text()


LOCKED = """Runtime Error
  IO Error: Could not set lock on file "/h/warehouse/warehouse.duckdb": Conflicting lock is held in
  /usr/bin/python3.11 (PID 4711). See also https://duckdb.org/docs/stable/connect/concurrency"""


@pytest.mark.parametrize(
    ("failure", "code", "error", "words"),
    [
        (
            LOCKED,
            2,
            LockedError,
            r"process 4711 \(/usr/bin/python3.11\) has the warehouse file open",
        ),
        (
            "Runtime Error\n  Could not find profile",
            2,
            StoreError,
            "2 .*: Runtime Error Could not fi",
        ),
        ("not a valid DuckDB database file!", 2, StoreError, r"can't be opened.*remove the file"),
        (None, -9, StoreError, r"dbt was ended by signal 9 and left no results.*out of memory"),
    ],
)
def test_start_up_error_of_dbt_is_quoted(
    tmp_path: Path, failure: str | None, code: int, error: type[StoreError], words: str
) -> None:
    if failure is not None:
        (tmp_path / dbt_program.FAILURE).write_text(failure)
    ended: Any = SimpleNamespace(target_path=tmp_path, process=SimpleNamespace(returncode=code))
    found = _start_fault(ended, tmp_path / "home")
    assert type(found) is error
    assert re.search(words, str(found))
    (tmp_path / "run_results.json").write_text("{}")
    assert _start_fault(ended, tmp_path / "home") is None


@pytest.mark.pipeline
def test_project_without_its_parsed_file_is_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dbt_project, "_target", lambda: tmp_path)
    manifest = manifest_path()
    written = manifest.stat().st_mtime_ns
    assert manifest_path().stat().st_mtime_ns == written
    parsed_path().unlink()
    assert manifest_path().stat().st_mtime_ns > written
    assert parsed_path().exists()
