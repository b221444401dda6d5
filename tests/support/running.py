"""Run the installed program as a user would, and copy what a run published."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["copy_tables", "published_options", "run_understudy"]


def run_understudy(
    program: Path, *args: str, env: dict[str, str] | None = None, timeout: float = 1800
) -> subprocess.CompletedProcess[str]:
    """Run the console script as a user would, from a folder that is not the checkout."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "TMDB_"))}
    return subprocess.run(
        [program, *args],
        env=clean | (env or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def published_options(encoder: Path) -> tuple[str, ...]:
    """Options of `understudy run` that the shared home is published with."""
    return ("--set", f"embedding.model={encoder}")


def copy_tables(home: Path, target: Path) -> Path:
    """Copy tables, checks, releases and world of a home, not Dagster's log and the warehouse."""
    target.mkdir(parents=True)
    for name in ("_format.json", "builds", "checks", "data", "refs", "releases", "worlds"):
        copy = shutil.copytree if (home / name).is_dir() else shutil.copy2
        copy(home / name, target / name)
    # Test results of dbt's build of the marts, which a release requires.
    (target / "warehouse").mkdir()
    shutil.copy2(home / "warehouse" / "builds.json", target / "warehouse")
    return target
