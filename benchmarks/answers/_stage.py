"""A measurement in a process of its own; prints a JSON document as its last line.

_stage.py build HOME ROWS                              a store, as runs of many answers leave it
_stage.py lookup HOME ROWS ASKED SHARE WHICH           AnswerStore.find
_stage.py duckdb HOME ROWS ASKED SHARE WHICH           the same by a join in DuckDB
_stage.py overhead FOLDER KIND EVERY ANSWERS           cost of one answer
_stage.py rerun FOLDER ANSWERS                         ask() twice
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, Tally, answer_key, ask
from pipelines.llm.answers._committer import part_name
from pipelines.llm.answers._parts import PartFile
from pipelines.llm.answers._record import identity_json, schema
from pipelines.llm.engines import Answer, Choice, EngineIdentity, Message, Request
from pipelines.llm.engines.scripted import ScriptedEngine

IDENTITY = EngineIdentity(
    "transformers", "5.19.0", "some/model-8b", "main", "ab" * 32, "cd" * 32, "bfloat16"
)
OPTIONS = tuple(str(n) for n in range(1, 11))
PIECE = 100_000


def main() -> None:
    """Run the measurement that the arguments name."""
    what, *words = sys.argv[1:]
    out = globals()[what](*words) or {}
    out["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(out))


def keys_of(start: int, count: int) -> bytes:
    """Keys of the rows from one on: random, and the same each time."""
    out = bytearray()
    while count:
        piece, at = divmod(start, PIECE)
        take = min(count, PIECE - at)
        out += np.random.default_rng(piece).bytes(32 * PIECE)[32 * at : 32 * (at + take)]
        start, count = start + take, count - take
    return bytes(out)


def build(home: str, rows: str) -> dict[str, float]:
    """Large parts, and some of every smaller size: what merging leaves of a long run."""
    folder = Path(home) / "answers"
    folder.mkdir(parents=True)
    left, start = int(rows), 0
    sizes = [n for size in (500, 8_000, 128_000) for n in [size] * 8]
    while sum(sizes) > left:
        sizes.pop()
    while (rest := left - sum(sizes)) > 0:
        sizes.append(min(rest, 2_000_000))
    for size in sorted(sizes, reverse=True):
        file = PartFile(folder / part_name(1_700_000_000_000_000 + start), [])
        for at in range(start, start + size, 16_000):
            file.write(answers_table(at, min(16_000, start + size - at)))
        file.close()
        start += size
    return {"bytes": sum(f.stat().st_size for f in folder.iterdir())}


def answers_table(start: int, count: int) -> pa.Table:
    """Answers to a scale of ten, as a model gives them."""
    random = np.random.default_rng(start)
    shares = random.dirichlet(np.ones(10), count)
    tokens = np.full(count, 1)
    columns: dict[str, Any] = {
        "key": pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(32), count, [None, pa.py_buffer(keys_of(start, count))]
        ),
        "status": ["ok"] * count,
        "max_tokens": tokens,
        "stored_at": 1_700_000_000_000_000 + start + np.arange(count),
        "text": np.array(OPTIONS)[shares.argmax(axis=1)],
        "probabilities": pa.ListArray.from_arrays(
            pa.array(np.arange(0, 10 * count + 1, 10), pa.int32()), pa.array(shares.ravel())
        ),
        "mass": random.random(count),
        "finish_reason": ["length"] * count,
        "prompt_tokens": random.integers(200, 900, count),
        "completion_tokens": tokens,
        "cached_tokens": random.integers(0, 200, count),
        "latency": random.random(count),
        "detail": [""] * count,
        "engine": [IDENTITY.engine] * count,
        "model": [IDENTITY.model] * count,
        "identity": [identity_json(IDENTITY)] * count,
        "request": pa.nulls(count),
    }
    return pa.table(
        [
            pa.array(columns[f.name]).cast(f.type)
            if not isinstance(columns[f.name], list)
            else pa.array(columns[f.name], f.type)
            for f in schema()
        ],
        schema=schema(),
    )


def asked_keys(rows: int, asked: int, share: float, which: str) -> list[str]:
    """Keys to look up, a share of them stored: anywhere in the store, or side by side."""
    known = int(asked * share)
    random = np.random.default_rng(99)
    if which == "neighbours":
        first = int(random.integers(0, rows - known + 1))
        raw = keys_of(first, known)
    else:
        wanted = np.sort(random.choice(rows, known, replace=False))
        pieces = []
        for piece in np.unique(wanted // PIECE):
            data = np.frombuffer(keys_of(int(piece) * PIECE, PIECE), np.uint8).reshape(-1, 32)
            pieces.append(data[wanted[wanted // PIECE == piece] - piece * PIECE])
        raw = random.permutation(np.concatenate(pieces)).tobytes()
    raw += random.bytes(32 * (asked - known))
    text = raw.hex()
    return [text[at : at + 64] for at in range(0, len(text), 64)]


def lookup(home: str, rows: str, asked: str, share: str, which: str) -> dict[str, float]:
    """Find keys and read everything about their answers."""
    keys = asked_keys(int(rows), int(asked), float(share), which)
    budgets = [1] * len(keys)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began, spent = time.perf_counter(), time.process_time()
    store = AnswerStore(home)
    store.find([])
    opened = time.perf_counter()
    found = store.find(keys, budgets)
    done, cpu = time.perf_counter(), time.process_time() - spent
    assert found.table.num_rows == int(int(asked) * float(share)), found.table.num_rows
    return {"open_s": opened - began, "find_s": done - opened, "cpu_s": cpu, "before_mb": base}


def duckdb(home: str, rows: str, asked: str, share: str, which: str) -> dict[str, float]:
    """The obvious alternative: join the keys with the files."""
    import duckdb as database

    keys = asked_keys(int(rows), int(asked), float(share), which)
    began, spent = time.perf_counter(), time.process_time()
    wanted = pa.table({"key": pa.array([bytes.fromhex(k) for k in keys], pa.binary())})
    link = database.connect(config={"threads": 2})
    link.register("wanted", wanted)
    found = link.sql(
        f"select a.key, status, text, probabilities, mass, finish_reason, prompt_tokens, "
        f"completion_tokens, cached_tokens, latency, detail "
        f"from read_parquet('{home}/answers/*.parquet') a join wanted using (key)"
    ).to_arrow_table()
    done, cpu = time.perf_counter(), time.process_time() - spent
    assert found.num_rows == int(int(asked) * float(share)), found.num_rows
    return {"find_s": done - began, "cpu_s": cpu}


def questions(kind: str, count: int) -> Iterator[Request]:
    """Questions of a usual length: some 2,000 characters that a user's share, and an item."""
    constraint = Choice(OPTIONS) if kind == "choice" else None
    for n in range(count):
        user = f"User {n // 100}. " + "She likes long quiet films about rivers. " * 45
        yield Request(
            (Message("system", user), Message("user", f"Film {n}: how many stars?")),
            constraint=constraint,
        )


