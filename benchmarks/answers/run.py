"""Speed and memory of the answer store.

    python benchmarks/answers/run.py --parts overhead lookup rerun --repeat 3

*overhead*: microseconds of an answer with a store beyond those without one (*bare*), of them its
key and the commits. *lookup*: microseconds per key of look-ups of 8,192 keys in a large store, and
per answer of adding 20,000. *rerun*: seconds of `ask`, and of `ask` again.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, Tally, answer_key, ask
from pipelines.llm.answers._file import Row, checksum, identity_number
from pipelines.llm.answers._record import identity_json
from pipelines.llm.engines import Answer, Choice, EngineIdentity, Message, Request, Sampling
from pipelines.llm.engines.scripted import ScriptedEngine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

IDENTITY = EngineIdentity(
    "transformers", "5.19.0", "some/model-8b", "main", "ab" * 32, "cd" * 32, "bfloat16"
)
OPTIONS = tuple(str(n) for n in range(1, 11))
PIECE = 100_000
BATCH = 10_000
#: Requests that `ask` looks up at once.
CHUNK = 8192
NUMBER = identity_number(identity_json(IDENTITY))
#: Of `wall_s` and `cpu_s` per million keys or answers, which are microseconds each.
COLUMNS = {
    "case": "{case}", "µs": "{wall_s:.1f}", "CPU, µs": "{cpu_s:.1f}",
    "with a store, µs": "{store:.0f}", "its CPU, µs": "{cpu:.0f}", "key, µs": "{key:.0f}",
    "commit, µs": "{commit:.0f}", "bare, µs": "{bare:.0f}", "first, s": "{first:.2f}",
    "again, s": "{again:.2f}", "calls again": "{calls:.0f}", "peak, MiB": "{peak_mib:,.0f}",
}  # fmt: skip


def keys_of(start: int, count: int) -> bytes:
    """Keys of the rows from one on: random, and the same each time."""
    out = bytearray()
    while count:
        piece, at = divmod(start, PIECE)
        take = min(count, PIECE - at)
        out += np.random.default_rng(piece).bytes(32 * PIECE)[32 * at : 32 * (at + take)]
        start, count = start + take, count - take
    return bytes(out)


def build(home: str, rows: int) -> dict[str, float]:
    """Answers to a scale of ten, committed 10,000 at a time."""
    document = identity_json(IDENTITY)
    with AnswerStore(home) as store:
        file = store._file(None)
        for start in range(0, rows, BATCH):
            file.store(answers_rows(start, BATCH), {NUMBER: document})
        return {"mib": file.size() / 2**20}


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


def lookup(home: str, rows: int, asked: int, share: float, which: str) -> dict[str, float]:
    """Find keys and read everything about their answers, some thousand at a time."""
    keys = asked_keys(rows, asked, share, which)
    request = Request((), sampling=Sampling(max_tokens=1))
    known = 0
    with harness.Clock() as clock, AnswerStore(home) as store:
        for at in range(0, len(keys), CHUNK):
            some = keys[at : at + CHUNK]
            known += sum(one is not None for one in store.look_up([request] * len(some), some))
    assert known == int(asked * share), known
    return clock.figures(per=len(keys) / 1e6)


def add(home: str, rows: int, answers: int) -> dict[str, float]:
    """Add answers to a large store, 500 to a commit."""
    made = answers_rows(rows + int(time.time()) % 10_000 * PIECE, answers)
    document = identity_json(IDENTITY)
    with harness.Clock() as clock, AnswerStore(home) as opened:
        file = opened._file(None)
        for at in range(0, len(made), 500):
            file.store(made[at : at + 500], {NUMBER: document})
    return clock.figures(per=len(made) / 1e6)


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


def overhead(folder: str, kind: str, every: int, answers: int) -> dict[str, float]:
    """Microseconds per answer with a store, of its key and commits, and without a store."""
    made, engine = list(questions(kind, answers)), Instant(kind)
    with harness.Clock() as bare:
        for _ in engine.submit(iter(made)):
            pass
    with harness.Clock() as key:
        for request in made:
            answer_key(IDENTITY, request)
    serving = ServingSettings(commit_every=every)
    commit = 0.0
    with tempfile.TemporaryDirectory(dir=folder) as home:
        store = AnswerStore(home, serving)
        flush = store.flush

        def timed() -> int:
            nonlocal commit
            with harness.Clock() as clock:
                done = flush()
            commit += clock.wall_s
            return done

        store.flush = timed  # type: ignore[method-assign]
        with harness.Clock() as stored:
            for _ in ask(engine, iter(made), store, serving=serving):
                pass
    scale = 1e6 / answers
    return {
        "store": (stored.wall_s - bare.wall_s) * scale,
        "cpu": stored.cpu_s * scale,
        "key": key.wall_s * scale,
        "commit": commit * scale,
        "bare": bare.wall_s * scale,
    }


def rerun(folder: str, answers: int) -> dict[str, float]:
    """Ask all requests, then ask them again with another store on the same files."""
    made = list(questions("choice", answers))
    serving = ServingSettings()
    engine = ScriptedEngine(lambda request: {"7": 0.9, "8": 0.1}, name="sevens")
    seconds = []
    with tempfile.TemporaryDirectory(dir=folder) as home:
        for _ in range(2):
            tally = Tally()
            with harness.Clock() as clock, AnswerStore(home, serving) as store:
                for _ in ask(engine, iter(made), store, serving=serving, tally=tally):
                    pass
            seconds.append(clock.wall_s)
    return {"first": seconds[0], "again": seconds[1], "calls": tally.calls}


def main() -> None:
    """Run the parts that were asked for."""
    parts = ("overhead", "lookup", "rerun")
    parser = harness.parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--repeat", type=int, default=3, help="processes per figure (count)")
    parser.add_argument("--answers", type=int, default=50_000, help="overhead and rerun (count)")
    parser.add_argument(
        "--stored", type=int, nargs="+", default=[2_000_000, 10_000_000], help="lookup (counts)"
    )
    parser.add_argument("--asked", type=int, default=1_000_000, help="lookup (count)")
    parser.add_argument("--folder", type=Path, help="of the stores (default: a temporary one)")
    given = parser.parse_args()
    rows: list[harness.Figures] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        if "overhead" in given.parts:
            for every, kind in itertools.product((100, 500, 2000), ("choice", "text")):
                got = harness.measure(
                    overhead, folder, kind, every, given.answers, repeat=given.repeat
                )
                case = f"{kind}, {every} to a commit"
                rows.append({"part": "overhead", "case": case, **got})
        for stored in given.stored if "lookup" in given.parts else []:
            home = f"{folder}/store-{stored}"
            size = harness.measure(build, home, stored)["mib"]
            name = f"{stored:,} stored ({size:,.0f} MiB)"
            for share, which in ((1.0, "random"), (0.5, "random"), (1.0, "neighbours")):
                got = harness.measure(
                    lookup, home, stored, given.asked, share, which, repeat=given.repeat
                )
                rows.append(
                    {
                        "part": "lookup",
                        "case": f"{name}: look up, {share:.0%} known, {which}",
                        **got,
                    }
                )
            got = harness.measure(add, home, stored, 20_000, repeat=given.repeat)
            rows.append({"part": "lookup", "case": f"{name}: add 20,000", **got})
        if "rerun" in given.parts:
            got = harness.measure(rerun, folder, given.answers, repeat=given.repeat)
            rows.append({"part": "rerun", "case": f"rerun of {given.answers:,}", **got})
    harness.report(given, rows, COLUMNS)


if __name__ == "__main__":
    harness.start(main)
