"""Cohorts that a schedule or a backfill adds, up to a release: through webserver and daemon."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.dagster_ui import Dagster, dagster_ui

from pipelines.store import Release, Store

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3_600)]

TABLES = ("personas", "persona_embeddings", "score_plan", "preference_scores")
MONDAYS = [datetime(2026, 11, day, 4, tzinfo=UTC) for day in (16, 23)]


@pytest.fixture(scope="module")
def location(
    published_home: Path, word_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Dagster, Store]]:
    folder = tmp_path_factory.mktemp("cohorts")
    shutil.copytree(published_home, folder / "home", symlinks=True)
    settings = folder / "understudy.yaml"
    settings.write_text(json.dumps({"embedding": {"model": str(word_encoder)}}))
    with dagster_ui(folder / "home", "--config", str(settings)) as address:
        yield Dagster(address), Store(folder / "home")


def _cohorts(release: Release) -> dict[str, int]:
    """Scored pairs by cohort; each persona has a vector."""
    people = release.snapshot("personas").read()
    assert set(release.snapshot("persona_embeddings").read()["persona_id"]) == set(
        people["persona_id"]
    )
    scores = release.snapshot("preference_scores").read()
    counts = scores.join(people, on="persona_id").group_by("cohort").len()
    return dict(counts.iter_rows())


def test_weekly_schedule_ends_in_a_release(location: tuple[Dagster, Store]) -> None:
    ui, store = location
    before = store.release("books@latest")
    own, later = (
        ui.submit({"pipelineName": "books"}, ui.tick("weekly_books", monday)) for monday in MONDAYS
    )
    while (status := ui.status(own)) in {"QUEUED", "NOT_STARTED", "STARTING"}:
        # Two runs of a domain at once would refuse each other's release.
        assert ui.status(later) in {"QUEUED", "NOT_STARTED"}
    assert status == "STARTED"
    ui.terminate(later)
    assert ui.ended(own)[1] == "SUCCESS", ui.failures(own)
    release = store.release("books@latest")
    pairs = _cohorts(before)["books"]
    assert _cohorts(release) == {"books": pairs, "books-2026-w47": pairs}
    assert release.run_id == own


def test_backfill_of_cohorts_ends_in_one_release(location: tuple[Dagster, Store]) -> None:
    ui, store = location
    before, cohorts = store.release("books@latest"), ("books-young", "books-old")
    for cohort in cohorts:
        ui.add_partition("books_cohorts", cohort)
    keys = [*(f"books/{table}" for table in TABLES), "books/population", "releases/books"]
    status, runs = ui.backfill(keys, cohorts)
    assert status == "COMPLETED_SUCCESS", [ui.failures(run) for run in runs]
    release = store.release("books@latest")
    pairs = _cohorts(before)["books"]
    assert _cohorts(release) == _cohorts(before) | dict.fromkeys(cohorts, pairs)
    # One run for both cohorts, and then one that waited for it.
    assert len(runs) == 2
    assert not {cohort for _, cohort in ui.stale(keys)} & {*cohorts, None}
