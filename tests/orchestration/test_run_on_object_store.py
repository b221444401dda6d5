"""`understudy run` on a home on an object store: tables there, dbt's and Dagster's files here."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.fork_server import ForkServer
from support.object_store import BUCKET, SECRET, objects_below
from support.steps import SMALL

from pipelines.config import Settings
from pipelines.paths import home_path, scratch_of
from pipelines.store import Store
from pipelines.warehouse import linked_sources

pytestmark = pytest.mark.night


def ran(
    forked: ForkServer, home: str, cache: Path, *options: str, encoder: Path
) -> Mapping[str, Any]:
    """JSON output of `understudy run` with a given cache folder."""
    env = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    words = ("run", "--home", home, "--json", "--set", f"embedding.model={encoder}", *options)
    done = forked.run(*words, env={**env, "XDG_CACHE_HOME": str(cache)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def test_run_publishes_on_object_store_and_another_machine_finds_its_tables(
    forked: ForkServer,
    s3_home: str,
    s3_endpoint: str,
    word_encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    first = ran(forked, s3_home, here, *SMALL, encoder=word_encoder)
    assert first["home"] == s3_home
    assert first["checks"]["failed"] == []
    store = Store(s3_home)
    release = store.release("movies@latest")
    assert first["releases"][0]["release"] == f"movies@{release.version}"
    assert store.verify(release, lineage=True).problems == ()
    # Local state is not uploaded, and published tables are not in the local folder.
    names = objects_below(s3_endpoint, s3_home.removeprefix(f"s3://{BUCKET}/"))
    assert {name.split("/")[0] for name in names} == {
        "_format.json", "_locks", "builds", "checks", "data", "refs", "releases",
    }  # fmt: skip
    monkeypatch.setenv("XDG_CACHE_HOME", str(here))
    folder = Settings(runtime={"home": s3_home}).runtime.folder
    assert folder == scratch_of(home_path(s3_home))
    assert {"dagster", "warehouse", "worlds"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "data").exists()
    linked = linked_sources(s3_home)
    assert {path.name for path in (folder / "warehouse/copies").glob("*/*")} == {*linked.values()}
    before = {name: store.current(name).version for name in store.datasets()}
    # A release would need dbt's outcomes on this machine: a whole run builds there again.
    made = ("movies/population", "movies/rater_report")
    selected = [f"--select={name}" for name in made]
    second = ran(forked, s3_home, there, *SMALL, *selected, encoder=word_encoder)
    assert {step["name"] for step in second["steps"]} >= {"movies_population"}
    assert {name: store.current(name).version for name in store.datasets()} == before
    assert not Path("s3:").exists()


def test_status_and_doctor_know_a_home_on_an_object_store(
    forked: ForkServer, s3_home: str, tmp_path: Path
) -> None:
    env = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    env["XDG_CACHE_HOME"] = str(tmp_path)
    empty = forked.run("status", "--home", s3_home, "--json", env=env)
    assert json.loads(empty.stdout)["exists"] is False, empty.stderr
    doctor = json.loads(forked.run("doctor", "--home", s3_home, "--json", env=env).stdout)
    (found,) = (check for check in doctor["checks"] if check["name"] == "home")
    assert found["status"] == "ok"
    assert found["found"].startswith(f"{s3_home}, with conditional writes")
    Store(s3_home).files.put(home_path(s3_home) / "_format.json", b'{"format": 1}')
    status = json.loads(forked.run("status", "--home", s3_home, "--json", env=env).stdout)
    assert (status["exists"], status["releases"]) == (True, [])
    lost = forked.run("doctor", "--home", f"s3://{BUCKET}-absent/home", "--json", env=env)
    (found,) = (c for c in json.loads(lost.stdout)["checks"] if c["name"] == "home")
    assert found["status"] == "fail"
    assert "NoSuchBucket" in found["found"]
