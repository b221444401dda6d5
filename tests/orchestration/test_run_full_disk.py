"""Full disks and file size limits that Dagster's, dbt's or DuckDB's files meet first."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from support import disks
from support.fork_server import ForkServer
from support.steps import SMALL, start_run

from orchestration.definitions import build_defs
from orchestration.instance import end_dead_runs, open_instance
from pipelines.errors import StoreError
from pipelines.store.files import full_disk_error, full_disk_errors

pytestmark = pytest.mark.faults


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    with disks.small_disk(tmp_path / "disk", megabytes=2) as disk:
        yield disk


def fill(disk: Path) -> None:
    """Take all space of the disk."""
    state = os.statvfs(disk)
    (disk / "filler").write_bytes(b"\0" * (state.f_bavail * state.f_frsize))


#: Writes of more than 100 kB below `folder`.
LARGE_WRITES = {
    "dagster": "with open_instance(folder): pass",
    "sqlite": "sqlite3.connect(folder / 'db').executescript("
    "'create table t(x); insert into t values (zeroblob(1000000));')",
    "duckdb": "duckdb.connect(str(folder / 'duck')).execute("
    "'create table t as select hash(i) as x from range(1000000) r(i)').execute('checkpoint')",
    "file": "(folder / 'file').write_bytes(bytes(1_000_000))",
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder, and how `full_disk_errors` names each write of a program limited to 100 kB."""
    folder = tmp_path_factory.mktemp("limited")
    code = f"""
import json, resource
from collections.abc import Iterator
from pathlib import Path
from pipelines.errors import StoreError
from pipelines.store.files import full_disk_errors
import duckdb, sqlite3
import dagster as dg
from orchestration.definitions import build_defs
from orchestration.instance import open_instance
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
folder, named = Path({str(folder)!r}), {{}}
for name, write in {LARGE_WRITES!r}.items():
    try:
        with full_disk_errors(folder):
            exec(write)
    except StoreError as error:
        named[name] = str(error)
print(json.dumps(named))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.parametrize("write", LARGE_WRITES)
def test_file_size_limit_is_store_error_whoever_meets_it(
    write: str, limited: tuple[Path, dict[str, str]]
) -> None:
    folder, named = limited
    assert named[write].startswith(f"the file size limit is reached: {folder}")
    assert "bytes are free" in named[write]


@pytest.mark.pipeline
def test_disk_that_fills_within_a_step_is_named_and_the_next_run_succeeds(
    small_disk: Path,
) -> None:
    filling = [True, False]

    @dg.op
    def fills() -> None:
        if filling.pop(0):
            fill(small_disk)

    @dg.job
    def job() -> None:
        fills()

    with open_instance(small_disk) as instance:
        with (
            pytest.raises(StoreError, match="no space left on the disk"),
            full_disk_errors(small_disk),
        ):
            job.execute_in_process(instance=instance, raise_on_error=False)
        (small_disk / "filler").unlink()
        assert len(end_dead_runs(instance)) == 1
        assert job.execute_in_process(instance=instance).success


def test_other_faults_are_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    assert full_disk_error("no such table: runs", tmp_path) is None
    assert full_disk_error(FileNotFoundError(errno.ENOENT, "gone"), tmp_path) is None
    with pytest.raises(ZeroDivisionError), full_disk_errors(tmp_path):
        raise ZeroDivisionError


@pytest.mark.night
@pytest.mark.parametrize(
    ("limit", "where"),
    [
        pytest.param(100_000, "", id="Dagster's log meets it"),
        pytest.param(1_600_000, "dbt_movies: ", id="dbt meets it", marks=pytest.mark.night),
    ],
)
def test_run_under_a_file_size_limit_ends_with_the_code_of_the_store(
    forked: ForkServer, tmp_path: Path, limit: int, where: str
) -> None:
    # Up to the marts of a world whose tables outgrow the log, as that of longer runs does them.
    larger = ("--set", "world.sample.films=200", "--set", "world.sample.users=400")
    larger += ("--set", "world.sample.ratings=20000")
    job = build_defs().get_repository_def().get_job("movies")
    keys = [key.to_user_string() for key in job.asset_layer.executable_asset_keys]
    built = ("raw/", "staging/", "intermediate/", "marts/")
    chosen = (part for key in keys if key.startswith(built) for part in ("--select", key))
    run = start_run(forked, tmp_path / "home", *SMALL, *larger, *chosen, file_size=limit)
    assert run.process.wait(1_800) == 5
    assert f"error: {where}the file size limit is reached" in run.output()
    assert "Traceback" not in run.output()
