"""The instruction set of numeric libraries: fixed before they are loaded, and equal bytes then."""

import os
import subprocess
import sys

import pytest

from pipelines import instructions
from pipelines.config import load_settings
from pipelines.errors import ConfigError

NAMES = (instructions.SWITCH, *instructions.VARIABLES)
capable = pytest.mark.skipif(
    not instructions.capable(), reason="not a Linux machine with AVX2 and FMA"
)


def fresh(*command: str, **env: str) -> list[str]:
    """Words that a process without the variables prints."""
    clean = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, *command],
        env=clean | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def state(before: str = "", **env: str) -> list[str]:
    """Whether the process is portable after ``fix``, and OpenBLAS's variable."""
    code = f"{before}\nimport os; from pipelines import instructions; instructions.fix()\n"
    code += "print(instructions.portable(), os.environ.get('OPENBLAS_CORETYPE'))"
    return fresh("-c", code, **env)


@pytest.mark.pipeline
@capable
def test_process_is_portable_unless_told_otherwise_or_too_late():
    assert state() == ["True", "Haswell"]
    assert state(**{instructions.SWITCH: "native"}) == ["False", "None"]
    assert state(OPENBLAS_CORETYPE="Zen") == ["False", "Zen"]
    assert state("import numpy") == ["False", "None"]


@pytest.mark.pipeline
@capable
def test_orchestration_fixes_the_libraries_before_they_are_loaded():
    code = """
import orchestration.cli, orchestration.definitions
import sys, scipy.linalg, threadpoolctl
from numpy._core._multiarray_umath import __cpu_features__ as features
blas = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
print(*{(p["architecture"], p["num_threads"]) for p in blas}, features["X86_V4"])
"""
    assert " ".join(fresh("-c", code)) == "('Haswell', 1) False"


@capable
def test_tests_themselves_run_with_fixed_instructions():
    assert instructions.portable()


def test_native_is_part_of_every_identity(monkeypatch):
    for name, value in instructions.VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(instructions.SWITCH, raising=False)
    assert instructions.identity() == {}
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert instructions.identity() == {"instructions": "native"}
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv(instructions.SWITCH, "native")
    assert instructions.identity() == {"instructions": "native"}


def test_setting_outside_the_environment_comes_too_late():
    native = {"runtime": {"instructions": "native"}}
    with pytest.raises(ConfigError, match="comes too late") as fault:
        load_settings(None, native, {})
    assert f"{instructions.SWITCH}=native" in str(fault.value.hint)
    chosen = load_settings(None, None, {instructions.SWITCH: "native"})
    assert chosen.runtime.instructions == "native"


#: SHA-256 (16 digits) of three vectors with the pinned packages: the same on an AMD EPYC with
#: AVX-512 and on the Haswell that QEMU emulates.
VECTORS = "0efa11871cb5d535"


@capable
@pytest.mark.pipeline
def test_other_threads_and_hidden_instructions_give_equal_bytes(repository):
    program = str(repository / "tests/support/portable_bytes.py")
    one = fresh(program, OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1")
    other = fresh(
        program,
        OMP_NUM_THREADS="3",
        POLARS_MAX_THREADS="3",
        GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW",
    )
    assert one == other
    assert one[::2] == ["vectors", "scores", "exposure", "report"]
    assert one[1] == VECTORS
