"""Jobs on a published release: their tables with contracts, figures, plots and checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from support import dialogue_release, small_release
from support.ablation_release import build_with_series

from orchestration.definitions import build_defs
from pipelines.ablations import CASE_TABLES, CHECKS
from pipelines.store import Store
from sim.dialogue import DialogueWorld
from sim.dialogue.testing import sample_world

DIALOGUE_CHECKS = ("replies_are_readable", "no_leaks", "asking_pays", "oracle_beats_floors")


def run(
    home: Path, job: str, *, assets: list[dg.AssetKey] | None = None, **steps: Any
) -> tuple[dict[str, Any], dict[tuple[str, str], bool]]:
    """Metadata of what a job made by table, and outcomes of its checks by table and name.

    ``steps`` are configurations by the name of the step.
    """
    defs = build_defs(home, executor=dg.in_process_executor)
    with dg.instance_for_test() as instance:
        result = defs.resolve_job_def(job).execute_in_process(
            instance=instance,
            asset_selection=assets,
            run_config={"ops": {name: {"config": config} for name, config in steps.items()}},
        )
        assert result.success
        checks = {
            (c.asset_key.path[-1], c.check_name): c.passed
            for c in result.get_asset_check_evaluations()
        }
    made = {
        e.asset_key.path[-1]: e.step_materialization_data.materialization.metadata
        for e in result.all_events
        if e.is_step_materialization
    }
    return made, checks


@pytest.fixture
def matched_home(tmp_path: Path) -> Path:
    """A home whose release has matched personas."""
    users = [f"ml-user:{n}" for n in range(1, 31)]
    small_release.build(tmp_path, replace=small_release.matched_frames(users))
    return tmp_path


@pytest.mark.night
def test_ablations_make_case_tables_and_scores(tmp_path: Path) -> None:
    build_with_series(tmp_path)
    assets = [dg.AssetKey(["ablations", f"movies_{t}"]) for t in (*CASE_TABLES, "scores")]
    made, checks = run(tmp_path, "ablations", assets=assets)
    assert set(made) == {key.path[-1] for key in assets}
    for table in CASE_TABLES:
        for name in CHECKS[table]:
            assert checks[f"movies_{table}", name]
    shown = made["movies_scores"]
    assert "| statistical (no language model) |" in shown["table"].value
    assert {"scores", "ratings"} <= set(shown)
    assert shown["scores"].value.startswith("![")
    assert checks["movies_scores", "replies_are_readable"]
    assert "statistical_beats_the_baselines" in {name for _, name in checks}
    snapshot = Store(tmp_path).current("ablations.movies_scores")
    # The statistical rater twice more: hand-made personas by text, in our words and in others.
    assert snapshot.rows == (9 + 3 + 3) * 5
    assert set(snapshot.manifest.inputs) == {f"ablations.movies_{t}" for t in CASE_TABLES}


@pytest.mark.pipeline
def test_agents_visit_every_recommender(matched_home: Path) -> None:
    config = {"agents": 40, "recommenders": ["random", "popular"]}
    made, _ = run(matched_home, "simulate", simulate_agents=config)
    assert set(made) == {"agents", "views", "pages", "memories"}
    shown = made["agents"]
    lines = shown["figures"].value.splitlines()
    (row,) = (line for line in lines if line.startswith("| statistical | random |"))
    assert row.endswith("| 40 |"), "every agent is counted"
    assert "assumed.yaml" in shown["figures"].value
    for plot in ("exits_by_page", "ratings", "satisfaction_by_recommender"):
        assert shown[plot].value.startswith("![")
    rows = Store(matched_home).current("simulations.agents").read()
    assert rows["agent"].to_list() == list(range(80))
    # The same person meets both recommenders.
    assert rows["persona_id"][:40].to_list() == rows["persona_id"][40:].to_list()
    assert rows["recommender"].unique().sort().to_list() == ["popular", "random"]


@pytest.mark.night
def test_experiments_store_figures_and_comparisons(matched_home: Path) -> None:
    # The small release has no user with the ten test interactions of a task of 1:1.
    config = {
        "names": ["believability", "distribution"],
        "agents": 30,
        "recommenders": ["random", "popular"],
    }
    made, _ = run(matched_home, "experiments", run_experiments=config)
    assert set(made) == {"figures", "comparisons"}
    shown = made["figures"]
    assert "| statistical | random | statistical |" in shown["distribution"].value
    assert "No figures: 0 people with 10 test interactions" in shown["believability"].value
    assert shown["without_figures"].value == ["believability"]
    assert shown["distribution_ratings"].value.startswith("![")
    rows = Store(matched_home).current("experiments.figures").read()
    assert set(rows["experiment"]) == {"distribution"}
    assert {"people", "baseline", "statistical"} <= set(rows["source"])
    tests = Store(matched_home).current("experiments.comparisons").read()
    assert tests["q"].null_count() == 0
    assert (tests["q"] >= tests["p"]).all()


def dialogues(home: Path, world: DialogueWorld, **config: Any) -> tuple[dict[str, Any], list[bool]]:
    """Checks and metadata that the job of dialogues records for a world."""
    dialogue_release.publish(home, world)
    made, checks = run(home, "dialogues", run_dialogues=config)
    passed = {name: outcome for (_, name), outcome in checks.items()}
    return made, [passed[name] for name in DIALOGUE_CHECKS]


@pytest.mark.night
def test_dialogues_store_tables_plots_and_checks(tmp_path: Path) -> None:
    world = sample_world(sets=16, personas=80)
    made, passed = dialogues(tmp_path, world, suites=["context"], seeds=6, episodes=4)
    assert set(made) == {"episodes", "turns", "report"}
    shown = made["episodes"]
    assert "| dp | on | statistical |" in shown["context"].value
    assert "summaries instead of the dialogues" in shown["context"].value
    assert any(name.startswith("context_") for name in shown)
    assert passed == [True] * 4
    store = Store(tmp_path)
    episodes = store.current("dialogue.episodes").read()
    assert set(episodes["agent"]) >= {"random", "dp", "linear"}
    assert store.current("dialogue.report").read()["figure"].unique().to_list() == ["context"]


@pytest.mark.night
def test_checks_warn_of_scores_without_tastes_and_descriptions_that_say_nothing(
    tmp_path: Path,
) -> None:
    world = sample_world(sets=16, personas=80)
    alike = tuple(
        replace(s, y=np.repeat(s.y.mean(axis=0)[None] + 25, len(s.y), 0).clip(0, 100))
        for s in world.sets
    )
    vague = ("Someone who shops here at times and says no more than that.",)
    changed = replace(world, sets=alike, descriptions=vague * len(world.descriptions))
    _, passed = dialogues(tmp_path, changed, suites=["reasoning"], seeds=6, episodes=2)
    assert passed == [True, True, False, False]
