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

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

ENGINES = ("plain", "transformers", "vllm", "openai", "scripted")
COLUMNS = {
    "engine": "{engine}", "prefixes reused": "{reuse}", "constraint": "{constraint}",
    "window": "{window:}", "requests/s": "{requests_s:,.1f}",
    "tokens read or written/s": "{tokens_s:,.0f}", "requests per CPU s": "{requests_cpu_s:,.1f}",
    "× plain": "{ratio:,.1f}",
}  # fmt: skip
Row = dict[str, Any]
Task = dict[str, Any]

#: About 15 million parameters.
SHAPE = {
    "hidden_size": 384,
    "intermediate_size": 1152,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
}
#: Prompts that are read without reuse, and answers that are written: a rate needs no more.
FEW, WRITTEN = 12, 24


def make_model(folder: str) -> Row:
    """The checkpoint, in a process of its own."""
    sys.path[:0] = [str(harness.REPOSITORY), str(harness.REPOSITORY / "tests")]
    from support.tiny_models import tiny_checkpoint

    return {"folder": str(tiny_checkpoint(Path(folder), shape=SHAPE))}


def measure_engine(task: Task) -> Row:
    """Rows of an engine."""
    measurements = {
        "plain": plain_rows,
        "transformers": partial(_local, kind="transformers"),
        "vllm": partial(_local, kind="vllm"),
        "openai": openai_rows,
        "scripted": scripted_rows,
    }
    if task["engine"] in ("vllm", "openai"):
        from pipelines.llm.engines.vllm import vllm_version

        if vllm_version() is None:
            return {"rows": [{"engine": task["engine"], "constraint": "vLLM is not installed"}]}
    return {"rows": measurements[task["engine"]](task)}


def asked(task: Task, run: int, case: str, count: int | None = None) -> list[Any]:
    """The requests of one run, user after user: prefixes differ between runs, never the sizes."""
    import numpy as np

    from pipelines.llm.engines import Choice, Regex, Request, Sampling

    dice = np.random.default_rng([run, 7])
    constraint: Any = None
    if case == "choice":
        constraint = Choice(tuple("12345"))
    elif case == "grammar":
        # As long as a free answer, whatever the model says.
        constraint = Regex("(I (like|hate) (drama|comedy|horror)\\. ){40}")
    sampling = Sampling(max_tokens=task["write"])
    requests = []
    for user in range(task["users"]):
        prefix = dice.integers(300, 1900, size=task["prefix"]).tolist()
        for item in range(task["items"]):
            suffix = dice.integers(300, 1900, size=24).tolist()
            requests.append(
                Request(
                    tokens=tuple(prefix + suffix),
                    constraint=constraint,
                    sampling=sampling,
                    seed=item,
                    group=f"{run} {user}",
                )
            )
    return requests[:count]


def server_seconds() -> float:
    """Processor time of the servers that this process started."""
    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return float(sum(t.user + t.system for t in times))


def measured(
    task: Task, serve: Callable[[list[Any]], list[tuple[int, int]]], case: str, count: int | None
) -> Row:
    """Medians over the runs; ``serve`` gives prompt and written tokens per request."""
    runs = []
    for run in range(task["repeat"] + 1):
        requests = asked(task, run, case, count)
        before = server_seconds()
        with harness.Clock() as clock:
            sizes = serve(requests)
        cpu_s = clock.cpu_s + server_seconds() - before
        assert len(sizes) == len(requests)
        tokens = sum(s[0 if case == "choice" else 1] for s in sizes)
        runs.append(
            {
                "requests_s": len(sizes) / clock.wall_s,
                "tokens_s": tokens / clock.wall_s,
                "requests_cpu_s": len(sizes) / cpu_s,
            }
        )
    constraint = {"choice": "choice of 5", "free": "none", "grammar": "grammar"}[case]
    return {"case": case, "constraint": constraint, **harness.medians(runs[1:])}


def served(engine: Any) -> Callable[[list[Any]], list[tuple[int, int]]]:
    def serve(requests: list[Any]) -> list[tuple[int, int]]:
        answers = list(engine.submit(requests))
        bad = [a for a in answers if a.status not in ("ok", "truncated")]
        assert not bad, bad[0]
        return [(a.prompt_tokens, a.completion_tokens) for a in answers]

    return serve


