"""Personas written by a model under the grammar; prints Markdown tables.

python benchmarks/personas/model_writer.py                            a tiny random model
python benchmarks/personas/model_writer.py --model FOLDER --full      a checkpoint, real lengths
python benchmarks/personas/model_writer.py --base-url URL --model NAME --engines openai
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
ENGINES = ("guidance", "transformers", "openai")


@dataclass
class Figure:
    """Figures of an engine in a repeat.

    Attributes
    ----------
    asked, valid
        Personas asked for, and those whose first reply was a record (count).
    tokens
        Tokens of the replies (count).
    seconds
        From the first request to the last reply.
    processor
        Processor time of this process meanwhile (seconds); a server's is not in it.
    """

    asked: int
    valid: int
    tokens: int
    seconds: float
    processor: float

    @property
    def per_minute(self) -> float:
        """Valid personas per minute."""
        return 60 * self.valid / self.seconds

    @property
    def token_rate(self) -> float:
        """Reply tokens per second."""
        return self.tokens / self.seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument(
        "--model", help="checkpoint folder, or the model's name on the server of --base-url"
    )
    parser.add_argument("--base-url", help="a running server; default: the tests' own, started")
    parser.add_argument("--count", type=int, default=24, help="personas per run (count)")
    parser.add_argument("--one-by-one", type=int, default=6, help="of them, by Guidance (count)")
    parser.add_argument("--window", type=int, default=32, help="requests at a time (count)")
    parser.add_argument("--repeat", type=int, default=3, help="runs; medians are printed (count)")
    parser.add_argument(
        "--genres", choices=("sampled", "model"), nargs="+", default=["sampled", "model"]
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="texts as long as in a real run; a model with 1,024 tokens has no room for them",
    )
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(Path(arguments.serve))
        return
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or tiny(Path(scratch) / "tiny-model")
        print(
            f"{arguments.count} personas, medians of {arguments.repeat} runs, "
            f"model {Path(model).name}\n"
        )
        print(
            "| genres | engine | valid at first attempt | tokens per persona | personas/min "
            "| tokens/s | ms/token, processor | free | grammar costs |"
        )
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
        for genres in arguments.genres:
            for name in arguments.engines:
                print(row(name, genres, model, arguments), flush=True)


def tiny(folder: Path) -> str:
    """The test suite's checkpoint: random weights, a trained tokenizer, 1,024 tokens of context."""
    _find_test_helpers()
    from support.tiny_models import tiny_checkpoint

    return str(tiny_checkpoint(folder))


def _find_test_helpers() -> None:
    # The root first: `tests` has folders named like our packages.
    sys.path[:0] = [str(REPOSITORY)]
    sys.path.append(str(REPOSITORY / "tests"))


def row(name: str, genres: str, model: str, arguments: argparse.Namespace) -> str:
    """A line of the table."""
    with opened(name, model, arguments) as measure:
        pairs = [measure(genres, 100 + n) for n in range(arguments.repeat + 1)][1:]
    bound = [one for one, _ in pairs]
    free = [other for _, other in pairs if other is not None]
    asked, valid = sum(f.asked for f in bound), sum(f.valid for f in bound)
    median = statistics.median
    cells = [
        genres,
        name,
        f"{valid / asked:.1%} of {asked}",
        f"{median(f.tokens / f.asked for f in bound):.0f}",
        f"{median(f.per_minute for f in bound):,.0f}",
        f"{median(f.token_rate for f in bound):,.0f}",
    ]
    # Processor time is what other work on the machine moves least; a server's is out of reach.
    cost = elapsed if name == "openai" else processed
    cells.append(f"{median(map(cost, bound)):.2f}" if name != "openai" else "")
    if free:
        ratios = [cost(b) / cost(f) for b, f in zip(bound, free, strict=True)]
        cells.append(f"{median(map(cost, free)):.2f}" if name != "openai" else "")
        cells.append(f"{median(ratios) - 1:+.0%}")
    else:
        cells += ["", ""]
    return f"| {' | '.join(cells)} |"


