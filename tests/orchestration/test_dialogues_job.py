"""The job `dialogues` on a published release: its tables, plots and checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from support.dialogue_release import publish

from orchestration.definitions import build_defs
from pipelines.store import Store
from sim.dialogue import DialogueWorld
from sim.dialogue.testing import sample_world

pytestmark = pytest.mark.night

CHECKS = ("replies_are_readable", "no_leaks", "asking_pays", "oracle_beats_floors")


def run(home: Path, world: DialogueWorld, **config: Any) -> tuple[dict[str, Any], dict[str, bool]]:
    """Materialisations by table, and whether each check of the job passed."""
    publish(home, world)
    job = build_defs(home, executor=dg.in_process_executor).resolve_job_def("dialogues")
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
    passed = {
        e.asset_check_evaluation_data.check_name: e.asset_check_evaluation_data.passed
        for e in result.all_events
        if e.event_type_value == "ASSET_CHECK_EVALUATION"
    }
    return made, {name: passed[name] for name in CHECKS}


def test_job_stores_tables_plots_and_checks(tmp_path: Path) -> None:
    world = sample_world(sets=16, personas=80)
    made, passed = run(tmp_path, world, suites=["context"], seeds=6, episodes=4)
    assert set(made) == {"episodes", "turns", "report"}
    shown = made["episodes"].metadata
    assert "| dp | on | statistical |" in shown["context"].value
    assert "summaries instead of the dialogues" in shown["context"].value
    assert any(name.startswith("context_") for name in shown)
    assert passed == dict.fromkeys(CHECKS, True)
    store = Store(tmp_path)
    episodes = store.current("dialogue.episodes").read()
    assert set(episodes["agent"]) >= {"random", "dp", "linear"}
    assert store.current("dialogue.report").read()["figure"].unique().to_list() == ["context"]


def test_checks_warn_of_scores_without_tastes_and_descriptions_that_say_nothing(
    tmp_path: Path,
) -> None:
    world = sample_world(sets=16, personas=80)
    alike = tuple(
        replace(s, y=np.repeat(s.y.mean(axis=0)[None] + 25, len(s.y), 0).clip(0, 100))
        for s in world.sets
    )
    told = tuple(
        "Someone who shops here at times and says no more than that." for _ in world.descriptions
    )
    _, passed = run(
        tmp_path, replace(world, sets=alike, descriptions=told), suites=["reasoning"], seeds=6,
        episodes=2,
    )  # fmt: skip
    assert passed == dict(zip(CHECKS, (True, True, False, False), strict=True))
