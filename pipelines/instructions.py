"""The instruction set of the numeric libraries, fixed so that every processor gives the same bytes.

OpenBLAS, NumPy and Arrow choose their kernels by processor when they are loaded, and sums come out
differently in their last digits. :func:`fix` confines them to AVX2 and FMA, which x86-64 processors
have had since 2013, and OpenBLAS to one thread, since it splits its sums by the number of threads.
Torch is left alone: no table of a release without a language model is computed by it, and language
models want the processor's newest instructions.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["SWITCH", "VARIABLES", "capable", "fix", "foreign", "identity", "portable"]

#: ``native`` leaves the libraries their own choice; the setting `runtime.instructions`.
SWITCH: Final = "UNDERSTUDY_RUNTIME__INSTRUCTIONS"
#: Variables that the libraries read when they are loaded.
VARIABLES: Final = {
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    # Groups of NumPy 2.4; on processors without them the variable has no effect.
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "ARROW_USER_SIMD_LEVEL": "AVX2",
}


def fix() -> None:
    """Set the variables that are unset, for this process and those that it starts.

    No effect with ``native``, on a processor without AVX2 and FMA, on another system than Linux,
    and where NumPy has been loaded before.
    """
    if os.environ.get(SWITCH) == "native" or "numpy" in sys.modules or not capable():
        return
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)


def portable() -> bool:
    """Return True if this process loaded its numeric libraries confined to AVX2."""
    return os.environ.get(SWITCH) != "native" and all(
        os.environ.get(name) == value for name, value in VARIABLES.items()
    )


def identity() -> dict[str, str]:
    """Part of every build's identity: empty where the process is portable."""
    return {} if portable() else {"instructions": "native"}


def foreign() -> dict[str, str]:
    """Variables of the libraries that are set to another value than :func:`fix` gives them."""
    return {n: os.environ[n] for n, v in VARIABLES.items() if os.environ.get(n, v) != v}


def capable() -> bool:
    """True on Linux on a processor with AVX2 and FMA."""
    try:
        words = set(Path("/proc/cpuinfo").read_text("utf-8").split())
    except OSError:
        return False
    return {"avx2", "fma"} <= words
