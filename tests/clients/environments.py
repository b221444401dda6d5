"""Environments of programs that others wrote: each is made once per machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest
from filelock import FileLock

__all__ = ["client_environment"]

#: What uv prints where no package index can be reached.
_UNREACHABLE = ("error sending request", "network was disabled", "operation timed out")


def client_environment(
    name: str,
    requirements: Sequence[str],
    *,
    dependencies: bool = True,
    alone: Sequence[str] = (),
) -> Path:
    """Python of an environment with these packages, in the user's cache folder.

    Without ``dependencies`` the packages alone are installed. Those of ``alone`` are, too, and find
    theirs (torch, pyarrow and others) in the environment that runs the tests, which comes last. The
    test is skipped where the package index can't be reached.
    """
    own = sysconfig.get_path("purelib")
    wanted = "\n".join([*requirements, str(dependencies), *alone, own, sys.version])
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "understudy" / "clients" / f"{name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, done = folder / "bin" / "python", folder / "installed"
    install = ["pip", "install", "--python", str(python)]
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            for words in (
                ["venv", "--clear", "--python", sys.executable, str(folder)],
                [*install, *([] if dependencies else ["--no-deps"]), *requirements],
                *([[*install, "--no-deps", *alone]] if alone else []),
            ):
                uv = subprocess.run(
                    [Path(sys.executable).with_name("uv"), "--quiet", *words],
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                if uv.returncode and any(sign in uv.stderr for sign in _UNREACHABLE):
                    pytest.skip(f"the package index can't be reached for {name}")
                assert uv.returncode == 0, uv.stderr
            if alone:
                [site] = folder.glob("lib/python*/site-packages")
                (site / "zz_own.pth").write_text(own)
            done.touch()
    return python