def reply(kind: str, engine: EngineIdentity, request: Request) -> Answer:
    """An answer such as a model gives."""
    del engine
    if kind == "choice":
        shares = tuple([0.1] * 10)
        return Answer(request, "ok", "7", shares, 0.98, "length", 500, 1, 400, 0.01)
    text = f"A person of {hash(request) % 90} years who likes rivers. " * 12
    return Answer(request, "ok", text, None, None, "stop", 500, 120, 400, 0.01)


class Instant:
    """An engine that answers at once: what remains is the cost of asking and storing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.identity = IDENTITY

    def submit(self, requests: Iterator[Request]) -> Iterator[Answer]:
        """Answers in order."""
        return (reply(self.kind, self.identity, request) for request in requests)

    def metadata(self) -> dict[str, Any]:
        """No metadata."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def overhead(folder: str, kind: str, every: str, answers: str) -> dict[str, float]:
    """Microseconds per answer with a store and without, and the parts of the difference."""
    count = int(answers)
    made = list(questions(kind, count))
    engine = Instant(kind)
    began = time.perf_counter()
    for _ in engine.submit(iter(made)):
        pass
    bare = time.perf_counter() - began
    began = time.perf_counter()
    for request in made:
        answer_key(IDENTITY, request)
    key = time.perf_counter() - began
    serving = ServingSettings(commit_every=int(every))
    with tempfile.TemporaryDirectory(dir=folder) as home:
        store = AnswerStore(home, serving)
        commit = 0.0
        flush = store.flush

        def timed() -> int:
            nonlocal commit
            start = time.perf_counter()
            done = flush()
            commit += time.perf_counter() - start
            return done

        store.flush = timed  # type: ignore[method-assign]
        began, spent = time.perf_counter(), time.process_time()
        for _ in ask(engine, iter(made), store, serving=serving):
            pass
        whole, cpu = time.perf_counter() - began, time.process_time() - spent
        parts = len(list(store.folder.glob("*.parquet")))
    scale = 1e6 / count
    return {
        "store_us": (whole - bare) * scale,
        "cpu_us": cpu * scale,
        "key_us": key * scale,
        "commit_us": commit * scale,
        "bare_us": bare * scale,
        "parts": parts,
    }


def rerun(folder: str, answers: str) -> dict[str, float]:
    """Ask all requests, then ask them again from another process's store."""
    made = list(questions("choice", int(answers)))
    serving = ServingSettings()
    engine = ScriptedEngine(lambda request: {"7": 0.9, "8": 0.1}, name="sevens")
    with tempfile.TemporaryDirectory(dir=folder) as home:
        seconds = []
        for _ in range(2):
            tally = Tally()
            began = time.perf_counter()
            with AnswerStore(home, serving) as store:
                for _ in ask(engine, iter(made), store, serving=serving, tally=tally):
                    pass
            seconds.append(time.perf_counter() - began)
    return {"first_s": seconds[0], "again_s": seconds[1], "calls": tally.calls}


if __name__ == "__main__":
    main()
