"""Sources without files are left out and named; nothing else fails for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.cli import _Steps, plan_jobs
from orchestration.headless import run_job
from orchestration.naming import asset_key
from pipelines.config import Settings
from pipelines.errors import ConfigError
from pipelines.sources import SOURCES
from pipelines.store import Store

GAME = b"{'id': '10', 'app_name': 'Game'}\n"
REVIEW = (
    b"{'user_id': 'a', 'reviews': [{'item_id': '10', 'recommend': True, "
    b"'posted': 'Posted November 5, 2011.'}]}\n"
)


@pytest.fixture
def steam_only(tmp_path: Path) -> Path:
    """A data folder with Steam's files, and of Amazon a folder without any."""
    folder = tmp_path / "data"
    (folder / "steam").mkdir(parents=True)
    (folder / "amazon").mkdir()
    (folder / "steam" / "steam_games.json").write_bytes(GAME)
    (folder / "steam" / "australian_user_reviews.json").write_bytes(REVIEW)
    return folder


def _settings(folder: Path, home: Path) -> Settings:
    return Settings(world={"folder": folder}, runtime={"home": home})  # type: ignore[arg-type]


def test_domains_without_files_are_left_out_of_the_plan_and_named(
    steam_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_jobs("everything", _settings(steam_only, tmp_path / "home"))
    assert plan.domains == ["games"]
    assert plan.left_out == ["movies", "books", "products"]
    assert [run.job for run in plan.jobs] == ["games"]
    _Steps(quiet=False).left_out(plan.left_out)
    output = " ".join(capsys.readouterr().err.split())
    assert "movies, books, products: left out, no files (docs/data.md)" in output


def test_a_domain_that_was_asked_for_by_name_is_an_error_that_says_what_is_there(
    steam_only: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"no files for the books here.*found: games"):
        plan_jobs("books", _settings(steam_only, tmp_path / "home"))


def test_job_without_a_release_is_planned_by_its_name_and_reads_no_files(
    steam_only: Path, tmp_path: Path
) -> None:
    plan = plan_jobs("train_rater", _settings(steam_only, tmp_path / "home"))
    assert [(run.job, run.select) for run in plan.jobs] == [("train_rater", ())]
    assert plan.domains == []


@pytest.mark.pipeline
def test_assets_of_an_absent_source_are_left_out_and_the_run_succeeds(
    steam_only: Path, tmp_path: Path
) -> None:
    amazon = SOURCES["amazon"].datasets
    report = run_job(
        "books",
        overrides={"world": {"folder": str(steam_only)}, "runtime": {"home": str(tmp_path / "h")}},
        select=tuple(asset_key(d).to_user_string() for d in ("raw.world_files", *amazon)),
    )
    assert list(report.checks_failed) == []
    store = Store(tmp_path / "h")
    assert store.has("raw.world_files")
    assert not [dataset for dataset in amazon if store.has(dataset)]
