"""Dagster's command line in the checkout: its workspace, and the cohort of runs started by hand."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import dagster as dg
import pytest
import yaml
from support.dagster_ui import Dagster

from orchestration import definitions
from orchestration.assets import COHORTS
from orchestration.cli import WORKSPACE, plan_jobs
from orchestration.defs.jobs import _standing_cohort
from pipelines.config import Settings
from pipelines.domains import DOMAINS

#: Longest start of Dagster's servers (seconds).
PATIENCE = 900
MOVIES = DOMAINS["movies"]
BOOKS = DOMAINS["books"]


def test_workspace_stands_at_the_top_level(repository: Path) -> None:
    found = yaml.safe_load((repository / "workspace.yaml").read_text())
    assert found == yaml.safe_load(WORKSPACE)
    # Dagster reads this table first, and would not look at the workspace.
    assert "dagster" not in tomllib.loads((repository / "pyproject.toml").read_text())["tool"]


def test_standing_cohort_is_a_partition_of_any_instance() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        store = {"dynamic_partitions_store": instance}
        assert COHORTS["movies"].has_partition_key("default", **store)
        assert COHORTS["books"].has_partition_key("books", **store)
        assert not COHORTS["movies"].has_partition_key("books", **store)
        assert not COHORTS["movies"].has_partition_key("2026-w47", **store)
        assert COHORTS["movies"].get_partition_keys(**store) == []


@pytest.mark.parametrize("command", ["dagster job execute -j movies", "dg launch --job movies"])
def test_runs_started_by_hand_have_the_standing_cohort(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", command.split())
    assert _standing_cohort(MOVIES) == {"dagster/partition": "default"}
    assert _standing_cohort(BOOKS) == {"dagster/partition": "books"}


@pytest.mark.parametrize(
    "command",
    [
        'dagster job execute -j movies --tags {"dagster/partition":"pilot"}',
        "dg launch --job movies --partition-range a...b",
        "dagster api execute_run x",
        "understudy run",
    ],
)
def test_other_runs_name_their_cohorts(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", command.split())
    assert _standing_cohort(MOVIES) == {}


def test_tables_of_cohorts_ask_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    built = definitions.shared_defs()
    monkeypatch.setattr(definitions, "shared_defs", lambda **_: built)
    words = ["dagster", "asset", "materialize", "--select", "sources/world_files,books/personas"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as caught:
        definitions._code_location()
    assert caught.value.code == (
        "error: books/personas has a partition per cohort, and none is named: "
        "add --partition books (docs/dagster.md)"
    )
    for more in (["--partition", "books"], ["--select", "sources/world_files"]):
        monkeypatch.setattr(sys, "argv", [*words, *more])
        assert definitions._code_location() is built


def test_ingest_is_a_job_of_the_command(tmp_path: Path) -> None:
    files = {
        "movies.csv": "movieId,title,genres\n1,Alpha (1999),Drama\n",
        "ratings.csv": "userId,movieId,rating,timestamp\n1,1,4.0,100\n",
        "links.csv": "movieId,imdbId,tmdbId\n1,1,1\n",
        "tags.csv": "userId,movieId,tag,timestamp\n",
    }
    (tmp_path / "data/movielens").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "data/movielens" / name).write_text(content)
    tree = Settings(world={"folder": tmp_path / "data"})  # type: ignore[arg-type]
    plan = plan_jobs("ingest", tree)
    assert [run.job for run in plan.jobs] == ["ingest"]
    assert plan.domains == []


def _environment(home: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"}
    return clean | {"UNDERSTUDY_HOME": str(home), "UNDERSTUDY_PERSONAS__COUNT": "6"}


def _dagster(repository: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dagster", *words]
    env = _environment(home) | {
        "UNDERSTUDY_WORLD__SAMPLE__FILMS": "30",
        "UNDERSTUDY_WORLD__SAMPLE__USERS": "40",
        "UNDERSTUDY_WORLD__SAMPLE__RATINGS": "700",
        "UNDERSTUDY_SCORING__MAX_PAIRS": "60",
    }
    return subprocess.run(
        command, cwd=repository, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.pipeline
def test_job_execute_publishes_on_a_fresh_home(repository: Path, tmp_path: Path) -> None:
    module = ("-m", "orchestration.definitions")
    done = _dagster(repository, tmp_path / "home", "job", "execute", *module, "-j", "movies")
    assert done.returncode == 0, done.stderr[-5000:]
    assert list((tmp_path / "home/releases").glob("movies@*.json"))


@pytest.mark.pipeline
def test_asset_materialize_makes_the_standing_cohort(repository: Path, tmp_path: Path) -> None:
    words = ("-m", "orchestration.definitions", "--select", "movies/personas")
    asked = _dagster(repository, tmp_path / "home", "asset", "materialize", *words)
    assert asked.returncode == 1
    assert "Traceback" not in asked.stderr
    assert "add --partition default" in asked.stderr
    words += ("--partition", "default")
    done = _dagster(repository, tmp_path / "home", "asset", "materialize", *words)
    assert done.returncode == 0, done.stderr[-5000:]
    assert (tmp_path / "home/refs/movies.personas-default.json").exists()


@pytest.mark.pipeline
def test_dagster_dev_in_the_checkout_opens_the_pipeline(repository: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "dagster").mkdir()
    log = tmp_path / "dev.log"
    env = _environment(tmp_path / "home") | {"DAGSTER_HOME": str(tmp_path / "dagster")}
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port)]
    with log.open("w") as output:
        server = subprocess.Popen(
            command, cwd=repository, env=env, stdout=output, stderr=output, start_new_session=True
        )
    try:
        locations = None
        until = time.monotonic() + PATIENCE
        while not locations and server.poll() is None and time.monotonic() < until:
            time.sleep(1)
            locations = _locations(port)
    finally:
        os.killpg(server.pid, signal.SIGINT)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(60)
    assert locations == {"understudy"}, log.read_text()[-5000:]


def _locations(port: int) -> set[str] | None:
    """Names of the loaded code locations; None while the webserver starts."""
    query = "{repositoriesOrError {... on RepositoryConnection {nodes {location {name}}}}}"
    try:
        found = Dagster(f"http://127.0.0.1:{port}").ask(query)["repositoriesOrError"]
    except OSError:
        return None
    return {node["location"]["name"] for node in found.get("nodes", [])}
