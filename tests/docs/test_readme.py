"""README and the page on training show what their code prints."""

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


def test_pictures_are_of_the_packaged_releases_and_the_pages(repository: Path) -> None:
    subprocess.run([sys.executable, "docs/pictures.py", "--check"], cwd=repository, check=True)


def test_results_are_of_the_packaged_release(repository: Path, tmp_path: Path) -> None:
    check(repository, tmp_path, "first", "people")


def test_policy_is_that_of_real_ratings(
    repository: Path, shared_data: Path, tmp_path: Path
) -> None:
    archive = shared_data / "movielens" / "ml-latest-small.zip"
    check(repository, tmp_path, "training", "--archive", str(archive))


def test_readme_is_short(repository: Path) -> None:
    assert len((repository / "README.md").read_text("utf-8").splitlines()) <= 180
