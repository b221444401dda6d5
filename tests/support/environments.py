"""Environments with the checkout and exactly one extra: what somebody has who follows a page."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

__all__ = ["python_with"]

_REPOSITORY = Path(__file__).resolve().parents[2]
#: Options of pip that uv takes from variables, as the Makefile gives them.
_OPTIONS = {"index-url": "UV_DEFAULT_INDEX", "find-links": "UV_FIND_LINKS"}


def python_with(extra: str) -> Path:
    """Python of an environment into which uv has installed ``.[extra]`` with the pins.

    It is made once, and again when the metadata, the pins or this Python have changed. Skips the
    test where no package index can be reached.
    """
    folder = _REPOSITORY / ".venv-extras" / extra
    python, stamp = folder / "bin" / "python", folder / ".installed"
    files = [_REPOSITORY / name for name in ("pyproject.toml", "constraints.txt")]
    state = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() + sys.version
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not stamp.exists() or stamp.read_text("utf-8") != state:
            _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
            _uv("pip", "install", "--quiet", "--python", str(python), "-c", "constraints.txt",
                "-e", f".[{extra}]")  # fmt: skip
            stamp.write_text(state, "utf-8")
    return python


def _uv(*words: str) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    options = dict(re.findall(r"^[\w:]*\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    done = subprocess.run(
        [Path(sys.executable).with_name("uv"), *words],
        cwd=_REPOSITORY,
        env=os.environ | {name: options[key] for key, name in _OPTIONS.items() if key in options},
        capture_output=True,
        text=True,
        check=False,
    )
    if "error sending request" in done.stderr or "dns error" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