def plain_rows(task: Task) -> list[Row]:
    """A forward pass per prompt, and `generate` per answer: what one writes first."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(task["model"], dtype="float32").eval()

    @torch.inference_mode()
    def choose(requests: list[Any]) -> list[tuple[int, int]]:
        for request in requests:
            logits = model(torch.tensor([request.tokens]), logits_to_keep=1).logits[0, -1]
            torch.log_softmax(logits, -1)[300:305].tolist()
        return [(len(r.tokens), 1) for r in requests]

    @torch.inference_mode()
    def write(requests: list[Any]) -> list[tuple[int, int]]:
        for request in requests:
            model.generate(
                torch.tensor([request.tokens]),
                do_sample=True,
                min_new_tokens=task["write"],
                max_new_tokens=task["write"],
                pad_token_id=0,
            )
        return [(len(r.tokens), task["write"]) for r in requests]

    same = {"engine": "plain", "reuse": "no", "window": 1}
    return [
        same | measured(task, choose, "choice", FEW),
        same | measured(task, write, "free", FEW),
    ]


def _local(task: Task, kind: str) -> list[Row]:
    rows: list[Row] = []
    most = max(task["windows"])
    for window in task["windows"]:
        with _opened(task, kind, window=window) as engine:
            rows.append(_row(kind, "yes", window, measured(task, served(engine), "choice", None)))
            if window == most:
                for case in ("free", "grammar"):
                    found = measured(task, served(engine), case, WRITTEN)
                    rows.append(_row(kind, "yes", window, found))
    with _opened(task, kind, window=most, prefix_reuse=False) as engine:
        rows.append(_row(kind, "no", most, measured(task, served(engine), "choice", FEW)))
    return rows


def _row(engine: str, reuse: str, window: int, found: Row) -> Row:
    return {"engine": engine, "reuse": reuse, "window": window} | found


@contextmanager
def _opened(task: Task, kind: str, **serving: Any) -> Iterator[Any]:
    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import load_engine

    engine = load_engine(
        EngineSettings(kind=kind, model=task["model"]),  # type: ignore[arg-type]
        ServingSettings(**serving),
    )
    try:
        yield engine
    finally:
        engine.close()


def openai_rows(task: Task) -> list[Row]:
    """The openai engine, asking vLLM's own server on this machine."""
    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import load_engine

    rows = []
    window = max(task["windows"])
    with _server(task) as address:
        engine = load_engine(
            EngineSettings(kind="openai", model="bench"),
            ServingSettings(base_url=address, window=window),
        )
        for case, count in (("choice", None), ("free", WRITTEN), ("grammar", WRITTEN)):
            found = measured(task, served(engine), case, count)
            rows.append(_row("openai (vLLM server)", "yes", window, found))
        engine.close()
    return rows


@contextmanager
def _server(task: Task) -> Iterator[str]:
    import httpx

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", task["model"]]
    words += ["--served-model-name", "bench", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]
    words += ["--kv-cache-memory-bytes", str(1 << 30), "--disable-log-stats"]
    words += ["--structured-outputs-config", '{"backend": "guidance"}']
    environment = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        for _ in range(400):
            if process.poll() is not None:
                sys.exit(f"vLLM's server ended with {process.returncode}")
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        else:
            sys.exit("vLLM's server does not start")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def scripted_rows(task: Task) -> list[Row]:
    """No model: what the seam itself costs."""
    window = max(task["windows"])
    with _opened(task | {"model": ""}, "scripted", window=window) as engine:
        found = measured(task, served(engine), "choice", None)
    return [_row("scripted (no model)", "no", window, found)]


def main() -> None:
    """Measure and print Markdown."""
    parser = harness.parser(__doc__)
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
    args = parser.parse_args()
    # vLLM's sampler would compile one function for half a minute at its first choice.
    env = {
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(args.threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    sizes = ("users", "items", "prefix", "windows", "write", "repeat")
    task = {name: getattr(args, name) for name in sizes}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        model = args.model or harness.measure(make_model, f"{place}/llama-15m", env=env)["folder"]
        for engine in args.engines:
            given = task | {"engine": engine, "model": model}
            rows += harness.measure(measure_engine, given, env=env)["rows"]
    plain = {row["case"]: row for row in rows if row["engine"] == "plain"}
    for row in rows:
        if base := plain.get(row.get("case", "")) or (plain.get("free") if "case" in row else None):
            harness.add_ratios([row], "requests_cpu_s", base)
    harness.report(args, rows, COLUMNS)


if __name__ == "__main__":
    harness.start(main)
