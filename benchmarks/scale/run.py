"""Measures what the executor `ray` adds to a piece, beside `local` in the same process.

A piece hashes until its time by the clock is over, so that other work on the machine makes it do
less and not take longer: what a run takes beyond the sum of its pieces is the executor's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

from pipelines.config import ExecutionSettings
from pipelines.execution import Executor, open_executor


class Busy:
    """Computes for a time (seconds) per part."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, part: int) -> float:
        """Hash until the time is over; the seconds that it took."""
        start = time.monotonic()
        digest = str(part).encode()
        while time.monotonic() - start < self.seconds:
            for _ in range(1000):
                digest = hashlib.sha256(digest).digest()
        return time.monotonic() - start

    def versions(self) -> Mapping[str, Any]:
        """Have nothing in common with the driver."""
        return {}


def overheads(executor: Executor, seconds: float, pieces: int, repeat: int) -> list[float]:
    """Seconds per piece beyond the piece itself, for each repetition; one worker."""
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        done = list(executor.map(Busy(seconds), range(pieces)))
        found.append((time.perf_counter() - start - sum(done)) / pieces)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="+", default=[0, 1, 10, 60])
    parser.add_argument("--pieces", type=int, nargs="+", default=[50, 10, 3, 1])
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    start = time.perf_counter()
    # Of all cores, so that one piece runs at a time.
    ray = open_executor(ExecutionSettings(executor="ray", cpus=float(os.cpu_count() or 1)))
    print(f"start of a cluster: {time.perf_counter() - start:.1f} s, load {os.getloadavg()[0]:.0f}")
    print("| piece, s | pieces | local, ms per piece | ray, ms per piece | of the piece |")
    print("|--:|--:|--:|--:|--:|")
    try:
        for seconds, pieces in zip(args.seconds, args.pieces, strict=True):
            local = open_executor(ExecutionSettings())
            own, there = (
                statistics.median(overheads(e, seconds, pieces, args.repeat)) for e in (local, ray)
            )
            share = f"{there / seconds:.1%}" if seconds else ""
            print(f"| {seconds:g} | {pieces} | {own * 1000:.1f} | {there * 1000:.0f} | {share} |")
    finally:
        ray.close()
    print(f"load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
