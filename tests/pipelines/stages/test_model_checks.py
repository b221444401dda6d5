"""Models are checked before the first step that needs one later."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.llm_api import NAME
from support.llm_server import LlmServer

from pipelines.config import Settings, load_settings
from pipelines.errors import ConfigError, EngineError, UnderstudyError
from pipelines.stages import STAGES, PipelineContext, build, check_models, stage_of
from pipelines.store import Store

MOVIES = [stage for stage in STAGES if stage.domain == "movies"]
#: No server listens there.
DEAD = {"serving": {"base_url": "http://127.0.0.1:9/v1", "retries": 0}}


def tree(home: Path, **sections: Any) -> Settings:
    return load_settings(None, {"runtime": {"home": str(home)}, **sections}, {})


def check(settings: Settings, cohort: str = "default") -> None:
    check_models(MOVIES, Store(settings.runtime.home), settings, cohort)


@pytest.mark.parametrize(
    "sections",
    [
        {"scoring": {"rater": "llm"}},
        {"personas": {"writer": "model"}},
        {"matching": {"method": "model"}},
        {"scoring": {"rater": "ensemble", "ensemble": [{"rater": "llm"}, {"rater": "mean"}]}},
    ],
    ids=["rater", "writer", "matcher", "ensemble"],
)
def test_missing_engine_is_reported_for_every_use(sections: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no language model is configured"):
        check(tree(tmp_path, **sections))


def test_run_without_a_model_checks_none(tmp_path: Path) -> None:
    check(tree(tmp_path, engine={"kind": "openai", "model": "gone"}, **DEAD))


def test_cohort_that_no_model_writes_needs_none(tmp_path: Path) -> None:
    settings = tree(tmp_path, personas={"writer": "model"})
    check(settings, "handmade")
    check(settings, "books")
    with pytest.raises(ConfigError):
        check(tree(tmp_path, personas={"reader": "model"}), "imported")


@pytest.mark.parametrize(
    ("engine", "error", "says"),
    [
        ({"kind": "openai", "model": "x"}, EngineError, "127.0.0.1:9"),
        ({"kind": "transformers", "model": "no-such-model"}, ConfigError, "no-such-model"),
        ({"kind": "transformers", "model": "/no/such/folder"}, ConfigError, "no such folder"),
        ({"kind": "transformers"}, ConfigError, "needs a model"),
    ],
    ids=["dead server", "unknown model", "missing folder", "no model"],
)
def test_unusable_engine_is_reported(
    engine: dict[str, str], error: type[UnderstudyError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        check(tree(tmp_path, scoring={"rater": "llm"}, engine=engine, **DEAD))


def test_stored_cohort_of_the_same_model_is_not_checked_again(tmp_path: Path) -> None:
    written = {"writer": "model", "count": 2, "gates": "none"}
    settings = tree(tmp_path, personas=written, engine={"kind": "scripted"})
    context = PipelineContext.of(Store(tmp_path), settings)
    build(stage_of("movies.personas"), context, cohort="default")
    before = settings.engine
    gone = settings.model_copy(update={"engine": before.model_copy(update={"kind": "openai"})})
    check(settings)
    with pytest.raises(ConfigError, match="needs a model"):
        check(gone)


@pytest.mark.pipeline
def test_checkpoint_on_disk_is_read_before_the_run(tiny_model: Path, tmp_path: Path) -> None:
    def settings(model: Path) -> Settings:
        engine = {"kind": "transformers", "model": str(model)}
        return tree(tmp_path, scoring={"rater": "llm"}, engine=engine)

    check(settings(tiny_model))
    torn = tmp_path / "torn"
    shutil.copytree(tiny_model, torn)
    weights = next(torn.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(EngineError, match="the weights can't be read"):
        check(settings(torn))
    weights.unlink()
    with pytest.raises(EngineError, match=r"no \.safetensors file"):
        check(settings(torn))


@pytest.mark.pipeline
def test_server_without_probabilities_is_refused_for_ratings_alone(
    tiny_model: Path, tmp_path: Path
) -> None:
    with LlmServer(tiny_model, "ollama") as server:
        engine = {"engine": {"kind": "openai", "model": NAME}}
        serving = {"serving": {"base_url": server.url}}
        with pytest.raises(EngineError, match=r"can't be asked for ratings.*draws"):
            check(tree(tmp_path, scoring={"rater": "llm"}, **engine, **serving))
        check(tree(tmp_path, personas={"writer": "model"}, **engine, **serving))
