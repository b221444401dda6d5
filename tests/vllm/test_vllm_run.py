"""`understudy run` in the environment of vLLM: from files to a release that vLLM scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.running import run_understudy
from support.tiny_models import tiny_checkpoint

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore
from pipelines.store import Store

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3_600)]

SETTINGS = {
    "world.sample.films": 40,
    "world.sample.users": 40,
    "world.sample.ratings": 1200,
    "personas.count": 5,
    "scoring.rater": "llm",
    "scoring.scale": "1-5",
    "scoring.max_pairs": 50,
    "scoring.judged": 10,
    "engine.kind": "vllm",
    "serving.kv_cache_gib": 0.125,
    "serving.window": 16,
}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory, word_encoder: Path) -> dict[str, Any]:
    """Settings, with a tiny model whose context holds the longest prompt."""
    model = tiny_checkpoint(
        tmp_path_factory.mktemp("model"), shape={"max_position_embeddings": 4096}
    )
    return SETTINGS | {"engine.model": model, "embedding.model": word_encoder}


def _run(understudy: Path, home: Path, options: dict[str, Any]) -> dict[str, Any]:
    result = run_understudy(
        understudy,
        *("run", "--job", "movies", "--home", str(home), "--json"),
        *(part for key, value in options.items() for part in ("--set", f"{key}={value}")),
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3_000:]
    payload: dict[str, Any] = json.loads(result.stdout)
    return payload


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory, understudy: Path, options: dict[str, Any]
) -> Path:
    folder = tmp_path_factory.mktemp("run") / "home"
    _run(understudy, folder, options)
    return folder


def _answers(home: Path) -> int:
    with AnswerStore(home, ServingSettings()) as store:
        return store.stats().answers


def test_release_holds_vllms_distribution_of_every_planned_pair(home: Path) -> None:
    release = Store(home).release("movies@latest")
    stored = release.snapshot("preference_scores")
    scores = stored.read()
    assert scores.height == 50
    assert set(scores["status"]) == {"ok"}
    assert scores["probabilities"].list.len().unique().to_list() == [5]
    # Distributions of the model: hardly two pairs have the same.
    assert scores["expected"].n_unique() > 30
    assert stored.manifest.stats["quality"]["facts"]["engine"]["engine"] == "vllm"


def test_rerun_asks_nothing_and_publishes_the_same_release(
    home: Path, understudy: Path, options: dict[str, Any]
) -> None:
    release, asked = str(Store(home).release("movies@latest")), _answers(home)
    assert asked >= 50
    again = _run(understudy, home, options)
    assert _answers(home) == asked
    assert [r["release"] for r in again["releases"]] == [release]
