"""An environment that other threads may read while it is changed.

glibc's ``setenv`` frees the array of variables when it outgrows it, and a library's thread that
reads it just then ends the process: threads of Polars did, about once in a run of all tests. Here
each change makes a new array, and old ones are freed much later.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from typing import Any

__all__ = ["keep_arrays"]

#: Arrays and texts that threads may still read (count).
_KEPT = 20_000


def keep_arrays() -> None:
    """Change the environment by ``os.environ`` in this way from now on."""
    try:
        environ = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ")
    except ValueError:  # another C library
        return
    kept: deque[Any] = deque(maxlen=_KEPT)
    #: Texts of variables that are set, by name: not freed while they are.
    own: dict[bytes, Any] = {}

    def change(name: bytes, value: bytes | None) -> None:
        start = name + b"="
        used = ctypes.cast(environ.value or 0, ctypes.POINTER(ctypes.c_void_p))
        entries: list[int] = []
        at = 0
        while used and (entry := used[at]):
            if ctypes.string_at(entry, len(start)) != start:
                entries.append(entry)
            at += 1
        kept.append(own.pop(name, None))
        if value is not None:
            own[name] = ctypes.create_string_buffer(start + value)
            entries.append(ctypes.addressof(own[name]))
        array = (ctypes.c_void_p * (len(entries) + 1))(*entries)  # the last entry is null
        kept.append(array)
        environ.value = ctypes.addressof(array)

    os.putenv = lambda name, value: change(os.fsencode(name), os.fsencode(value))  # type: ignore[assignment]
    os.unsetenv = lambda name: change(os.fsencode(name), None)  # type: ignore[assignment]