def elapsed(figure: Figure) -> float:
    """Time per token (ms)."""
    return 1e3 * figure.seconds / figure.tokens


def processed(figure: Figure) -> float:
    """Processor time per token (ms)."""
    return 1e3 * figure.processor / figure.tokens


@contextmanager
def opened(name: str, model: str, arguments: argparse.Namespace) -> Iterator[Any]:
    """A function that measures one engine, with grammar and without, on the same prompts."""
    from pipelines.config import Settings
    from pipelines.llm.engines import load_engine

    with served(model, arguments) if name == "openai" else local(model) as where:
        settings = Settings(
            engine={"kind": name, "model": where.get("name", model)},
            serving={"window": arguments.window, **where.get("serving", {})},
        )
        engine = load_engine(settings.engine, settings.serving)
        try:
            count = arguments.one_by_one if name == "guidance" else arguments.count
            yield lambda genres, seed: by_engine(engine, genres, seed, count, full=arguments.full)
        finally:
            engine.close()


@contextmanager
def local(model: str) -> Iterator[dict[str, Any]]:
    """A checkpoint in this process."""
    yield {"name": model}


@contextmanager
def served(model: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A server: the one that was named, or the tests' own in a process of its own."""
    if arguments.base_url:
        yield {"name": model, "serving": {"base_url": arguments.base_url}}
        return
    command = [sys.executable, __file__, "--serve", model]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url, name = run.stdout.readline().split()
        try:
            yield {"name": name, "serving": {"base_url": url, "concurrency": 8}}
        finally:
            run.terminate()


def serve(folder: Path) -> None:
    """The tests' server until this process is ended."""
    _find_test_helpers()
    from support.llm_server import LlmServer

    with LlmServer(folder, "vllm") as server:
        print(server.url, server.name, flush=True)
        sys.stdin.read()


def requests_for(genres: str, seed: int, count: int, *, full: bool) -> tuple[Any, list[Any]]:
    """A writer and the requests that it would make."""
    from pipelines.config import PersonaSettings
    from pipelines.llm.engines.scripted import ScriptedEngine
    from pipelines.llm.grammars import TextLimits
    from pipelines.personas import ModelWriter, sample_attributes

    limits = None if full else TextLimits((1, 1), (20, 50))
    settings = PersonaSettings(writer="model", genres=genres)  # type: ignore[arg-type]
    writer = ModelWriter(ScriptedEngine(name="draws-nothing"), settings, limits=limits)
    attributes = sample_attributes(seed, "benchmark", np.arange(count))
    return writer, list(writer.requests(attributes))


def by_engine(
    engine: Any, genres: str, seed: int, count: int, *, full: bool
) -> tuple[Figure, Figure]:
    """The same prompts under the grammar and without one, the replies as long."""
    _, asked = requests_for(genres, seed, count, full=full)
    bound = timed(engine, asked)
    # As many tokens as the grammar's replies took, so that only the grammar differs.
    length = max(1, round(bound.tokens / bound.asked))
    free = [
        replace(r, constraint=None, sampling=replace(r.sampling, max_tokens=length)) for r in asked
    ]
    return bound, timed(engine, free)


def timed(engine: Any, requests: list[Any]) -> Figure:
    """Ask the requests; replies that are records count as valid."""
    valid = tokens = 0
    started, worked = time.perf_counter(), time.process_time()
    for answer in engine.submit(iter(requests)):
        grammar = answer.request.tag[1]
        tokens += answer.completion_tokens
        valid += answer.status == "ok" and grammar.parse(answer.text) is not None
    took, spent = time.perf_counter() - started, time.process_time() - worked
    return Figure(len(requests), valid, tokens, took, spent)


if __name__ == "__main__":
    main()
