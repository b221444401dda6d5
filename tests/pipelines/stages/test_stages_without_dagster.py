"""The movies from original files to a published release in plain Python; then once more.

The file is also the program that is run: ``python test_stages_without_dagster.py HOME``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[n]) for n in (3, 2)]

from support import marts

from pipelines import warehouse
from pipelines.domains import DOMAINS
from pipelines.quality import SUITES
from pipelines.stages import STAGES, PipelineContext, Stage, build, check, publish, stage_of
from pipelines.store import Store

pytestmark = pytest.mark.pipeline

TINY = {
    "personas": {"count": 6},
    "world": {"sample": {"films": 30, "users": 40, "ratings": 700}},
}
SOURCES = ("raw.world_files", "raw.movielens_ratings", "raw.tmdb_movies")


def dbt(context: PipelineContext) -> None:
    """Build the movies' models, as any scheduler may."""
    warehouse.link_sources(context.store)
    done = marts.dbt(context.settings, "build", "--select", "tag:movies", "--exclude", "tag:amazon")
    assert done.returncode == 0, done.stdout[-3000:]
    warehouse.record_dbt_run(context.store.home)


def run(context: PipelineContext, *, models: bool) -> dict[str, Any]:
    """All that the release of the movies is made of: versions, and which of them were reused.

    Without ``models``, dbt's are those of the run before.
    """
    datasets = DOMAINS["movies"].datasets()
    later = [s for s in STAGES if set(s.datasets) & set(datasets)]
    reused: dict[str, bool] = {}
    versions: dict[str, str] = {}

    def make(stage: Stage) -> None:
        built = build(stage, context, cohort="default" if stage.by_cohort else None)
        reused[stage.name] = built.reused
        versions.update({d: snapshot.version for d, snapshot in built.snapshots.items()})

    for dataset in SOURCES:
        make(stage_of(dataset))
    if models:
        dbt(context)
    for stage in later:
        make(stage)
    failed = [
        f"{dataset}: {record.name}"
        for dataset in datasets
        if dataset in SUITES
        for record in check(context, dataset) or []
        if record.blocks
    ]
    release, _ = publish(context, DOMAINS["movies"])
    return {
        "reused": reused,
        "versions": versions,
        "failed": failed,
        "release": str(release),
        "orchestrator": sorted({"dagster", "dagster_dbt", "dbt"} & set(sys.modules)),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    home = tmp_path_factory.mktemp("plain") / "home"
    done = subprocess.run(
        [sys.executable, __file__, str(home)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    first, second = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    return home, first, second


def test_chain_runs_without_orchestrator_and_publishes(runs: Any) -> None:
    home, first, _ = runs
    assert first["orchestrator"] == []
    assert first["failed"] == []
    store = Store(home)
    release = store.release("movies@latest")
    assert str(release) == first["release"]
    assert store.verify(release, lineage=True).problems == ()
    assert {lock.dataset for lock in release.tables.values()} == set(DOMAINS["movies"].datasets())


def test_second_run_reuses_every_table(runs: Any) -> None:
    _, first, second = runs
    assert not any(first["reused"].values())
    assert all(second["reused"].values()), second["reused"]
    assert second["versions"] == first["versions"]
    assert second["release"] == first["release"]


if __name__ == "__main__":
    for models in (True, False):
        home = {"runtime": {"home": sys.argv[1]}}
        print(json.dumps(run(PipelineContext({**TINY, **home}), models=models)), flush=True)
