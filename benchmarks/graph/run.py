"""Speed and memory of the knowledge graph; every figure is a median over fresh processes.

    python benchmarks/graph/run.py --data ../shared/data --repeat 3
    python benchmarks/graph/run.py --parts growth --sizes 1 4 16

Without --data only generated worlds are measured. Parts: `bulk` (triples and similar items),
`growth` (the same on 1, 4, 16 × 100,000 ratings), `raters` (similar items of the largest size, from
files, with fewer raters per film counted), `memory` (GraphMemory), `many` (its queries at once),
`networkx` (the same path counts by enumeration).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

PARTS = ("bulk", "growth", "raters", "memory", "many", "networkx")


def main() -> None:
    """Measure and print Markdown (and JSON with ``--json``)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", help="folder with movielens/ and tmdb/")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    real = ["ml-latest-small", "ml-100k"] if args.data else []
    print(_machine(args.repeat, args.threads))
    report: dict[str, Any] = {}
    if "bulk" in args.parts:
        report["bulk"] = _bulk([*real, "generated-1"], args)
    if "growth" in args.parts:
        report["growth"] = _bulk([f"generated-{n}" for n in args.sizes], args)
        _exponents(report["growth"])
    if "raters" in args.parts:
        report["raters"] = _raters(args)
    if "memory" in args.parts:
        report["memory"] = _memory([*real, "generated-1"], args)
    if "many" in args.parts:
        report["many"] = _many([*real, "generated-1"], args)
    if "networkx" in args.parts:
        world = "ml-100k" if args.data else "generated-1"
        found = _median(["networkx", world, args.data or "", "200"], args.repeat)
        report["networkx"] = found
        print(
            f"\nPath counts among {found['films']:.0f} films of {world} "
            f"({found['instances']:,.0f} instances, equal both ways): NetworkX "
            f"{found['networkx_graph_s']:.2f} s for its graph and {found['networkx_s']:.2f} s for "
            f"the paths, ours {found['index_s']:.3f} s for the index and {found['ours_s']:.4f} s "
            f"for the counts: {found['ratio']:,.0f} times faster together, "
            f"{found['ratio_counts']:,.0f} times the counts alone."
        )
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _bulk(worlds: list[str], args: argparse.Namespace) -> dict[str, Any]:
    print(
        "\n| world | ratings | films | triples | path instances | triples s | similar items s "
        "| peak MiB |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    out = {}
    for world in worlds:
        found = _median(["bulk", world, args.data or "", str(args.threads)], args.repeat)
        out[world] = found
        print(
            f"| {world} | {found['interactions']:,.0f} | {found['films']:,.0f} "
            f"| {found['triples']:,.0f} | {found['instances']:,.0f} | {found['triples_s']:.2f} "
            f"| {found['similarity_s']:.2f} | {found['peak_mb']:,.0f} |",
            flush=True,
        )
    return out


def _raters(args: argparse.Namespace) -> dict[str, Any]:
    print(
        "\n| world / raters per film at most | training ratings | counted "
        "| films with sampled rows | seconds | peak memory (MiB) |"
        "\n|---|---:|---:|---:|---:|---:|"
    )
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes[-2:]:
            world, file = f"generated-{size}", str(Path(folder, f"{size}.parquet"))
            _median(["triples", world, "", file], 1)
            for limit in (1_000_000, 5_000, 1_000):
                words = ["similar", file, "", str(limit), str(args.threads)]
                found = _median(words, args.repeat)
                out[f"{world}, {limit}"] = found
                every = out[f"{world}, 1000000"]["counted"]
                shown = "all" if limit == 1_000_000 else f"{limit:,}"
                print(
                    f"| {world} / {shown} | {every:,.0f} | {found['counted']:,.0f} "
                    f"| {found['sampled']:,.0f} | {found['seconds']:.1f} "
                    f"| {found['similar_peak_mb']:,.0f} |",
                    flush=True,
                )
    return out


def _exponents(found: dict[str, Any]) -> None:
    """Slopes between the smallest and the largest size, on logarithmic axes."""
    every = list(found.values())
    first, last = every[0], every[-1]
    if first is last:
        return
    seconds = math.log(_seconds(last) / _seconds(first))
    for over in ("interactions", "instances"):
        exponent = seconds / math.log(last[over] / first[over])
        print(f"\nSeconds grow as {over} to the power of {exponent:.2f}.")


def _seconds(found: dict[str, float]) -> float:
    return found["triples_s"] + found["similarity_s"]


def _memory(worlds: list[str], args: argparse.Namespace) -> dict[str, Any]:
    rows = {
        "retrieve, films drawn like ratings": lambda f: _pair(f["retrieve_by_popularity"]),
        "retrieve, any film": lambda f: _pair(f["retrieve_any_film"]),
        "retrieve after each addition (own copy)": lambda f: _pair(f["retrieve_after_add"]),
        "add an edge (own copy), p50 / p99": lambda f: _pair(f["add_edge"]),
        "add an edge, mean of the first 20 of a copy": lambda f: (
            f"{f['add_edge_amortised']:.0f} µs"
        ),
        "add a rating, three edges (own copy), p50 / p99": lambda f: _pair(f["add"]),
        "add a rating, mean of the first 20 of a copy": lambda f: f"{f['add_amortised']:.0f} µs",
        "copy": lambda f: f"{f['copy_us']:.1f} µs",
        "memory of a copy with 20 ratings": lambda f: f"{f['copy_with_20_ratings_kb']:.0f} KiB",
        "open": lambda f: f"{f['open_s']:.2f} s",
        "resident size with tables": lambda f: f"{f['graph_mb']:.0f} MiB",
    }
    found = {w: _median(["memory", w, args.data or ""], args.repeat) for w in worlds}
    print(f"\n| p50 / p99 | {' | '.join(worlds)} |\n|---|{'---:|' * len(worlds)}")
    for name, show in rows.items():
        print(f"| {name} | {' | '.join(show(found[w]) for w in worlds)} |")
    return found


def _many(worlds: list[str], args: argparse.Namespace) -> dict[str, Any]:
    rows = {
        "20,000 queries at once, films drawn like ratings": "popular",
        "20,000 queries at once, any film": "evenly",
        "2,000 queries one by one": "one_by_one",
        "1,000 agents rate four films each, in their copies": "rate",
        "s(u, x) of 4,000 pairs of these agents": "similarity_wave",
        "4,000 queries of these agents at once": "retrieve_wave",
    }
    found = {w: _median(["many", w, args.data or ""], args.repeat) for w in worlds}
    print(f"\n| seconds, clock / processor | {' | '.join(worlds)} |\n|---|{'---:|' * len(worlds)}")
    for name, key in rows.items():
        cells = [f"{found[w][key]['s']:.2f} / {found[w][key]['cpu_s']:.2f}" for w in worlds]
        print(f"| {name} | {' | '.join(cells)} |")
    return found


def _pair(found: dict[str, float]) -> str:
    return f"{found['p50']:.0f} / {found['p99']:.0f} µs"


def _median(words: list[str], repeat: int) -> dict[str, Any]:
    runs = []
    for _ in range(repeat):
        command = [sys.executable, str(Path(__file__).with_name("_stage.py")), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return _medians(runs)


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        key: _medians([run[key] for run in runs])
        if isinstance(value, dict)
        else statistics.median(run[key] for run in runs)
        for key, value in runs[0].items()
    }


def _machine(repeat: int, threads: int) -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}; {threads} threads for similar items; "
        f"median of {repeat} fresh processes; load at the start {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
