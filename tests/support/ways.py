"""Modules that a rating's way leads through, by a trace of the calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["modules_entered"]

REPOSITORY = Path(__file__).resolve().parents[2]
#: Settings and the modules directly below `pipelines` (errors, paths, seeding …) serve every step.
COMMON = ("pipelines/config/",)


def modules_entered(step: Callable[[], object]) -> set[str]:
    """Run a step; the modules whose functions it entered, without the common ones."""
    files: set[str] = set()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    sys.setprofile(enter)
    try:
        step()
    finally:
        sys.setprofile(None)
    below = {
        Path(file).relative_to(REPOSITORY).as_posix()
        for file in files
        if file.startswith((f"{REPOSITORY}/pipelines/", f"{REPOSITORY}/sim/"))
    }
    return {m for m in below if m.count("/") > 1 - m.startswith("sim") and not m.startswith(COMMON)}
