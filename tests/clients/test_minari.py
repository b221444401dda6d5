"""Minari reads what the documented commands wrote into a relative folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import small_release

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(600)]
minari = pytest.importorskip("minari", reason="Minari is not installed")


def test_minari_lists_and_reads_an_export(
    understudy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = small_release.build(tmp_path / "home")
    command = ["release", "export", "movies@latest", "--format", "minari", "--out", "episodes"]
    limits = ["--episodes", "5", "--steps", "4"]
    environment = {**os.environ, "UNDERSTUDY_HOME": str(tmp_path / "home")}
    subprocess.run([understudy, *command, *limits], cwd=tmp_path, env=environment, check=True)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "episodes" / "data"))
    name = "understudy/movies-random-v0"
    assert list(minari.list_local_datasets()) == [name]
    dataset = minari.load_dataset(name)
    assert dataset.total_episodes == 5
    assert dataset.total_steps == sum(len(e.rewards) for e in dataset.iterate_episodes()) <= 20
    assert dataset.env_spec.kwargs["release"] == str(release)
