"""A rating model trained on the sample world, and `understudy run` with it as the rater."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from support.ask_engine import ask
from support.fork_server import ForkServer
from support.rating_model import (
    SCORED,
    answers_of,
    asked_requests,
    asks_elsewhere,
    score,
    vllm_environment,
)
from support.running import copy_tables

from pipelines.context import PipelineContext
from pipelines.raters import SurrogateModel, SurrogateRater
from pipelines.stages import build, stage_of
from pipelines.store import Store

pytestmark = [pytest.mark.night, pytest.mark.timeout(3_600)]


def _rmse(home: Path, figures: str, predictor: str, slice_: str = "later") -> float:
    metrics = orjson.loads(
        (Store(home).current("movies.rating_model").path / "metrics.json").read_bytes()
    )
    [found] = [
        row["value"]
        for row in metrics[figures]
        if (row["slice"], row["predictor"], row["metric"]) == (slice_, predictor, "rmse")
    ]
    return float(found)


@pytest.mark.parametrize("figures", ["validation", "figures"])
def test_trained_on_the_sample_world_beats_the_item_mean(rating_home: Path, figures: str) -> None:
    """Of test ratings, too (`figures`), which nothing was chosen by; without a history as well."""
    for slice_ in ("later", "no_history"):
        model = _rmse(rating_home, figures, "rating model, calibrated", slice_)
        assert model < _rmse(rating_home, figures, "item mean", slice_)


@pytest.fixture(scope="module")
def scored(rating_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tables(rating_home, tmp_path_factory.mktemp("scored") / "home")


def test_run_scores_by_the_snapshot_and_a_rerun_makes_no_call(
    scored: Path, forked: ForkServer
) -> None:
    code, payload = score(forked, scored, "transformers")
    assert code == 0, payload
    before = _checked(scored)
    code, payload = score(forked, scored, "transformers", SCORED)
    assert code == 0, payload
    assert _checked(scored) == before


def _checked(home: Path) -> tuple[Any, ...]:
    """Version of the scores, and stored answers; the scores are the calibrated model's."""
    store = Store(home)
    scores = store.current("movies.preference_scores")
    rows = scores.read()
    version = store.current("movies.rating_model").version
    assert set(rows["rater"]) == {f"llm:movies.rating_model@{version}"}
    assert set(rows["status"]) == {"ok"}
    assert rows.height == 400
    report = store.current("movies.rater_report").read()
    own = report.filter(pl.col("predictor").str.starts_with("llm:"), pl.col("metric") == "rmse")
    assert own.height
    return scores.version, answers_of(home)


def test_surrogate_of_the_rating_model_says_that_its_teacher_is_a_language_model(
    scored: Path, forked: ForkServer
) -> None:
    """It is none itself; 400 answers are too few for figures."""
    assert score(forked, scored, "transformers")[0] == 0
    context = PipelineContext({"runtime": {"home": str(scored)}})
    built = build(stage_of("movies.rating_surrogate"), context)
    rater = SurrogateRater(SurrogateModel.load(built.snapshots["movies.rating_surrogate"].path))
    teacher = rater.metadata()["teacher"]
    assert rater.name == f"surrogate:{teacher['rater']}"
    assert teacher["rater"].startswith("llm:movies.rating_model@")
    assert teacher["language_model"]
    assert not rater.language_model


@pytest.fixture(scope="module")
def vllm_python() -> Path:
    """Python of the environment that has vLLM."""
    found = vllm_environment()
    if found is None:
        pytest.skip("there is no environment with vLLM: `make test-vllm`")
    return found


def test_vllm_and_its_server_give_the_distributions_of_transformers(
    rating_home: Path, vllm_python: Path, tmp_path: Path
) -> None:
    """Of test ratings behind their histories, in float32, to 1e-4."""
    model, requests = asked_requests(rating_home, 200)
    task = {"model": model, "home": str(rating_home), "requests": requests}
    serving = {"device": "cpu", "vllm_python": str(vllm_python), "kv_cache_gib": 0.25}
    found = {
        "transformers": ask({**task, "kind": "transformers", "serving": serving}),
        "vllm": asks_elsewhere(
            vllm_python, {**task, "kind": "vllm", "serving": {"kv_cache_gib": 0.25}}, tmp_path
        ),
        "vllm_server": ask({**task, "kind": "vllm_server", "serving": serving}),
    }
    ours = np.array(found["transformers"]["probabilities"])
    assert ours.shape == (200, 10)
    for name, other in found.items():
        assert set(other["status"]) == {"ok"}, name
        assert np.abs(np.array(other["probabilities"]) - ours).max() < 1e-4, name
        assert np.min(other["mass"]) > 0.9, name


def test_vllm_run_scores_by_the_snapshot_and_a_rerun_makes_no_call(
    rating_home: Path, forked: ForkServer, vllm_python: Path, tmp_path: Path
) -> None:
    home = copy_tables(rating_home, tmp_path / "home")
    more = {"serving.vllm_python": str(vllm_python), "serving.kv_cache_gib": "0.25"}
    code, payload = score(forked, home, "vllm_server", **more)
    assert code == 0, json.dumps(payload)
    before = _checked(home)
    code, payload = score(forked, home, "vllm_server", SCORED, **more)
    assert code == 0, payload
    assert _checked(home) == before
