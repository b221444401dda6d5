"""Several processes on one answer store at once: all of them are right at the end.

The file is also the program that runs several times:
``python test_answers_writers.py HOME LOG FIRST COUNT``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from support.calls import question

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, answer_keys, ask
from pipelines.llm.answers import _ask as asking
from pipelines.llm.engines import Request
from pipelines.llm.engines.scripted import ScriptedEngine

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

WRITERS = 3


def engine_of(log: int) -> ScriptedEngine:
    def rule(request: Request) -> str:
        os.write(log, f"{request.tag}\n".encode())
        return f"Answer {request.tag}."

    return ScriptedEngine(rule, name="shared", window=4)


def main(home: str, log: str, first: str, count: str) -> None:
    asking._CHUNK = 40
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start = int(first)
    asked = [question(n, tag=n) for n in range(start, start + int(count))]
    serving = ServingSettings(commit_every=6)
    with AnswerStore(home) as store:
        for request, _, got in ask(engine_of(written), asked, store, serving=serving):
            assert got.text == f"Answer {request.tag}.", (request, got)


def run_together(home: Path, log: Path, firsts: list[int], count: int) -> None:
    words = [sys.executable, __file__, str(home), str(log)]
    processes = [
        subprocess.Popen([*words, str(first), str(count)], stderr=subprocess.PIPE)
        for first in firsts
    ]
    reader = AnswerStore(home)
    seen = 0
    while any(process.poll() is None for process in processes):
        answers = reader.stats().answers
        assert answers >= seen, "readable while it is written, and never less"
        seen = answers
        time.sleep(0.02)
    for process in processes:
        _, complaint = process.communicate()
        assert process.returncode == 0, complaint.decode()
        assert complaint == b""


def test_writers_of_different_answers_lose_none(folder: Path) -> None:
    home, log = folder / "home", folder / "log"
    run_together(home, log, [0, 120, 240], 120)
    store = AnswerStore(home)
    figures = store.stats()
    assert (figures.answers, figures.problems) == (360, ())
    keys = answer_keys(engine_of(0).identity, [question(n) for n in range(360)])
    assert {s.text for s in store.get(keys).values()} == {f"Answer {n}." for n in range(360)}
    assert Counter(log.read_text().split()).most_common(1)[0][1] == 1


def test_writers_of_the_same_answers_agree_on_one(folder: Path) -> None:
    home, log = folder / "home", folder / "log"
    run_together(home, log, [0] * WRITERS, 120)
    keys = answer_keys(engine_of(0).identity, [question(n) for n in range(120)])
    one, other = AnswerStore(home), AnswerStore(home)
    first = one.get(keys)
    assert first.keys() == set(keys)
    # Whichever of equal answers was stored first stays, here and elsewhere.
    assert one.get(keys) == other.get(keys) == first
    assert AnswerStore(home).stats().answers == 120


if __name__ == "__main__":
    main(*sys.argv[1:])
