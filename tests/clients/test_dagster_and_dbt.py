"""Dagster's and dbt's own command lines in the checkout, on a small generated world."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from pipelines.config import Settings
from pipelines.store import Release, Store
from pipelines.warehouse import MARTS, dbt_environment, dbt_vars

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3_600)]

MODULE = ("-m", "orchestration.definitions")
#: The world of these tests; the names of settings as variables.
SMALL = {
    "UNDERSTUDY_WORLD__SAMPLE__FILMS": "30",
    "UNDERSTUDY_WORLD__SAMPLE__USERS": "40",
    "UNDERSTUDY_WORLD__SAMPLE__RATINGS": "700",
    "UNDERSTUDY_PERSONAS__COUNT": "20",
    "UNDERSTUDY_SCORING__MAX_PAIRS": "60",
}


def _run(
    repository: Path, home: Path, program: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment in the checkout; it must succeed."""
    clean = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"}
    given = {"UNDERSTUDY_HOME": str(home), "VIRTUAL_ENV": sys.prefix} | SMALL | environment
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        pytest.skip(f"{program} is not installed (extra `dev`)")
    result = subprocess.run(
        [path, *words],
        cwd=repository,
        env=clean | given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-5000:]
    return result


def _rows(home: Path, *tables: str) -> Sequence[int]:
    return [Store(home).current(table).rows for table in tables]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A fresh home on which Dagster's command has run the job of the films."""
    folder = tmp_path_factory.mktemp("by-hand") / "home"
    _run(repository, folder, "dagster", "job", "execute", *MODULE, "-j", "movies")
    return folder


@pytest.fixture(scope="module")
def release(home: Path) -> Release:
    return Store(home).release("movies@latest")


def test_dagster_job_execute_publishes_every_row(release: Release) -> None:
    tables = release.tables
    assert tables["items"].rows == 30
    assert tables["interactions"].rows == 700
    assert tables["personas"].rows == 20
    assert tables["preference_scores"].rows == 60


def test_dagster_asset_materialize_makes_a_cohort(repository: Path, tmp_path: Path) -> None:
    words = ("--select", "movies/personas", "--partition", "default")
    _run(repository, tmp_path, "dagster", "asset", "materialize", *MODULE, *words)
    assert _rows(tmp_path, "movies.personas") == [20]


def test_dg_checks_and_lists_the_definitions(repository: Path, tmp_path: Path) -> None:
    checked = _run(repository, tmp_path, "dg", "check", "defs")
    assert "All definitions loaded successfully" in checked.stdout + checked.stderr
    listed = json.loads(_run(repository, tmp_path, "dg", "list", "defs", "--json").stdout)
    assets = {asset["asset_key"] for asset in listed["assets"]}
    assert {f"releases/{domain}" for domain in ("movies", "books", "games", "products")} <= assets
    assert {"movies", "ingest"} <= {job["name"] for job in listed["jobs"]}


def test_dg_launch_makes_the_asset_it_names(repository: Path, tmp_path: Path) -> None:
    _run(repository, tmp_path, "dg", "launch", "--assets", "sources/world_files")
    assert _rows(tmp_path, "raw.world_files")[0] > 0


def test_dbt_build_by_hand_makes_the_published_rows(
    repository: Path, home: Path, release: Release, tmp_path: Path
) -> None:
    """As `dbt/README.md` says, into another file than the pipeline's."""
    settings = Settings(runtime={"home": home})  # type: ignore[arg-type]
    file = tmp_path / "warehouse.duckdb"
    own = {"WAREHOUSE_FILE": str(file), "DBT_TARGET_PATH": str(tmp_path / "target")}
    variables = ("--vars", json.dumps(dbt_vars(settings)), "--select", "tag:movies")
    project = ("--project-dir", "dbt", "--profiles-dir", "dbt")
    _run(repository, home, "dbt", "build", *project, *variables, **dbt_environment(settings) | own)
    results = json.loads((tmp_path / "target/run_results.json").read_text())["results"]
    # Thirty films are few for checks of distributions, which warn.
    assert {result["status"] for result in results} <= {"success", "pass", "warn"}
    with duckdb.connect(str(file), read_only=True) as connection:
        for name, table in release.tables.items():
            if (model := MARTS.get(f"movies.{name}")) is None:
                continue
            counted = connection.execute(f"select count(*) from marts.{model}").fetchone()
            assert counted == (table.rows,), name
