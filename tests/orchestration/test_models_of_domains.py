"""dbt's models of several domains: one invocation for all of a command, failures by domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.marts import commit_raw_rows

from orchestration.defs.warehouse import model_assets
from orchestration.headless import JobRun, RunReport, run_jobs
from orchestration.naming import asset_key
from pipelines.config import Settings
from pipelines.errors import SourceError, UnderstudyError
from pipelines.sources import SOURCES
from pipelines.store import Store
from pipelines.worlds import prepare_world

pytestmark = pytest.mark.pipeline

SAMPLE = {"films": 30, "users": 40, "ratings": 700}
DOMAINS = ("games", "books", "movies")


def build(home: Path, **settings: Any) -> RunReport:
    """Build a mart of each domain from the raw tables of the store."""
    overrides = {"runtime": {"home": str(home)}, "world": {"sample": SAMPLE}, **settings}
    jobs = [JobRun(name, select=(f"marts/{name}_items",)) for name in DOMAINS]
    return run_jobs(jobs, overrides=overrides)


def invocations(home: Path) -> list[str]:
    """Steps that dbt was started by, in order."""
    results = (home / "warehouse/dbt/target").glob("*/run_results.json")
    ordered = sorted(results, key=lambda path: path.stat().st_mtime)
    return [path.parent.name.partition("-")[0] for path in ordered]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with one row in each raw table, of which TMDB's contradict each other."""
    commit_raw_rows(Store(tmp_path / "home"))
    return tmp_path / "home"


def test_one_invocation_builds_all_domains_and_failing_test_stops_its_own(home: Path) -> None:
    failed = (
        r"dbt_movies: 1 dbt nodes failed: test\.understudy\.stg_tmdb__missing_have_no_record\S*: "
        r"Got 1 result, configured to fail if != 0"
    )
    with pytest.raises(UnderstudyError, match=failed) as caught:
        build(home)
    assert type(caught.value) is UnderstudyError
    # The games and books were built by the first step; the last one showed its own failure.
    assert invocations(home) == ["games", "movies"]
    missing = Store(home).current("raw.tmdb_missing").read()
    Store(home).commit(
        "raw.tmdb_missing", missing.with_columns(pl.col("tmdb_id") + 1), code_version="t"
    )
    report = build(home)
    assert [step.name for step in report.steps] == ["dbt_games", "dbt_books", "dbt_movies"]
    assert report.checks_failed == []
    assert invocations(home) == ["games", "movies", "movies"]
    # A setting that every domain reads.
    build(home, splits={"test": 0.2})
    assert invocations(home) == ["games", "movies", "movies", "games"]


def test_source_that_cannot_be_read_stops_its_own_domain(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = prepare_world(Settings(world={"sample": SAMPLE}, runtime={"home": home})).folder
    (folder / "steam" / "steam_games.json.gz").write_bytes(b"no archive")
    runs = [
        JobRun(domain, select=("sources/world_files", *raw(*sources), *models(domain)))
        for domain, sources in {"movies": ("movielens", "tmdb"), "games": ("steam",)}.items()
    ]
    with pytest.raises(SourceError, match=r"ingest_steam: .*steam_games"):
        run_jobs(runs, overrides={"runtime": {"home": str(home)}, "world": {"folder": folder}})
    assert Store(home).has("raw.movielens_ratings")
    assert invocations(home) == ["movies"]


def raw(*sources: str) -> list[str]:
    """Raw tables of sources, as assets."""
    datasets = (dataset for name in sources for dataset in SOURCES[name].datasets)
    return [asset_key(dataset).to_user_string() for dataset in datasets]


def models(domain: str) -> list[str]:
    """dbt's models of a domain, as assets."""
    return [key.to_user_string() for key in model_assets()[domain].keys]
