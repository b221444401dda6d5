"""Scores of a cohort by two Ray nodes, one of which is killed, are those of one process."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import load_settings
from pipelines.context import PipelineContext
from pipelines.stages import STAGES, build
from pipelines.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.faults]

DATASET = "movies.preference_scores"
#: Another seed than the published one: nothing is scored yet.
SCORING = {"seed": 77, "shards": 24}


def scored(home: Path, **execution: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Score the published plan; bytes of the table's files, and what was reported."""
    overrides = {"runtime": {"home": str(home)}, "scoring": SCORING, "execution": execution}
    context = PipelineContext.of(Store(home), load_settings(overrides=overrides))
    (plan,) = (s for s in STAGES if s.datasets == ("movies.score_plan",))
    (stage,) = (s for s in STAGES if s.datasets == (DATASET,))
    build(plan, context, cohort="default")
    built = build(stage, context, cohort="default")
    parts = built.snapshots[DATASET].path.glob("*.parquet")
    return {p.name: p.read_bytes() for p in sorted(parts)}, built.report.cohort_stats


@pytest.fixture(scope="module")
def alone(published_home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    home = tmp_path_factory.mktemp("alone") / "home"
    shutil.copytree(published_home, home)
    return scored(home)[0]


def test_a_node_that_is_killed_while_it_scores_costs_no_pair_and_changes_no_byte(
    published_home: Path, tmp_path: Path, alone: dict[str, bytes]
) -> None:
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from ray.cluster_utils import Cluster

    shutil.copytree(published_home, tmp_path / "home")
    scratch = tmp_path / "home" / "scratch" / DATASET / "default"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    lost = cluster.add_node(num_cpus=1)
    killed: list[int] = []

    def kill() -> None:
        # As soon as some parts are there and the others are not.
        while len(parts := list(scratch.glob("*.parquet"))) < 4:
            time.sleep(0.01)
        cluster.remove_node(lost, allow_graceful=False)
        killed.append(len(parts))

    killer = threading.Thread(target=kill, daemon=True)
    try:
        killer.start()
        files, told = scored(tmp_path / "home", executor="ray", address=cluster.address)
        killer.join(60)
    finally:
        cluster.shutdown()
    assert killed
    assert killed[0] < SCORING["shards"]
    assert files == alone
    assert told["scoring"]["statuses"] == {"ok": told["scoring"]["pairs"]}
    assert told["scoring"]["scored_now"] == told["scoring"]["pairs"]
    assert not scratch.exists()
