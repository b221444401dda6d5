"""Interpreters in which the core packages alone can be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Packages that a fresh interpreter may import: the core dependencies and their own.
CORE = {
    "annotated_types", "dotenv", "filelock", "numpy", "orjson", "packaging", "polars", "pyarrow",
    "pydantic", "pydantic_core", "pydantic_settings", "typing_extensions", "typing_inspection",
    "yaml", "_polars_runtime_32", "_polars_runtime",
}  # fmt: skip

#: Hides every other installed package.
BLOCK = """
import importlib.machinery, importlib.metadata, sys
hidden = set(importlib.metadata.packages_distributions())
hidden -= {allowed!r} | set(sys.stdlib_module_names)
hidden -= {{"understudy", "pipelines", "sim", "orchestration"}}
finder = importlib.machinery.PathFinder
found = finder.find_spec
finder.find_spec = lambda name, path=None, target=None: (
    None if name.partition(".")[0] in hidden else found(name, path, target)
)
"""


def core_program(code: str, *more: str) -> list[str]:
    """Command of an interpreter in which only the core packages, and those named, are found."""
    return [sys.executable, "-c", BLOCK.format(allowed=CORE | set(more)) + code]


def in_core(code: str, cwd: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run code where only the core packages, and those named, can be imported."""
    return subprocess.run(
        core_program(code, *more), cwd=cwd, capture_output=True, text=True, check=False
    )
