"""Kernels of the numeric libraries, chosen alike on every x86-64 processor with AVX2.

OpenBLAS, NumPy and Arrow choose their kernels by processor when they are loaded, and sums come out
differently in their last digits. With these variables the versions that README shows come out on
the usual machines. Nothing depends on it: without them vectors are equal to 1e-6, and versions are
those of the machine. Torch is left alone: language models want the newest instructions.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["VARIABLES", "capable", "fix"]

#: Variables that the libraries read when they are loaded.
VARIABLES: Final = {
    "OPENBLAS_CORETYPE": "Haswell",
    # OpenBLAS splits its sums by the number of its threads.
    "OPENBLAS_NUM_THREADS": "1",
    # Groups of NumPy 2.4; on processors without them the variable has no effect.
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "ARROW_USER_SIMD_LEVEL": "AVX2",
}


def fix() -> None:
    """Set the variables that are unset, for this process and those that it starts.

    No effect on a processor without AVX2 and FMA, on another system than Linux, and where NumPy has
    been loaded before.
    """
    if "numpy" not in sys.modules and capable():
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)


def capable() -> bool:
    """True on Linux on a processor with AVX2 and FMA."""
    try:
        words = set(Path("/proc/cpuinfo").read_text("utf-8").split())
    except OSError:
        return False
    return {"avx2", "fma"} <= words
