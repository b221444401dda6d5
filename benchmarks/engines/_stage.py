"""Measurement of an engine in a process of its own; called by run.py."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

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


def main() -> None:
    """Run the task of the first argument; print its rows as the last line."""
    task: Task = json.loads(sys.argv[1])
    if task["stage"] == "model":
        rows = [make_model(Path(task["folder"]))]
    else:
        rows = {
            "plain": plain_rows,
            "transformers": transformers_rows,
            "vllm": vllm_rows,
            "openai": openai_rows,
            "scripted": scripted_rows,
        }[task["engine"]](task)
    sys.stdout.flush()
    print("\n" + json.dumps(rows))


def make_model(folder: Path) -> Row:
    from support.tiny_models import tiny_checkpoint

    return {"folder": str(tiny_checkpoint(folder, shape=SHAPE))}


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


def cpu_seconds() -> float:
    """Processor time of this process and of a server that it started."""
    total = time.process_time()
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def measured(
    task: Task, serve: Callable[[list[Any]], list[tuple[int, int]]], case: str, count: int | None
) -> Row:
    """Medians over the runs; ``serve`` gives prompt and written tokens per request."""
    rates, tokens, busy = [], [], []
    for run in range(task["repeat"] + 1):
        requests = asked(task, run, case, count)
        began, worked = time.perf_counter(), cpu_seconds()
        sizes = serve(requests)
        seconds, worked = time.perf_counter() - began, cpu_seconds() - worked
        assert len(sizes) == len(requests)
        if run:
            rates.append(len(sizes) / seconds)
            tokens.append(sum(s[0 if case == "choice" else 1] for s in sizes) / seconds)
            busy.append(len(sizes) / worked)
    return {
        "case": case,
        "constraint": {"choice": "choice of 5", "free": "none", "grammar": "grammar"}[case],
        "requests_s": statistics.median(rates),
        "tokens_s": statistics.median(tokens),
        "requests_cpu_s": statistics.median(busy),
    }


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


def transformers_rows(task: Task) -> list[Row]:
    return _local(task, "transformers")


def vllm_rows(task: Task) -> list[Row]:
    from pipelines.llm.engines.vllm import vllm_version

    if vllm_version() is None:
        return [{"engine": "vllm", "case": "absent", "why": "vLLM is not installed here"}]
    return _local(task, "vllm")


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
    from pipelines.llm.engines.vllm import vllm_version

    if vllm_version() is None:
        return [{"engine": "openai", "case": "absent", "why": "no vLLM here to serve the model"}]
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


if __name__ == "__main__":
    main()
