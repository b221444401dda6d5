"""SIGKILL of a whole run at every table's step by name, and disks that fill up, on shared homes.

Each test resumes where the one before it left the home, and is killed at its own step. The first
home was begun by an older version, on a disk of 200 MB where one can be mounted. `make soak` kills
in steps of all domains, each from a fresh home.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.disks import small_disk
from support.fork_server import ForkServer
from support.step_graph import steps_of_job, upstream
from support.steps import StartedRun

from pipelines import warehouse
from pipelines.sources import SOURCES
from pipelines.store import Store

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

#: No smaller than what the older version released: a table that shrinks blocks.
TINY = (
    *("--set", "personas.count=6", "--set", "world.sample.films=30"),
    *("--set", "world.sample.users=40", "--set", "world.sample.ratings=700"),
)
#: A domain from files to release, and every source; the other domains are made by the same
#: functions. Of the check steps and of the marts' steps, each of one function, the first and the
#: last are killed.
CHECKS = [name for name in steps_of_job("movies") if name.startswith("expect_")]
MARTS = [name for name in steps_of_job("movies") if name.replace("_", ".", 1) in warehouse.MARTS]
STEPS = [
    *(n for n in steps_of_job("movies") if n not in {*CHECKS[1:-1], *MARTS[1:-1]}),
    *(n for n in steps_of_job() if n.startswith("ingest_") and n not in steps_of_job("movies")),
]

#: Of these, the kills of `make test-pipeline`: ingest, dbt, score, publish.
NAMED = ("ingest_movielens", "dbt_movies", "movies_preference_scores", "release_movies")


@dataclass
class Chain:
    """A home, the runs on it, and the steps that have ended."""

    home: Path
    server: ForkServer
    #: Folder of what the runs print; not on the disk that is filled up.
    logs: Path
    done: set[str] = field(default_factory=set)

    def start(self, *options: str) -> StartedRun:
        log = self.logs / "run.log"
        words = ["run", "--home", str(self.home), *TINY, *options]
        return StartedRun(self.server.start(words, log), self.home, log)

    def kill_at(self, name: str) -> None:
        """Run what a step needs and is not made yet; kill everything within the step."""
        steps = steps_of_job()
        needed = upstream(steps, name)
        assets = {a for n in {name, *needed} - self.done for a in steps[n].assets}
        run = self.start(*(word for asset in sorted(assets) for word in ("--select", asset)))
        try:
            run.wait_for_step(name)
            if name.startswith("dbt_"):
                run.wait_for_child("dbt")
        finally:
            run.kill()
        assert run.process.wait(1) < 0, run.output()
        self.done |= needed


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, forked: ForkServer) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("kills")
    old = Path(__file__).with_name("data") / "home_without_format.tar.xz"
    with ExitStack() as stack:
        with suppress(pytest.skip.Exception):  # kills need no disk of their own
            folder = stack.enter_context(small_disk(folder / "disk", megabytes=200))
        with tarfile.open(old) as archive:
            archive.extractall(folder, filter="data")
        yield Chain(folder / "home", forked, tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, forked: ForkServer) -> Iterator[Chain]:
    """A fresh home on a disk of 60 MB."""
    with small_disk(tmp_path_factory.mktemp("full") / "disk", megabytes=60) as disk:
        yield Chain(disk / "home", forked, tmp_path_factory.mktemp("logs"))


def assert_whole(home: Path) -> None:
    """Every current table and release is what was committed."""
    store = Store(home)
    for dataset in store.datasets():
        store.current(dataset).verify()
    for release in store.releases():
        assert store.verify(release, lineage=True).problems == ()


@pytest.mark.parametrize(
    "step",
    [step if step in NAMED else pytest.param(step, marks=pytest.mark.night) for step in STEPS],
)
def test_kill_at_step_leaves_whole_tables(chain: Chain, step: str) -> None:
    chain.kill_at(step)
    assert_whole(chain.home)


def test_plain_rerun_after_all_kills_publishes(chain: Chain) -> None:
    run = chain.start("--job", "movies", "--json")
    assert run.process.wait(1_800) == 0, run.output()[-3000:]
    store = Store(chain.home)
    output = run.output()
    (published,) = json.loads(output[output.index("{\n") :])["releases"]
    release = store.release(published["release"])
    assert store.verify(release, lineage=True).problems == ()
    assert store.release("movies@latest") == release
    # The release of the older version is still there and whole.
    assert len(store.releases("movies")) == 2
    assert_whole(chain.home)
    assert not list((chain.home / "_staging").iterdir())


@pytest.mark.night
@pytest.mark.parametrize("megabytes", [0.05, 2.0, 12.0])
def test_disk_that_fills_up_ends_run_with_exit_5(small: Chain, megabytes: float) -> None:
    filler = small.home.with_name("filler")
    state = os.statvfs(filler.parent)
    space = state.f_bavail * state.f_frsize - int(megabytes * 2**20)
    with filler.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, space)
    try:
        run = small.start("--job", "movies")
        assert run.process.wait(1_800) == 5, run.output()
    finally:
        filler.unlink()
    last = run.output().splitlines()[-1]
    assert "no space left on the disk" in last
    assert "bytes are free" in last
    if small.home.exists():
        assert_whole(small.home)
        assert not Store(small.home).releases()


@pytest.mark.night
def test_run_after_space_was_made_publishes_on_60_mb(small: Chain) -> None:
    run = small.start("--job", "movies")
    assert run.process.wait(1_800) == 0, run.output()[-3000:]
    assert Store(small.home).verify("movies@latest", lineage=True).problems == ()
    assert not list((small.home / "_staging").iterdir())


def test_kills_cover_every_registered_source_of_sample_world() -> None:
    # One's own tables are ingested by the same function, and the sample world has none.
    assert {f"ingest_{name}" for name in SOURCES} - {"ingest_own"} <= set(STEPS)
