"""Speed and memory of the answer store; prints Markdown tables.

python benchmarks/answers/run.py --parts overhead lookup rerun --repeat 3
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

STAGE = Path(__file__).with_name("_stage.py")


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=("overhead", "lookup", "rerun"),
        default=["overhead", "lookup", "rerun"],
        help="overhead: storing an answer; lookup: keys in a large store; rerun: ask() again",
    )
    parser.add_argument("--repeat", type=int, default=3, help="processes per figure (count)")
    parser.add_argument("--answers", type=int, default=50_000, help="overhead and rerun (count)")
    parser.add_argument(
        "--stored", type=int, nargs="+", default=[2_000_000, 10_000_000], help="lookup (counts)"
    )
    parser.add_argument("--asked", type=int, default=1_000_000, help="lookup (count)")
    parser.add_argument(
        "--folder", type=Path, help="where to make stores (default: a temporary one)"
    )
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores, page cache warm\n")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        if "overhead" in given.parts:
            overhead(given.answers, given.repeat, Path(folder))
        if "lookup" in given.parts:
            lookup(given.stored, given.asked, given.repeat, Path(folder))
        if "rerun" in given.parts:
            rerun(given.answers, given.repeat, Path(folder))


def overhead(answers: int, repeat: int, folder: Path) -> None:
    """Cost of one answer: key, look-up, storing, beside the same run without a store."""
    print("| answers per commit | kind | µs per answer | of it key | commit | CPU µs | bare |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for every in (100, 500, 2000):
        for kind in ("choice", "text"):
            got = several(repeat, "overhead", folder, kind, every, answers)
            print(
                f"| {every} | {kind} | {got['store_us']:.0f} | {got['key_us']:.0f} "
                f"| {got['commit_us']:.0f} | {got['cpu_us']:.0f} | {got['bare_us']:.0f} |"
            )
    print()


def lookup(sizes: list[int], asked: int, repeat: int, folder: Path) -> None:
    """Microseconds per key and memory of look-ups of 8,192 keys, and of adding 20,000 answers."""
    print("| stored | MiB | known | which | µs per key | CPU µs | peak MiB |")
    print("|---:|---:|---:|---|---:|---:|---:|")
    for stored in sizes:
        home = folder / f"store-{stored}"
        size = stage("build", home, stored)["bytes"] / 2**20
        for share, which in ((1.0, "at random"), (0.5, "at random"), (1.0, "neighbours")):
            got = several(repeat, "lookup", home, stored, asked, share, which.split()[-1])
            print(
                f"| {stored:,} | {size:,.0f} | {share:.0%} | {which} | {got['us']:.1f} "
                f"| {got['cpu_us']:.1f} | {got['peak_mb']:.0f} |"
            )
        got = several(repeat, "store", home, stored, 20_000)
        print(
            f"| {stored:,} | {size:,.0f} | | stored | {got['us']:.1f} | {got['cpu_us']:.1f} "
            f"| {got['peak_mb']:.0f} |"
        )
    print()


def rerun(answers: int, repeat: int, folder: Path) -> None:
    """`ask` again, with everything stored."""
    got = several(repeat, "rerun", folder, answers)
    print("| answers | first run s | rerun s | rerun µs per answer | calls of the rerun |")
    print("|---:|---:|---:|---:|---:|")
    print(
        f"| {answers:,} | {got['first_s']:.2f} | {got['again_s']:.2f} "
        f"| {got['again_s'] / answers * 1e6:.0f} | {got['calls']:.0f} |"
    )
    print()


def several(repeat: int, *words: Any) -> dict[str, float]:
    """Medians over fresh processes."""
    values: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeat):
        for name, value in stage(*words).items():
            values[name].append(value)
    return {name: statistics.median(found) for name, found in values.items()}


def stage(*words: Any) -> dict[str, float]:
    """Run a measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(STAGE), *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
