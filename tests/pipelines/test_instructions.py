"""Kernels of numeric libraries are chosen before they are loaded."""

import os
import subprocess
import sys

import pytest

from pipelines import instructions

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.skipif(not instructions.capable(), reason="not a Linux machine with AVX2 and FMA"),
]


def fresh(code: str, **env: str) -> str:
    """Standard output of a process that is started without the variables."""
    clean = {n: value for n, value in os.environ.items() if n not in instructions.VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_variables_that_are_set_stay():
    code = "import os; from pipelines import instructions; instructions.fix()\n"
    code += "print(os.environ['OPENBLAS_CORETYPE'], os.environ['OPENBLAS_NUM_THREADS'])"
    assert fresh(code, OPENBLAS_NUM_THREADS="2") == "Haswell 2"


def test_orchestration_fixes_the_libraries_before_they_are_loaded():
    code = """
import orchestration.cli, orchestration.definitions
import sys, scipy.linalg, threadpoolctl
from numpy._core._multiarray_umath import __cpu_features__ as features
blas = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
print(*{(p["architecture"], p["num_threads"]) for p in blas}, features["X86_V4"])
"""
    assert fresh(code) == "('Haswell', 1) False"
