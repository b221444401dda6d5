"""The job of the ablation suites: case tables with checks, scores with a table and plots."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from support.ablation_release import build_with_series

from orchestration.definitions import build_defs
from pipelines.ablations import CASE_TABLES, CHECKS
from pipelines.store import Store

pytestmark = pytest.mark.night


def test_the_job_makes_case_tables_and_scores(tmp_path: Path) -> None:
    build_with_series(tmp_path)
    defs = build_defs(tmp_path, executor=dg.in_process_executor)
    job = defs.resolve_job_def("ablations")
    wanted = [dg.AssetKey(["ablations", f"movies_{t}"]) for t in (*CASE_TABLES, "scores")]
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(instance=instance, asset_selection=wanted)
        assert result.success
        made = {
            e.asset_key: e.step_materialization_data.materialization
            for e in result.all_events
            if e.is_step_materialization
        }
        assert set(made) == set(wanted)
        checks = {
            (c.asset_key.path[-1], c.check_name): c.passed
            for c in result.get_asset_check_evaluations()
        }
    for table in CASE_TABLES:
        for name in CHECKS[table]:
            assert checks[f"movies_{table}", name]
    shown = made[dg.AssetKey(["ablations", "movies_scores"])].metadata
    assert "| statistical (no language model) |" in shown["table"].value
    assert {"scores", "ratings"} <= set(shown)
    assert shown["scores"].value.startswith("![")
    assert checks["movies_scores", "replies_are_readable"]
    assert "statistical_beats_the_baselines" in {name for _, name in checks}
    snapshot = Store(tmp_path).current("ablations.movies_scores")
    # The statistical rater twice more: hand-made personas by text, in our words and in others.
    assert snapshot.rows == (9 + 3 + 3) * 5
    assert set(snapshot.manifest.inputs) == {f"ablations.movies_{t}" for t in CASE_TABLES}
