"""The job `simulate`: tables of visits with their contracts, figures and plots."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from support import small_release

from orchestration.definitions import build_defs
from pipelines.store import Store

pytestmark = pytest.mark.pipeline


def test_the_job_plays_agents_on_every_recommender(tmp_path: Path) -> None:
    users = [f"ml-user:{n}" for n in range(1, 31)]
    small_release.build(tmp_path, replace=small_release.matched_frames(users))
    job = build_defs(tmp_path, executor=dg.in_process_executor).resolve_job_def("simulate")
    config = {"agents": 40, "recommenders": ["random", "popular"]}
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(
            instance=instance, run_config={"ops": {"simulate_agents": {"config": config}}}
        )
    assert result.success
    made = {
        e.asset_key.path[-1]: e.step_materialization_data.materialization
        for e in result.all_events
        if e.is_step_materialization
    }
    assert set(made) == {"agents", "views", "pages", "memories"}
    shown = made["agents"].metadata
    lines = shown["figures"].value.splitlines()
    (row,) = (line for line in lines if line.startswith("| statistical | random |"))
    assert row.endswith("| 40 |"), "every agent is counted"
    assert "assumed.yaml" in shown["figures"].value
    for plot in ("exits_by_page", "ratings", "satisfaction_by_recommender"):
        assert shown[plot].value.startswith("![")
    rows = Store(tmp_path).current("simulations.agents").read()
    assert rows["agent"].to_list() == list(range(80))
    # The same person meets both recommenders.
    assert rows["persona_id"][:40].to_list() == rows["persona_id"][40:].to_list()
    assert rows["recommender"].unique().sort().to_list() == ["popular", "random"]
