"""Materializing what the webserver reports as stale publishes a release.

Runs are executed in this process: one that the webserver launches takes half a minute to start
(`test_cohorts_to_release.py` has such runs).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.dagster_process import DagsterProcess
from support.dagster_ui import Dagster, dagster_ui
from support.tiny_models import save_word_encoder

from orchestration.instance import open_instance
from pipelines.store import Release, Store

pytestmark = [pytest.mark.night, pytest.mark.timeout(3_600)]

#: Layers of the data, and one more for each table that dbt's models are joined from.
MAX_WAVES = 14

POLICY = "training/trained_policy"
TRAINING = {"steps": 512, "seeds": [0], "length_limit": 20, "evaluate_every": 256}


@dataclass
class Location:
    """A home with its UI, and definitions in this process with the same settings."""

    home: Path
    config: Path
    ui: Dagster
    dagster: DagsterProcess
    keys: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def configure(self, **changes: object) -> None:
        """Change sections of the settings, which stay."""
        self.settings |= changes
        self.config.write_text(json.dumps(self.settings))
        self.dagster.load(self.settings)
        self.ui.reload()

    def train(self) -> dict[str, str]:
        """Train the policy; every version that its figures come from."""
        assert self.dagster.launch([POLICY]).success
        lineage = Store(self.home).current("trained_policy").manifest.stats["lineage"]
        return dict(lineage)

    def settle(self) -> tuple[set[str], Release]:
        """Launch what is marked stale until nothing is; assets that ran, and the release."""
        ran: set[str] = set()
        for _ in range(MAX_WAVES):
            stale = self.ui.stale(self.keys)
            if not stale:
                return ran, Store(self.home).release("movies@latest")
            loose = [key for key, cohort in stale if cohort is None]
            for cohort in sorted({c for _, c in stale if c is not None}) or [None]:
                keys = [key for key, own in stale if own == cohort and cohort] + loose
                assert self.dagster.launch(sorted(keys), cohort).success
                loose = []
            ran |= {key for key, _ in stale}
        raise AssertionError(f"still stale after {MAX_WAVES} waves: {sorted(map(str, stale))}")


@pytest.fixture(scope="module")
def location(
    published_home: Path, word_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Location]:
    home = tmp_path_factory.mktemp("stale") / "home"
    shutil.copytree(published_home, home, symlinks=True)
    config = home.with_name("understudy.yaml")
    config.write_text("{}")
    with dagster_ui(home, "--config", str(config)) as address, open_instance(home) as instance:
        made = Location(home, config, Dagster(address), DagsterProcess(home, instance))
        made.configure(embedding={"model": str(word_encoder)}, training=TRAINING)
        made.keys = made.ui.upstream("releases/movies")
        made.settle()  # the published run scored one cohort of two
        yield made


def test_new_cohort_is_planned_scored_and_released(location: Location) -> None:
    before = Store(location.home).release("movies@latest")
    location.train()
    assert not location.ui.stale([POLICY])
    location.ui.add_partition("movies_cohorts", "2026-w48")
    ran, release = location.settle()
    assert ran == {
        "movies/personas", "movies/persona_embeddings", "movies/score_plan",
        "movies/preference_scores", "movies/population", "releases/movies",
    }  # fmt: skip
    for table in ("personas", "persona_embeddings"):
        assert release.tables[table].rows == before.tables[table].rows + 100, table
    # Regenerated personas are another release, and that makes the policy stale.
    assert location.ui.stale([POLICY]) == {(POLICY, None)}
    assert location.train() == release.lineage
    assert not location.ui.stale([POLICY])
    # A pinned release is read although a later one was published.
    location.configure(training={**TRAINING, "release": f"movies@{before.version}"})
    assert location.ui.stale([POLICY]) == {(POLICY, None)}
    assert location.train() == before.lineage
    assert not location.ui.stale([POLICY])


def test_new_setting_model_and_file_run_what_they_decide(
    location: Location, tmp_path: Path
) -> None:
    before = Store(location.home).release("movies@latest")
    encoder = tmp_path / "other-encoder"
    save_word_encoder(encoder)
    (world,) = (location.home / "worlds").glob("sample-*")
    files = shutil.copytree(world, tmp_path / "files")
    (ratings,) = files.rglob("ratings.csv")
    with ratings.open("a") as file:
        # A user of the world rates the first film again, later.
        file.write("1,1,0.5,2000000000\n")
    location.configure(
        world={"folder": str(files)}, graph={"alpha": 0.7}, embedding={"model": str(encoder)}
    )
    location.dagster.launch(["sources/original_files"])
    ran, release = location.settle()
    assert {
        "sources/world_files", "raw/movielens_ratings", "movies/interactions",
        "movies/item_embeddings", "movies/persona_embeddings", "movies/graph_triples",
        "movies/item_similarity", "releases/movies",
    } <= ran  # fmt: skip
    assert "movies/personas" not in ran
    for table in ("interactions", "item_embeddings", "item_similarity"):
        assert release.tables[table].version != before.tables[table].version, table
