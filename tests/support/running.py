"""Run the installed program as a user would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["run_understudy"]


def run_understudy(
    program: Path, *args: str, env: dict[str, str] | None = None, timeout: float = 900
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
