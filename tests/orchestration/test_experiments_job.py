"""The job `experiments`: figures and comparisons with their contracts, tables and plots."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from support import small_release

from orchestration.definitions import build_defs
from pipelines.store import Store

pytestmark = pytest.mark.night


def test_the_job_stores_figures_and_comparisons(tmp_path: Path) -> None:
    users = [f"ml-user:{n}" for n in range(1, 31)]
    small_release.build(tmp_path, replace=small_release.matched_frames(users))
    job = build_defs(tmp_path, executor=dg.in_process_executor).resolve_job_def("experiments")
    # The small release has no user with the ten test interactions of a task of 1:1.
    config = {
        "names": ["believability", "distribution"],
        "agents": 30,
        "recommenders": ["random", "popular"],
    }
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(
            instance=instance, run_config={"ops": {"run_experiments": {"config": config}}}
        )
    assert result.success
    made = {
        e.asset_key.path[-1]: e.step_materialization_data.materialization
        for e in result.all_events
        if e.is_step_materialization
    }
    assert set(made) == {"figures", "comparisons"}
    shown = made["figures"].metadata
    assert "| statistical | random | statistical |" in shown["distribution"].value
    assert "No figures: 0 people with 10 test interactions" in shown["believability"].value
    assert shown["without_figures"].value == ["believability"]
    assert shown["distribution_ratings"].value.startswith("![")
    rows = Store(tmp_path).current("experiments.figures").read()
    assert set(rows["experiment"]) == {"distribution"}
    assert {"people", "baseline", "statistical"} <= set(rows["source"])
    tests = Store(tmp_path).current("experiments.comparisons").read()
    assert tests["q"].null_count() == 0
    assert (tests["q"] >= tests["p"]).all()
