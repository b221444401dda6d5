"""A benchmark of another commit beside the same of this tree, in turns; prints one Markdown table.

    python benchmarks/side_by_side.py dae372a benchmarks/answers/run.py --parts overhead
    python benchmarks/side_by_side.py --runs 5 --log FILE HEAD~1 benchmarks/environment/run.py

Options of this script stand before the commit, those after the path are the benchmark's own. Each
tree runs its own copy of the benchmark with this interpreter. Cells with numbers of the Markdown
tables that both print are compared where row and column have the same names: the medians of the
runs, the median of their ratios, now to before, and the range of these ratios, which shows what the
machine's noise hides. CPU seconds are those of the whole benchmark.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
Cell = tuple[str, str]


def extract(commit: str, folder: Path) -> Path:
    """The files of a commit, outside of git."""
    packed = subprocess.run(
        ["git", "archive", commit], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return folder


def number(text: str) -> float | None:
    """The one number of a cell such as ``**1,234 s**`` or ``3.5x``; None for words and ranges."""
    found = re.fullmatch(r"\**([+-]?[\d,]*\.?\d+) ?(µs|ms|s|MiB|GiB|%|x|×)?\**", text)
    return float(found[1].replace(",", "")) if found else None


def cells(output: str) -> dict[Cell, float]:
    """Numbers of all Markdown tables by (row, column); rows of one name are counted."""
    seen: Counter[str] = Counter()
    found: dict[Cell, float] = {}
    header: list[str] = []
    for line in output.splitlines():
        if "|" not in line:
            header = []
            continue
        row = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not header and not any(number(cell) is not None for cell in row):
            header = row
        elif not set("".join(row)) <= set("-: "):
            name = " ".join(cell for cell in row if cell and number(cell) is None)
            seen[name] += 1
            label = f"{name} ({seen[name]})" if seen[name] > 1 else name
            for place, cell in enumerate(row):
                if (value := number(cell)) is not None:
                    found[label, header[place] if place < len(header) else f"{place + 1}"] = value
    return found


def measure(tree: Path, words: list[str]) -> tuple[str, float]:
    """Output and CPU seconds of one run of the benchmark in a tree."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run both in turns, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit")
    parser.add_argument("--runs", type=int, default=3, help="of each tree (default 3)")
    parser.add_argument("--was", help="path of the benchmark in the commit, if it was another")
    parser.add_argument("--log", type=Path, help="keep what the benchmarks print")
    parser.add_argument("benchmark", nargs=argparse.REMAINDER, help="path and its own options")
    asked = parser.parse_args()
    path, *options = asked.benchmark
    scripts = {"before": asked.was or path, "now": path}
    values: dict[str, dict[Cell, list[float]]] = {
        "before": defaultdict(list),
        "now": defaultdict(list),
    }
    with tempfile.TemporaryDirectory(prefix="understudy-before-") as folder:
        trees = {"before": extract(asked.commit, Path(folder)), "now": REPOSITORY}
        for run in range(asked.runs):
            for side in ("before", "now") if run % 2 == 0 else ("now", "before"):
                print(f"{side}, run {run + 1} of {asked.runs}", file=sys.stderr, flush=True)
                output, cpu = measure(trees[side], [scripts[side], *options])
                if asked.log:
                    with asked.log.open("a") as log:
                        log.write(f"# {side}, run {run + 1}: {cpu:.1f} CPU s\n{output}\n")
                for cell, value in {**cells(output), ("all", "CPU s"): cpu}.items():
                    values[side][cell].append(value)
    print("| row | column | before | now | now / before | range |\n|---|---|--:|--:|--:|---|")
    for cell, old in values["before"].items():
        new = values["now"].get(cell, [])
        if len(new) == len(old) and all(old):
            ratios = [b / a for a, b in zip(old, new, strict=True)]
            row, column = cell
            was, is_now = statistics.median(old), statistics.median(new)
            print(
                f"| {row} | {column} | {was:,.6g} | {is_now:,.6g} | "
                f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |"
            )
    alone = len(values["before"].keys() ^ values["now"].keys())
    print(f"\n{alone} figures in one of both only. Load {os.getloadavg()[0]:.1f} at the end.")


if __name__ == "__main__":
    main()
