"""Commands run with the extra that the README gives them, and name the one that they lack."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from support.environments import python_with

pytestmark = pytest.mark.pipeline

#: Commands for which `env` is enough.
ENV = """
agents --cast personas --agents 5 --pages 1
answers stats
config show
doctor
episode --steps 2
episodes --episodes 2 --steps 2 --parquet {folder}/episodes.parquet
experiment list
gc --dry-run
judge export --out {folder}/sheets
models list
recommend evaluate --recommender ease
recommend list
release export --format croissant --out {folder}/croissant
release export --format lenskit --out {folder}/lenskit
release export --format movielens --out {folder}/movielens
release export --format recbole --out {folder}/recbole
release population
release show
release verify
report movies@latest
report movies@latest --html --out {folder}/report.html
status
"""

#: Commands that need another extra, and which.
OTHER = {
    "graph export --out {folder}/graph.graphml": "pipeline",
    "match --domain movies --users 3": "pipeline",
    "personas --n 3": "pipeline",
    "run --job movies": "pipeline",
    "ui": "pipeline",
    "release export --format huggingface --out {folder}/hub": "pipeline",
    "release export --format minari --out {folder}/minari": "train",
    "train --steps 10": "train",
    "recommend evaluate --recommender item-knn": "agents",
}


def run(command: str, home: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment that has `env` alone."""
    python = python_with("env")
    return subprocess.run(
        [python.with_name("understudy"), *shlex.split(command.format(folder=folder))],
        env={
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "UNDERSTUDY_HOME": str(home),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ENV.strip().splitlines())
def test_command_runs_with_env_alone(command: str, working_home: Path, tmp_path: Path) -> None:
    done = run(command, working_home, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", OTHER)
def test_command_names_the_extra_that_it_lacks(
    command: str, working_home: Path, tmp_path: Path
) -> None:
    done = run(command, working_home, tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    hint = f"(pip install 'understudy-recsys[{OTHER[command]}]')"
    assert done.stderr.splitlines()[-1].endswith(hint)
