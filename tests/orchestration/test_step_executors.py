"""Executors of steps by `runtime.executor`, and what they do not run at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.definitions import build_defs
from orchestration.naming import MODEL_TAG

FORKED_STEPS = """
import json, multiprocessing, os, sys
from orchestration._interrupts import start_fork_server
from orchestration.definitions import PRELOAD, SOURCE, shared_defs

def step(answers, source):
    shared_defs(*source)
    answers.put(shared_defs.cache_info().misses)

if __name__ == "__main__":
    own, other = json.loads(sys.argv[1])
    start_fork_server(PRELOAD, {SOURCE: json.dumps(own)})
    context = multiprocessing.get_context("forkserver")
    answers = context.SimpleQueue()
    for source in (own, own, other):
        process = context.Process(target=step, args=(answers, source))
        process.start()
        process.join()
    print(json.dumps([answers.get() for _ in range(3)] + [SOURCE in os.environ]))
"""


def job(home: Path, **settings: Any) -> dg.JobDefinition:
    defs = build_defs(home, overrides=settings)
    return defs.resolve_job_def("movies")


@pytest.mark.parametrize(
    ("setting", "executor"),
    [("auto", "multiprocess"), ("multiprocess", "multiprocess"), ("in_process", "in_process")],
)
def test_setting_names_the_executor_of_launched_runs(
    tmp_path: Path, setting: str, executor: str
) -> None:
    found = job(tmp_path, runtime={"executor": setting})
    assert found.executor_def.name == executor
    dg.validate_run_config(found)


@pytest.mark.parametrize(("rater", "limits"), [("statistical", 0), ("llm", 1)])
def test_steps_that_load_a_model_run_one_at_a_time(tmp_path: Path, rater: str, limits: int) -> None:
    found = job(tmp_path, runtime={"processes": 3}, scoring={"rater": rater})
    resolved = found.executor_def.apply_config_mapping({"config": {}}).value["config"]
    assert resolved["max_concurrent"] == 3
    assert len(resolved["tag_concurrency_limits"]) == limits
    tagged = {node.name for node in found.nodes if MODEL_TAG in node.definition.tags}
    assert tagged == {
        *("movies_personas", "movies_item_embeddings", "movies_persona_embeddings"),
        "movies_preference_scores",
    }


@pytest.mark.pipeline
def test_forked_steps_inherit_the_definitions_of_their_settings(tmp_path: Path) -> None:
    script = tmp_path / "steps.py"
    script.write_text(FORKED_STEPS, encoding="utf-8")
    homes = [[json.dumps({"runtime": {"home": str(tmp_path / name)}}), None] for name in "ab"]
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(homes)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    # The server built its own once; other settings are built by the step.
    assert json.loads(done.stdout) == [1, 1, 2, False]
