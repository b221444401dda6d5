"""Scores of a cohort by two Ray nodes, of which one after the other is killed, are those of one
process."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.config import load_settings
from pipelines.context import PipelineContext
from pipelines.raters import CohortScores
from pipelines.stages import STAGES, build, s70_scores
from pipelines.store import Store

pytestmark = [pytest.mark.pipeline, pytest.mark.faults]

DATASET = "movies.preference_scores"
#: Another seed than the published one: nothing is scored yet.
SCORING = {"seed": 77, "max_pairs": 50_000}
#: Parts that are finished before a node is killed (counts), of some forty.
FINISHED = (10, 20)


def stage(dataset: str) -> Any:
    (found,) = (s for s in STAGES if s.datasets == (dataset,))
    return found


def scored(home: Path | str, **execution: Any) -> tuple[list[str], dict[str, Any]]:
    """Score a plan; hashes of the table's files, and what was reported."""
    overrides = {"runtime": {"home": str(home)}, "scoring": SCORING, "execution": execution}
    context = PipelineContext.of(Store(home), load_settings(overrides=overrides))
    build(stage("movies.score_plan"), context, cohort="default")
    built = build(stage(DATASET), context, cohort="default")
    files = built.snapshots[DATASET].manifest.files
    return [entry.sha256 for entry in files], built.report.cohort_stats


def similar(home: Path, **execution: Any) -> str:
    """Version of a table of other similar items than the published one."""
    overrides = {"runtime": {"home": str(home)}, "graph": {"alpha": 0.7}, "execution": execution}
    context = PipelineContext.of(Store(home), load_settings(overrides=overrides))
    built = build(stage("movies.item_similarity"), context)
    assert not built.reused
    return built.snapshots["movies.item_similarity"].version


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """Cut the cohort into some forty parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s70_scores, "_PROBABILITIES", 10_000)
        yield


@pytest.fixture(scope="module")
def home_alone(published_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose tables are made in this process."""
    home = tmp_path_factory.mktemp("alone") / "home"
    shutil.copytree(published_home, home)
    return home


@pytest.fixture(scope="module")
def alone(home_alone: Path) -> list[str]:
    return scored(home_alone)[0]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster whose nodes are added by the test; its head runs no piece."""
    ray = pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from ray.cluster_utils import Cluster

    # Nodes are added by a thread, which may set no handler of a signal.
    monkeypatch.setattr(ray._private.utils, "set_sigterm_handler", lambda _: None)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield made
    made.shutdown()


class Killer(threading.Thread):
    """Kills the first of two nodes at two moments, and adds another."""

    def __init__(self, cluster: Any) -> None:
        super().__init__(daemon=True)
        self.finished = 0
        self.cluster, self.nodes = cluster, [cluster.add_node(num_cpus=1) for _ in range(2)]
        self.killed: list[int] = []
        self._kept = threading.Event()

    def run(self) -> None:
        self.kill_all()
        # Ray's processes end with the thread that started them.
        self._kept.wait()

    def end(self) -> None:
        """Let the nodes go."""
        self._kept.set()
        self.join(60)

    def kill_all(self) -> None:
        for count in FINISHED:
            self.wait(lambda count=count: self.finished >= count)
            self.kill(self.finished)

    def count(self, rows: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """Count the parts that the driver has got."""

        def counted(*args: Any) -> Iterator[Any]:
            for frame in rows(*args):
                self.finished += 1
                yield frame

        return counted

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; a test that ends before it has fewer kills."""
        while not condition():
            if self._kept.is_set():
                sys.exit()  # ends the thread only
            time.sleep(0.002)

    def kill(self, finished: int) -> None:
        """Kill a node when so many parts are there; the other one's workers stand still."""
        lost, other = self.nodes
        (raylet,) = other.all_processes["raylet"]
        workers = []
        for child in psutil.Process(raylet.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if {"ray::_run", "ray::IDLE"} & {*child.cmdline()}:
                    child.suspend()
                    workers.append(child)
        # Both would be done with everything before a new node is there.
        self.cluster.remove_node(lost, allow_graceful=False)
        self.killed.append(finished)
        self.nodes = [other, self.cluster.add_node(num_cpus=1)]
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.resume()


def test_nodes_that_are_killed_while_they_score_cost_no_pair_and_change_no_byte(
    published_home: Path,
    home_alone: Path,
    tmp_path: Path,
    alone: list[str],
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(published_home, tmp_path / "home")
    killer = Killer(cluster)
    monkeypatch.setattr(CohortScores, "rows", killer.count(CohortScores.rows))
    killer.start()
    nodes = {"executor": "ray", "address": cluster.address, "max_rounds": 12}
    hashes, told = scored(tmp_path / "home", **nodes)
    version = similar(tmp_path / "home", **nodes)
    killer.end()
    assert len(killer.killed) == 2
    assert version == similar(home_alone)
    assert hashes == alone
    assert told["scoring"]["statuses"] == {"ok": told["scoring"]["pairs"]}
    assert told["scoring"]["scored_now"] == told["scoring"]["pairs"]
    assert killer.finished > FINISHED[-1]
