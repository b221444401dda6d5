"""Requests and tokens per second of every engine on the same prompts.

    .venv-vllm/bin/python benchmarks/engines/run.py            # all engines, about five minutes
    .venv/bin/python benchmarks/engines/run.py --engines plain transformers scripted

A Llama of about 15 million random parameters is made on the spot. Engines that this interpreter
can't run are left out and named. Each engine has a process of its own; every figure is the median
of --repeat runs, each over prompts that no run saw before, after one run that is not counted.
Ratios are to the plain loop, one prompt after the other, of the same call, and by processor time
(of the process and of the server that it started): other work on the machine moves them less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENGINES = ("plain", "transformers", "vllm", "openai", "scripted")

Row = dict[str, Any]


def main() -> None:
    """Measure and print Markdown (and JSON with ``--json``)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--users", type=int, default=4, help="users, each with a prefix of its own")
    parser.add_argument("--items", type=int, default=12, help="requests per user")
    parser.add_argument(
        "--prefix", type=int, default=600, help="tokens that a user's prompts share"
    )
    parser.add_argument(
        "--windows", nargs="+", type=int, default=[8, 48], help="last: for writing too"
    )
    parser.add_argument("--write", type=int, default=16, help="tokens of a written answer")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--model", help="folder of another checkpoint")
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        model = (
            args.model
            or _stage({"stage": "model", "threads": args.threads, "folder": f"{place}/llama-15m"})[
                0
            ]["folder"]
        )
        rows = [row for name in args.engines for row in _stage(_task(args, name, model))]
    print(_machine(args), end="\n\n")
    print(_table([r for r in rows if r["case"] == "choice"], rows, "prompt tokens/s"))
    print()
    print(_table([r for r in rows if r["case"] in ("free", "grammar")], rows, "written tokens/s"))
    for row in rows:
        if row["case"] == "absent":
            print(f"\n{row['engine']} is left out: {row['why']}")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def _task(args: argparse.Namespace, engine: str, model: str) -> Row:
    task = {k: v for k, v in vars(args).items() if k not in ("engines", "json")}
    return task | {"stage": "engine", "engine": engine, "model": model}


def _stage(task: Row) -> list[Row]:
    """Figures of a measurement in a process of its own."""
    print(f"... {task.get('engine', task['stage'])}", file=sys.stderr, flush=True)
    # vLLM's sampler would compile one function for half a minute at its first choice.
    environment = os.environ | {
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(task["threads"]),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    words = [sys.executable, str(HERE / "_stage.py"), json.dumps(task)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"the process of {task} failed with {done.returncode}")
    rows: list[Row] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _machine(args: argparse.Namespace) -> str:
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {args.threads} threads, "
        f"Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the end; {args.users} users × {args.items} items, "
        f"prefix {args.prefix} tokens, medians of {args.repeat} runs."
    )


def _table(shown: list[Row], rows: list[Row], unit: str) -> str:
    base = {r["case"]: r["requests_cpu_s"] for r in rows if r["engine"] == "plain"}
    lines = [
        f"| engine | prefixes reused | constraint | window | requests/s | {unit} "
        "| requests per CPU s | × plain |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in shown:
        plain = base.get(row["case"]) or base.get("free")
        ratio = f"{row['requests_cpu_s'] / plain:,.1f}" if plain else ""
        lines.append(
            f"| {row['engine']} | {row['reuse']} | {row['constraint']} | {row['window']} "
            f"| {row['requests_s']:,.1f} | {row['tokens_s']:,.0f} "
            f"| {row['requests_cpu_s']:,.1f} | {ratio} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
