"""A small real model writes, rates and explains: five personas and fifty pairs to a release."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from support.fork_server import ForkServer
from support.running import copy_tables

from pipelines.personas._gates import text_faults
from pipelines.store import Store

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3_600)]

SETTINGS = (
    "engine.kind=transformers",
    "engine.model=smollm2-135m",
    "personas.count=5",
    "personas.writer=model",
    "personas.style=slots",
    "scoring.rater=llm",
    "scoring.layout=plain",
    "scoring.scale=1-5",
    "scoring.max_pairs=50",
    "scoring.judged=10",
    "scoring.explain=true",
    "scoring.explained=0.1",
)
STEPS = ("personas", "persona_embeddings", "score_plan", "preference_scores", "rater_report")


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory,
    forked: ForkServer,
    published_home: Path,
    small_model: Path,
) -> Path:
    folder = copy_tables(published_home, tmp_path_factory.mktemp("small") / "home")
    settings = [*SETTINGS, f"serving.models={small_model}"]
    names = [f"movies/{step}" for step in (*STEPS, "population")] + ["releases/movies"]
    result = forked.run(
        *("run", "--job", "movies", "--home", str(folder), "--json"),
        *(part for name in names for part in ("--select", name)),
        *(part for setting in settings for part in ("--set", setting)),
    )
    assert result.returncode == 0, json.loads(result.stdout)
    return folder


def test_every_persona_is_described_by_the_model_and_passes_the_gates(home: Path) -> None:
    # Other tests may have added cohorts to the shared home.
    people = Store(home).current("movies.personas").read().filter(cohort="default")
    assert people.height == 5
    assert set(people["writer"]) == {"smollm2-135m"}
    for row in people.iter_rows(named=True):
        assert text_faults(row["description"], row, (), plain=True) == []
        assert row["hobby"] in row["description"]


def test_every_pair_has_a_distribution_and_some_an_explanation(home: Path) -> None:
    scores = Store(home).current("movies.preference_scores").read()
    assert scores.height == 50
    assert set(scores["status"]) == {"ok"}
    assert 0 < 50 - scores["explanation"].null_count() < 25


def test_the_report_has_a_row_of_the_model(home: Path) -> None:
    report = Store(home).current("movies.rater_report").read()
    rows = report.filter(pl.col("predictor").str.starts_with("llm:"), pl.col("metric") == "rmse")
    assert rows["value"].is_finite().all()
    assert rows.height > 0
