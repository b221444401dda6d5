"""README shows what its commands and code print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import instructions

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not instructions.capable(), reason="versions are the same on x86-64 Linux with AVX2"
    ),
]


def check(repository: Path, homes: Path, *words: str) -> None:
    """Compare blocks of README with what is printed in homes of this folder."""
    done = subprocess.run(
        [sys.executable, "docs/readme.py", "--check", "--homes", str(homes), *words],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_summary_is_that_of_the_sample_world(repository: Path, tmp_path: Path) -> None:
    check(repository, tmp_path, "summary")


def test_persona_and_policy_are_those_of_real_ratings(
    repository: Path, shared_data: Path, tmp_path: Path
) -> None:
    archive = shared_data / "movielens" / "ml-latest-small.zip"
    check(repository, tmp_path, "episode", "training", "--archive", str(archive))
