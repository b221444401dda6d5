"""The job `dialogues`: three tables with their contracts, plots and checks."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from support import small_release

import sim.stages
from orchestration.definitions import build_defs
from pipelines.store import Store
from sim.dialogue import Book
from sim.dialogue.testing import sample_book

pytestmark = pytest.mark.slow


def test_job_stores_tables_plots_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_release.build(tmp_path)
    monkeypatch.setattr(sim.stages, "release_name", lambda *_: "movies")
    book = sample_book(sets=16, personas=80)
    monkeypatch.setattr(Book, "open", classmethod(lambda *_: book), raising=False)
    job = build_defs(tmp_path, executor=dg.in_process_executor).resolve_job_def("dialogues")
    config = {"suites": ["context"], "seeds": 6, "episodes": 4}
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(
            instance=instance, run_config={"ops": {"run_dialogues": {"config": config}}}
        )
    assert result.success
    made = {
        e.asset_key.path[-1]: e.step_materialization_data.materialization
        for e in result.all_events
        if e.is_step_materialization
    }
    assert set(made) == {"episodes", "turns", "report"}
    shown = made["episodes"].metadata
    assert "| dp | on | statistical |" in shown["context"].value
    assert any(name.startswith("context_") for name in shown)
    passed = {
        e.asset_check_evaluation_data.check_name: e.asset_check_evaluation_data.passed
        for e in result.all_events
        if e.event_type_value == "ASSET_CHECK_EVALUATION"
    }
    own = ("replies_are_readable", "no_leaks", "asking_pays", "oracle_beats_floors")
    assert {name: passed[name] for name in own} == dict.fromkeys(own, True)
    episodes = Store(tmp_path).current("dialogue.episodes").read()
    assert set(episodes["agent"]) >= {"random", "dp", "linear"}
    assert Store(tmp_path).current("dialogue.report").read()["figure"].unique().to_list() == [
        "context"
    ]
