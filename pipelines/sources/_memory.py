"""Keeping the memory of a long read flat."""

from __future__ import annotations

import ctypes
import platform

__all__ = ["give_large_blocks_back"]

#: `M_MMAP_THRESHOLD` of glibc's `mallopt`.
_MMAP_THRESHOLD = -3
_LARGE = 1 << 20


def give_large_blocks_back() -> bool:
    """Have blocks of memory from 1 MiB on returned to the system as soon as they are freed.

    glibc maps large blocks on their own, but each one that is freed raises the size from which it
    does (up to 32 MiB). Then blocks of a few MiB, made in one thread and freed in another, come
    from heaps that only shrink at their end: reading 1.3 GB of packed JSON lines took 2.3 GiB,
    and more the longer the file. With a fixed size it takes 0.7 GiB. Setting it is safe at any
    time and concerns this process only.

    Returns
    -------
    bool
        Whether the size was set; other C libraries than glibc need nothing of the kind.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE))
