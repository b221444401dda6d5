"""Environments of programs that others wrote: each is made once per machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from filelock import FileLock

__all__ = ["client_environment"]

#: What pip prints where no package index can be reached.
_UNREACHABLE = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ProxyError",
    "SSLError",
    "from versions: none",
)


def client_environment(
    name: str, requirements: Sequence[str], *, dependencies: bool = True
) -> Path:
    """Python of an environment with these packages, in the user's cache folder.

    Without ``dependencies`` the packages alone are installed. The test is skipped where the package
    index can't be reached.
    """
    wanted = "\n".join([*requirements, str(dependencies), sys.version])
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "understudy" / "clients" / f"{name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, done = folder / "bin" / "python", folder / "installed"
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            options = [] if dependencies else ["--no-deps"]
            command = [python, "-m", "pip", "install", "--quiet", *options, *requirements]
            pip = subprocess.run(command, capture_output=True, text=True, check=False)
            if pip.returncode and any(sign in pip.stderr for sign in _UNREACHABLE):
                pytest.skip(f"the package index can't be reached for {', '.join(requirements)}")
            assert pip.returncode == 0, pip.stderr
            done.touch()
    return python
