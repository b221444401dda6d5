"""A measurement in a process of its own; prints a JSON document as its last line.

_stage.py build HOME ROWS                              a store of so many answers
_stage.py lookup HOME ROWS ASKED SHARE WHICH           AnswerStore.look_up, as `ask` calls it
_stage.py store HOME ROWS ANSWERS                      add answers to a store of so many
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
from typing import Any

import numpy as np

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, Tally, answer_key, ask
from pipelines.llm.answers._file import Row, checksum, identity_number
from pipelines.llm.answers._record import identity_json
from pipelines.llm.engines import Answer, Choice, EngineIdentity, Message, Request, Sampling
from pipelines.llm.engines.scripted import ScriptedEngine

IDENTITY = EngineIdentity(
    "transformers", "5.19.0", "some/model-8b", "main", "ab" * 32, "cd" * 32, "bfloat16"
)
OPTIONS = tuple(str(n) for n in range(1, 11))
PIECE = 100_000
BATCH = 10_000
#: Requests that `ask` looks up at once.
CHUNK = 8192
NUMBER = identity_number(identity_json(IDENTITY))


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
    """Answers to a scale of ten, committed 10,000 at a time."""
    document = identity_json(IDENTITY)
    began = time.process_time()
    with AnswerStore(home) as store:
        file = store._file(None)
        for start in range(0, int(rows), BATCH):
            file.store(answers_rows(start, BATCH), {NUMBER: document})
        size = file.size()
    return {"bytes": size, "cpu_s": time.process_time() - began}


def answers_rows(start: int, count: int) -> list[Row]:
    """Answers to a scale of ten, as a model gives them."""
    random = np.random.default_rng(start)
    shares = random.dirichlet(np.ones(10), count)
    keys = keys_of(start, count)
    columns = zip(
        np.array(OPTIONS)[shares.argmax(axis=1)].tolist(),
        shares.astype("<f8"),
        random.random(count).tolist(),
        random.integers(200, 900, count).tolist(),
        random.integers(0, 200, count).tolist(),
        random.random(count).tolist(),
        strict=True,
    )
    moment = 1_700_000_000_000_000 + start
    made = [
        (
            keys[32 * n : 32 * n + 32], share.tobytes(), "ok", 1, moment + n, text, mass, "length",
            prompt, 1, cached, latency, "", NUMBER, None,
        )
        for n, (text, share, mass, prompt, cached, latency) in enumerate(columns)
    ]  # fmt: skip
    return [Row(*row, checksum(row)) for row in made]


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
    """Find keys and read everything about their answers, some thousand at a time."""
    keys = asked_keys(int(rows), int(asked), float(share), which)
    request = Request((), sampling=Sampling(max_tokens=1))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began, spent = time.perf_counter(), time.process_time()
    known = 0
    with AnswerStore(home) as store:
        for at in range(0, len(keys), CHUNK):
            some = keys[at : at + CHUNK]
            known += sum(one is not None for one in store.look_up([request] * len(some), some))
    done, cpu = time.perf_counter() - began, time.process_time() - spent
    assert known == int(int(asked) * float(share)), known
    scale = 1e6 / len(keys)
    return {"us": done * scale, "cpu_us": cpu * scale, "before_mb": base}


def store(home: str, rows: str, answers: str) -> dict[str, float]:
    """Add answers to a large store, 500 to a commit."""
    made = answers_rows(int(rows) + int(time.time()) % 10_000 * PIECE, int(answers))
    document = identity_json(IDENTITY)
    began, spent = time.perf_counter(), time.process_time()
    with AnswerStore(home) as opened:
        file = opened._file(None)
        for at in range(0, len(made), 500):
            file.store(made[at : at + 500], {NUMBER: document})
    done, cpu = time.perf_counter() - began, time.process_time() - spent
    scale = 1e6 / len(made)
    return {"us": done * scale, "cpu_us": cpu * scale}


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
    scale = 1e6 / count
    return {
        "store_us": (whole - bare) * scale,
        "cpu_us": cpu * scale,
        "key_us": key * scale,
        "commit_us": commit * scale,
        "bare_us": bare * scale,
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
