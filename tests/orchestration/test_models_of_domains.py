"""dbt's models of several domains: one invocation for all of a command, one failure for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.marts import commit_raw_rows

from orchestration.headless import JobRun, RunReport, run_jobs
from pipelines.errors import UnderstudyError
from pipelines.store import Store

pytestmark = pytest.mark.pipeline

DOMAINS = ("games", "books", "movies")


def build(home: Path, **settings: Any) -> RunReport:
    """Build a mart of each domain from the raw tables of the store."""
    sample = {"films": 30, "users": 40, "ratings": 700}
    overrides = {"runtime": {"home": str(home)}, "world": {"sample": sample}, **settings}
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
