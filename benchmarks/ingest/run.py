"""Rows per second and peak memory of every loader, beside DuckDB's own read and write.

    python benchmarks/ingest/run.py --rows 5000000
    python benchmarks/ingest/run.py --formats amazon-2023 --rows 1000000 --repeat 3

For each format a file is grown to the asked number of rows; then the loader and a plain DuckDB
`copy (select … from read_json(…)) to … (format parquet, compression zstd)` of the same file take
turns, each in a process of its own. Medians are shown, and how many times as long the loader takes,
on the wall and in CPU time (which other work on the machine disturbs less).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _all import FORMATS

_STAGE = Path(__file__).with_name("_stage.py")


def main() -> None:
    """Measure and print a Markdown table (and JSON with ``--json``)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--rows", type=int, default=5_000_000, help="reviews in each file")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scratch", default=None, help="where files go (~8 GB at 5 million rows)")
    parser.add_argument("--memory-limit-mb", type=int, default=1024, help="DuckDB's, for both")
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    results = [_measured(name, args) for name in args.formats]
    _print(results, args)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    scratch = Path(tempfile.mkdtemp(prefix="understudy-ingest-", dir=args.scratch))
    try:
        rows = FORMATS[name].write(scratch / "data", args.rows)
        size = (scratch / "data" / FORMATS[name].file).stat().st_size
        runs: dict[str, list[dict[str, float]]] = {"understudy": [], "duckdb": []}
        for n in range(args.repeat):
            for tool, done in runs.items():
                work = scratch / f"{tool}-{n}"
                done.append(_stage(tool, name, scratch / "data", work, args.memory_limit_mb))
                shutil.rmtree(work, ignore_errors=True)
                print(f"  {name} {tool}: {done[-1]}", file=sys.stderr, flush=True)
                if done[-1]["rows"] != rows:
                    raise SystemExit(f"{tool} read {done[-1]['rows']} of {rows} rows of {name}")
        return {"format": name, "rows": rows, "bytes": size} | {
            f"{tool}_{figure}": statistics.median(run[figure] for run in done)
            for tool, done in runs.items()
            for figure in ("seconds", "cpu", "peak_mb")
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _stage(tool: str, name: str, folder: Path, work: Path, limit: int) -> dict[str, float]:
    command = [sys.executable, str(_STAGE), tool, name, str(folder), str(work), str(limit)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _print(results: list[dict[str, Any]], args: argparse.Namespace) -> None:
    print(
        f"\n{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}; DuckDB limited to {args.memory_limit_mb} MiB; "
        f"medians of {args.repeat}\n"
    )
    print(
        "| format | rows | MB | loader, rows/s | DuckDB, rows/s | loader takes | of CPU "
        "| loader, peak MiB | DuckDB, peak MiB |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for r in results:
        own, plain = r["understudy_seconds"], r["duckdb_seconds"]
        work = r["understudy_cpu"] / r["duckdb_cpu"]
        print(
            f"| {r['format']} | {r['rows']:,} | {r['bytes'] / 1e6:,.0f} | {r['rows'] / own:,.0f} "
            f"| {r['rows'] / plain:,.0f} | {own / plain:.2f}× | {work:.2f}× "
            f"| {r['understudy_peak_mb']:,.0f} | {r['duckdb_peak_mb']:,.0f} |"
        )


if __name__ == "__main__":
    main()
