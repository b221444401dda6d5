"""Scoring through our engines, a one-prompt loop and plain vLLM, over the same prompts.

    .venv-vllm/bin/python benchmarks/scoring/compare.py FOLDER      # a Llama, such as smollm2-135m

Prompts are `LLMRater`'s, user after user. *loop* asks one after the other and reuses nothing.
*transformers* and *vllm* are our engines. *vLLM generate* is what one writes without us: one call
of `LLM.generate` for the whole list, prefix caching on, 20 log-probabilities per answer; with
`block 32` it has the block of the cache that our engine chooses on a CPU (vLLM's own is 128).
``--tool distilabel=PYTHON`` and ``--tool DataDesigner=PYTHON`` send the prompts as messages from
another environment to vLLM's own server (float32, block 32), whose processor time is counted, too.
Each path has a process of its own; figures are medians of --repeat runs over personas that no run
saw before, after four pairs that are not counted. Ratios are by processor time, which other work
on the machine moves less than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parents[1] / "tests")]

PATHS = ("loop", "transformers", "vllm", "vLLM generate", "vLLM generate, block 32")

Row = dict[str, Any]
#: Serves requests; computed tokens and the probabilities of each request's options.
Serve = Callable[[list[Row]], tuple[int, list[list[float]]]]


def main() -> None:
    """Measure every path, or as a child process one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="folder of a Llama")
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=PATHS)
    parser.add_argument("--tool", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layout", default="plain", help="layout of the prompts")
    parser.add_argument("--scale", default="1-5")
    parser.add_argument("--personas", type=int, default=2, help="personas of each run")
    parser.add_argument("--items", type=int, default=40, help="items that each of them rates")
    parser.add_argument("--history", type=int, default=10, help="past ratings in each prompt")
    parser.add_argument("--loop-pairs", type=int, default=4, help="pairs of the loop in each run")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", help="also write the figures here")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.task:
        task = json.loads(Path(args.task).read_text(encoding="utf-8"))
        row = measure(task, args)
        Path(task["out"]).write_text(json.dumps(row), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as place:
        runs = [prompts(run, args) for run in range(args.repeat + 1)]
        rows = [_child(path, runs, Path(place)) for path in args.paths]
        if args.tool:
            rows += _tools(runs, Path(place), args)
    _print(rows, runs, args)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def prompts(run: int, args: argparse.Namespace) -> list[Row]:
    """Token ids, options with their token, and group of a run's requests."""
    import numpy as np
    from run import tables

    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import load_engine
    from pipelines.llm.engines.chat import render
    from pipelines.llm.engines.tokens import encode_on, load_tokenizer
    from pipelines.raters import LLMRater
    from pipelines.scales import scale_named

    tokenizer = load_tokenizer(args.checkpoint)
    people, items, histories = tables(run, args)
    engine = load_engine(EngineSettings(kind="scripted"), ServingSettings())
    rater = LLMRater(
        engine, scale_named(args.scale), history=args.history, catalogue=items,
        tokenizer=tokenizer, serving=ServingSettings(), layout=args.layout,
    )  # fmt: skip
    every = np.array([(p, i) for p in range(people.height) for i in range(args.items)])
    found = []
    for request in rater.requests(people, items, histories, pairs=every):
        options: Any = request.constraint
        ids = [encode_on(tokenizer, option) for option in options.options]
        assert all(len(i) == 1 for i in ids), "options of one token only"
        tokens = request.tokens or render(tokenizer, request.messages)
        found.append(
            {"tokens": list(tokens), "options": list(options.options),
             "ids": [i[0] for i in ids], "group": request.group,
             "messages": [{"role": m.role, "content": m.content} for m in request.messages
                          if m.role != "assistant"]}
        )  # fmt: skip
    return found


def _child(path: str, runs: list[list[Row]], place: Path) -> Row:
    print(f"... {path}", file=sys.stderr, flush=True)
    out, task = place / "out.json", place / "task.json"
    task.write_text(json.dumps({"path": path, "runs": runs, "out": str(out)}), encoding="utf-8")
    threads = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
    environment = os.environ | {
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": threads,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    words = [sys.executable, __file__, *sys.argv[1:], "--task", str(task)]
    subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)
    row: Row = json.loads(out.read_text(encoding="utf-8"))
    return row


def _tools(runs: list[list[Row]], place: Path, args: argparse.Namespace) -> list[Row]:
    """Figures of tools that ask vLLM's server; each has a server of its own."""
    import psutil

    sys.path.append(str(HERE.parent / "engines"))
    from _stage import _server

    os.environ |= {"OMP_NUM_THREADS": str(args.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    rows, out, file = [], place / "out.json", place / "task.json"
    for path, _, python in (one.partition("=") for one in args.tool):
        print(f"... {path}", file=sys.stderr, flush=True)
        with _server({"model": str(args.checkpoint)}) as address:
            [server] = psutil.Process().children()
            task = {"path": path, "runs": runs, "out": str(out), "address": address}
            file.write_text(json.dumps(task | {"server": server.pid}), encoding="utf-8")
            words = [python, str(HERE / "_tools.py"), str(file)]
            done = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        if done.returncode:
            print(f"{path} failed:\n{done.stdout[-3_000:]}", file=sys.stderr)
            continue
        found = json.loads(out.read_text(encoding="utf-8"))
        pairs_s, pairs_cpu_s = (
            statistics.median(column) for column in zip(*found["figures"], strict=True)
        )
        rows.append(
            {"path": path, "pairs_s": pairs_s, "pairs_cpu_s": pairs_cpu_s, "valid": found["valid"]}
        )
    return rows


def measure(task: Row, args: argparse.Namespace) -> Row:
    """Medians over the runs but the first, and the last run's probabilities."""
    import torch
    from run import matmul_peak, matrix_weights

    torch.set_num_threads(args.threads)
    path = task["path"]
    serve = plain_vllm(path, args) if path.startswith("vLLM") else our_engine(path, args)
    figures, answers = [], {}
    for n, requests in enumerate(task["runs"]):
        asked = requests[:: len(requests) // args.loop_pairs] if path == "loop" else requests
        asked = asked if n else asked[:4]
        clock, cpu = time.perf_counter(), time.process_time()
        computed, probabilities = serve(asked)
        seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
        size = sum(len(r["tokens"]) for r in asked)
        assert len(probabilities) == len(asked)
        if n:
            figures.append(
                (
                    len(asked) / seconds,
                    len(asked) / cpu,
                    size / cpu,
                    computed / size,
                    computed / cpu,
                )
            )
            answers = dict(zip((tuple(r["tokens"]) for r in asked), probabilities, strict=True))
    shape = json.loads((args.checkpoint / "config.json").read_text(encoding="utf-8"))
    medians = [statistics.median(column) for column in zip(*figures, strict=True)]
    names = ("pairs_s", "pairs_cpu_s", "tokens_cpu_s", "computed", "computed_cpu_s")
    peak = matmul_peak("cpu", args.dtype, clock=time.process_time) * 1e12
    row = dict(zip(names, medians, strict=True))
    row["share"] = 2 * matrix_weights(shape) * row["computed_cpu_s"] / peak
    last = [answers.get(tuple(r["tokens"])) for r in task["runs"][-1]]
    return row | {"path": path, "peak": peak, "last": last}


def our_engine(path: str, args: argparse.Namespace) -> Serve:
    """One of our engines, or the transformers one without any reuse."""
    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import Choice, Request, load_engine

    own: Row = {"window": args.window, "batch_tokens": args.batch_tokens}
    if path == "loop":
        own |= {"window": 1, "prefix_reuse": False}
    engine = load_engine(
        EngineSettings(
            kind="vllm" if path == "vllm" else "transformers",
            model=str(args.checkpoint),
            dtype=args.dtype,
        ),
        ServingSettings(device="cpu", **own),
    )

    def serve(requests: list[Row]) -> tuple[int, list[list[float]]]:
        asked = [
            Request(tokens=tuple(r["tokens"]), constraint=Choice(tuple(r["options"])),
                    group=r["group"], tag=n)
            for n, r in enumerate(requests)
        ]  # fmt: skip
        groups = [[one] for one in asked] if path == "loop" else [asked]
        answers = [a for group in groups for a in engine.submit(group)]
        assert {a.status for a in answers} == {"ok"}
        answers.sort(key=lambda a: a.request.tag)
        computed = sum(a.prompt_tokens - a.cached_tokens for a in answers)
        return computed, [list(a.probabilities or ()) for a in answers]

    return serve


def plain_vllm(path: str, args: argparse.Namespace) -> Serve:
    """Offline `generate` of vLLM, as its documentation has it."""
    import math

    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    more = {"block_size": 32} if path.endswith("32") else {}
    model = LLM(
        model=str(args.checkpoint),
        dtype=args.dtype,
        enforce_eager=True,  # as our engine on a CPU; compiling takes minutes there
        enable_prefix_caching=True,
        kv_cache_memory_bytes=1 << 30,
        max_model_len=2048,
        **more,
    )
    sampling = SamplingParams(max_tokens=1, temperature=0.0, logprobs=20)

    def serve(requests: list[Row]) -> tuple[int, list[list[float]]]:
        asked = [TokensPrompt(prompt_token_ids=r["tokens"]) for r in requests]
        answers = model.generate(asked, sampling, use_tqdm=False)
        found = []
        for request, answer in zip(requests, answers, strict=True):
            [logs] = answer.outputs[0].logprobs
            # An option that is not among the twenty has no probability here.
            read = [math.exp(logs[i].logprob) if i in logs else 0.0 for i in request["ids"]]
            found.append([p / (sum(read) or 1.0) for p in read])
        return sum(len(a.prompt_token_ids) - a.num_cached_tokens for a in answers), found

    return serve


def _print(rows: list[Row], runs: list[list[Row]], args: argparse.Namespace) -> None:
    by = {row["path"]: row for row in rows}
    size = statistics.median(len(r["tokens"]) for run in runs for r in run)
    print(
        f"{args.checkpoint.name}, {args.dtype}; {os.cpu_count()} cores ({platform.machine()}), "
        f"{args.threads} thread, load {os.getloadavg()[0]:.1f} at the end; {args.personas} "
        f"personas x {args.items} items, prompts of {size:.0f} tokens; "
        f"medians of {args.repeat} runs.\n\n"
        "| path | pairs/s | pairs per CPU s | prompt tokens per CPU s | tokens computed | x loop "
        "| x vLLM generate | share of matmul rate | largest difference |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for row in rows:
        ratios = [
            f"{row['pairs_cpu_s'] / by[base]['pairs_cpu_s']:.2f}" if base in by else ""
            for base in ("loop", "vLLM generate")
        ]
        cells = [f"{row['pairs_s']:.1f}", f"{row['pairs_cpu_s']:.2f}"]
        if "share" in row:
            cells += [f"{row['tokens_cpu_s']:,.0f}", f"{row['computed']:.1%}", *ratios]
            cells += [f"{row['share']:.0%}", f"{_difference(row, by['transformers']):.0e}"]
        else:
            cells += ["", "", *ratios, "", f"{row['valid']:.0%} of answers are options"]
        print(f"| {row['path']} | " + " | ".join(cells) + " |")
    peaks = ", ".join(f"{row['peak'] / 1e9:.0f}" for row in rows if "peak" in row)
    print(f"\nMatrix products of 2,048 x 2,048: {peaks} GFLOP per CPU second, path by path.")


def _difference(row: Row, base: Row) -> float:
    """Largest difference of a probability to another path's."""
    pairs = zip(row["last"], base["last"], strict=True)
    return max(abs(a - b) for x, y in pairs if x and y for a, b in zip(x, y, strict=True))


if __name__ == "__main__":
    main()
