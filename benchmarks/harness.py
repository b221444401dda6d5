"""Shared by the benchmarks: new processes, clocks, medians, ratios, the heading and the table.

A benchmark is a program whose measurements are functions that return figures (numbers by name).
`measure` calls such a function in a new process, several times, and takes the medians, so that no
figure depends on what ran before. A program ends with ``harness.start(main)``.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

REPOSITORY = Path(__file__).resolve().parents[1]
_MEASURE = "--measure"

Figures = dict[str, Any]


class Clock:
    """Seconds of a ``with`` block: `wall_s` by the clock, `cpu_s` of all threads of the process."""

    wall_s = cpu_s = 0.0

    def __enter__(self) -> Self:
        """Start."""
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        wall, cpu = self._start
        self.wall_s, self.cpu_s = time.perf_counter() - wall, time.process_time() - cpu

    def figures(self, per: float = 1.0) -> Figures:
        """Both, divided by a count."""
        return {"wall_s": self.wall_s / per, "cpu_s": self.cpu_s / per}


def start(main: Callable[[], Any]) -> None:
    """Run a benchmark, or the one measurement that its parent process asks for."""
    if sys.argv[1:2] != [_MEASURE]:
        raise SystemExit(main())
    name, arguments = json.loads(sys.argv[2])
    figures = getattr(sys.modules["__main__"], name)(*arguments)
    print("\n" + json.dumps({"peak_mib": peak_mib(), **figures}))


def measure(
    function: Callable[..., Figures],
    *arguments: Any,
    repeat: int = 1,
    env: Mapping[str, str] | None = None,
) -> Figures:
    """Medians of the figures of a function, and its peak memory, over new processes.

    Parameters
    ----------
    function
        A function of the program that runs.
    arguments
        Values that JSON holds, or paths, which arrive as text.
    repeat
        Processes, one after the other (count).
    env
        Variables beside those of this process.
    """
    task = json.dumps([function.__name__, arguments], default=str)
    words = [sys.executable, inspect.getfile(function), _MEASURE, task]
    runs = []
    for _ in range(repeat):
        print(f"... {function.__name__} {arguments}", file=sys.stderr, flush=True)
        done = subprocess.run(
            words, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            raise SystemExit(f"{function.__name__}{arguments} failed: {done.stdout[-2000:]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return medians(runs)


def medians(runs: list[Figures]) -> Figures:
    """The median of each number; of anything else the value of the first run."""
    return {
        name: statistics.median(run[name] for run in runs) if isinstance(value, float) else value
        for name, value in runs[0].items()
    }


def peak_mib() -> float:
    """Peak resident memory of this process (MiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def add_ratios(rows: Iterable[Figures], figure: str, alternative: Figures) -> None:
    """Add ``ratio`` to each row: its figure to that of the alternative in the same run."""
    for row in rows:
        row["ratio"] = row[figure] / alternative[figure]


def machine() -> str:
    """Cores, memory, system and load of the last minute."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def parser(text: str | None) -> argparse.ArgumentParser:
    """Options of a benchmark whose docstring is given; all can write their rows as JSON."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="write the rows here, too")
    return made


def heading(args: argparse.Namespace) -> str:
    """The machine and its load, and the options of the run, sizes among them."""
    options = {n: v for n, v in vars(args).items() if v not in (None, False) and n != "json"}
    return f"{machine()}; " + ", ".join(f"{name} {value}" for name, value in options.items())


def table(rows: Collection[Figures], columns: Mapping[str, str]) -> str:
    """Markdown table of rows.

    Parameters
    ----------
    rows
        Figures by name. A cell whose figure a row lacks is empty.
    columns
        Format of the cells by name of the column, such as ``{wall_s:.1f}``. A column without any
        figure is left out.
    """

    def cell(row: Figures, form: str) -> str:
        try:
            return form.format(**row)
        except KeyError:
            return ""

    cells = {name: [cell(row, form) for row in rows] for name, form in columns.items()}
    cells = {name: column for name, column in cells.items() if any(column)}
    lines = [tuple(cells), ["--:" if ":" in columns[name] else "---" for name in cells]]
    lines += zip(*cells.values(), strict=True)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def report(args: argparse.Namespace, rows: list[Figures], columns: Mapping[str, str]) -> None:
    """Print the heading and a table per ``part`` of rows; write the rows where ``--json`` says."""
    print(f"\n{heading(args)}")
    for _, part in itertools.groupby(rows, key=lambda row: row.get("part")):
        print(f"\n{table(list(part), columns)}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1, default=str) + "\n", encoding="utf-8")
