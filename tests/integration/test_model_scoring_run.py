"""`understudy run` with a language model as the rater: a real, tiny one, loaded in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.fork_server import ForkServer
from support.running import copy_tables
from support.tiny_models import tiny_checkpoint

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore
from pipelines.store import Store

pytestmark = [pytest.mark.night, pytest.mark.timeout(3_600)]

SCORING = ("scoring.max_pairs=100", "scoring.judged=20", "scoring.scale=1-5")
#: Tables that the model has a part in; the rest is that of the sample world.
SCORED = tuple(f"movies/{t}" for t in ("score_plan", "preference_scores", "rater_report"))
PUBLISHED = (*SCORED, "movies/population", "releases/movies")


def _run(
    forked: ForkServer, home: Path, model: Path, *select: str, explain: bool = True, **more: str
) -> tuple[int, dict[str, Any]]:
    chosen = {
        "scoring.rater": "llm",
        "scoring.explain": str(explain).lower(),
        "engine.kind": "transformers",
        "engine.model": str(model),
        **more,
    }
    settings = [*SCORING, *(f"{key}={value}" for key, value in chosen.items())]
    result = forked.run(
        *("run", "--job", "movies", "--home", str(home), "--json"),
        *(part for name in select for part in ("--select", name)),
        *(part for setting in settings for part in ("--set", setting)),
    )
    return result.returncode, json.loads(result.stdout)


def _answers(home: Path) -> int:
    with AnswerStore(home, ServingSettings()) as store:
        return store.stats().answers


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose context holds the longest persona, item and reason."""
    folder = tmp_path_factory.mktemp("model")
    return tiny_checkpoint(folder, shape={"max_position_embeddings": 4096})


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory,
    forked: ForkServer,
    published_home: Path,
    tiny_model: Path,
) -> Path:
    folder = copy_tables(published_home, tmp_path_factory.mktemp("asked") / "home")
    code, payload = _run(forked, folder, tiny_model, *PUBLISHED)
    assert code == 0, payload
    return folder


def _scores(home: Path) -> pl.DataFrame:
    return Store(home).current("movies.preference_scores").read()


def test_a_rerun_makes_no_call_and_writes_nothing(
    home: Path, forked: ForkServer, tiny_model: Path
) -> None:
    before, version = _answers(home), Store(home).current("movies.preference_scores").version
    assert before >= 200
    code, payload = _run(forked, home, tiny_model, *SCORED)
    assert code == 0, payload
    assert _answers(home) == before
    assert Store(home).current("movies.preference_scores").version == version


def test_a_replay_of_the_stored_scores_says_what_the_model_said(
    home: Path, forked: ForkServer, tiny_model: Path
) -> None:
    before = _scores(home)
    calls = _answers(home)
    settings = {"scoring.rater": "replay", "engine.kind": "none"}
    _run(forked, home, tiny_model, "movies/preference_scores", explain=False, **settings)
    after = _scores(home)
    assert after["probabilities"].to_list() == before["probabilities"].to_list()
    assert _answers(home) == calls


def test_an_ensemble_of_the_model_and_the_statistical_rater_reports_how_they_disagree(
    home: Path, forked: ForkServer, tiny_model: Path
) -> None:
    members = '[{"rater": "llm"}, {"rater": "statistical"}]'
    settings = {"scoring.rater": "ensemble", "scoring.ensemble": members}
    _run(forked, home, tiny_model, "movies/preference_scores", explain=False, **settings)
    snapshot = Store(home).current("movies.preference_scores")
    scores = snapshot.read()
    assert set(scores["rater"]) == {"ensemble"}
    facts = snapshot.manifest.stats["scoring"]["default"]
    assert 0 < facts["disagreement"] < 1
    assert 0 < facts["spread"] < 4
    # The model's part was asked before.
    assert (facts["calls"], facts["hits"]) == (0, 100)
