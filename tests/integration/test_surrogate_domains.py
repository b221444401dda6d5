"""Surrogates of the scores of every domain that people rate in."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.running import copy_tables

from orchestration.cli import plan_jobs
from pipelines.config import load_settings
from pipelines.context import PipelineContext
from pipelines.contracts import SURROGATE_DOMAINS
from pipelines.raters import SurrogateModel
from pipelines.stages import build, stage_of
from pipelines.store import Store

pytestmark = [pytest.mark.night, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def home(published_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tables(published_home, tmp_path_factory.mktemp("taught") / "home")


@pytest.mark.parametrize("domain", SURROGATE_DOMAINS)
def test_surrogate_of_a_domain_beats_the_floors_of_personas_that_it_was_taught(
    home: Path, domain: str
) -> None:
    """Of untaught ones the default teacher's draws are unknown: ten of these prove nothing."""
    context = PipelineContext({"runtime": {"home": str(home)}})
    built = build(stage_of(f"{domain}.rating_surrogate"), context)
    fidelity = built.snapshots[f"{domain}.surrogate_fidelity"].read().filter(figure="rmse")
    rows = {row["kind"]: row for row in fidelity.iter_rows(named=True)}
    assert len(rows) == 4
    for item in ("seen item", "unseen item"):
        row = rows[f"seen persona, {item}"]
        assert row["value"] < 0.5 * row["floor"]
        assert row["difference_high"] < 0
    model = SurrogateModel.load(built.snapshots[f"{domain}.rating_surrogate"].path)
    assert model.metadata["teacher"]["rater"] == "statistical"


def _planned(home: Path) -> set[str]:
    plan = plan_jobs("train_surrogate", load_settings(overrides={"runtime": {"home": str(home)}}))
    return {name.partition("/")[0] for run in plan.jobs for name in run.select}


def test_job_is_of_the_domains_whose_scores_are_stored(home: Path, tmp_path: Path) -> None:
    """Of an empty store it is of all, so that the run says what is missing."""
    assert _planned(home) == set(SURROGATE_DOMAINS)
    assert _planned(tmp_path / "empty") == set(SURROGATE_DOMAINS)
    some = copy_tables(home, tmp_path / "some")
    Store(some).withdraw("games.preference_scores")
    assert _planned(some) == {"movies", "books"}
