"""The dbt program gets its variables by a file and ends with the process that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration import dbt_program, dbt_project
from orchestration.dbt_project import manifest_path, parsed_path


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


@pytest.mark.pipeline
def test_dbt_of_a_living_parent_runs(tmp_path: Path, parsed: Path) -> None:
    done = _version(dbt_program.prepared(_variables(tmp_path), "living", parsed))
    assert done.returncode == 0, done.stderr
    assert "duckdb" in done.stdout


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
    assert "buidl" in done.stderr


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
