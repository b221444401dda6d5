"""Asking when things go wrong: the run says what is stored, and the next one goes on."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.calls import IDENTITY, LineEngine, answer, question, questions

from pipelines.config import ServingSettings
from pipelines.errors import EngineError, StoreError
from pipelines.llm.answers import AnswerStore, Tally, ask
from pipelines.llm.answers import _ask as asking
from pipelines.llm.engines import Answer, Request

SERVING = ServingSettings()


@pytest.fixture
def store(tmp_path: Path) -> AnswerStore:
    return AnswerStore(tmp_path / "home")


def run(
    engine: Any, requests: Iterable[Request], store: AnswerStore, serving: ServingSettings = SERVING
) -> tuple[list[tuple[Request, str, Answer]], Tally]:
    tally = Tally()
    return list(ask(engine, requests, store, serving=serving, tally=tally)), tally


def failing(share: int) -> Callable[[Request], Answer]:
    """A rule that fails one of so many calls."""
    return lambda r: answer(r, "refused" if r.tag % share == 0 else "ok", detail="no, thanks")


def test_too_many_failed_calls_end_the_run_and_say_how_to_go_on(store: AnswerStore) -> None:
    engine = LineEngine(failing(10))
    rows: list[Any] = []
    with pytest.raises(EngineError) as caught:
        rows.extend(ask(engine, questions(500), store, serving=SERVING))
    assert len(engine.asked) == 100
    text = str(caught.value)
    assert text.startswith(
        "10 of 100 calls failed (10 refused), more than the 5% of serving.error_budget: test:tiny"
    )
    assert f"100 answers of this run are stored in {store.folder} (90 ok, 10 refused)" in text
    assert "the last one: no, thanks" in text
    assert caught.value.details["tally"]["stored"] == 100
    assert engine.left_early == 1
    tolerant = ServingSettings(error_budget=0.2)
    engine = LineEngine(failing(10))
    assert len(run(engine, questions(500), store, tolerant)[0]) == 500
    assert len(engine.asked) == 400


def test_failed_calls_are_not_counted_as_stored_answers(store: AnswerStore) -> None:
    down = LineEngine(lambda r: answer(r, "engine_error", detail="HTTP 500"))
    with pytest.raises(EngineError) as caught:
        list(ask(down, questions(200), store, serving=ServingSettings()))
    text = str(caught.value)
    assert f"0 answers of this run are stored in {store.folder}; 100 failed calls" in text
    assert caught.value.details["tally"]["stored"] == 0
    mixed = LineEngine(lambda r: answer(r, "engine_error" if r.tag % 4 else "ok"))
    with pytest.raises(EngineError, match=r"25 answers .*; 75 failed calls are repeated; run"):
        list(ask(mixed, questions(100), store, serving=ServingSettings()))
    assert AnswerStore(store.home).stats().statuses["ok"] == 25


def test_few_failed_calls_and_short_runs_are_no_reason_to_stop(store: AnswerStore) -> None:
    assert len(run(LineEngine(failing(25)), questions(300), store)[0]) == 300
    other = replace(IDENTITY, model="other")
    broken = LineEngine(lambda r: answer(r, "invalid"), identity=other)
    assert len(run(broken, questions(99), store)[0]) == 99


def test_stored_failures_do_not_count_as_failed_calls(store: AnswerStore) -> None:
    lenient = ServingSettings(error_budget=1)
    run(LineEngine(lambda r: answer(r, "invalid")), questions(200), store, lenient)
    assert run(LineEngine(), questions(300), store)[1].calls == 100


class Dying(LineEngine):
    """Dies of something after some answers."""

    def __init__(self, after: int, cause: Exception) -> None:
        super().__init__()
        self._after = after
        self._cause = cause

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for got in super().submit(requests):
            yield got
            if len(self.asked) == self._after:
                raise self._cause


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (EngineError("out of budget", where="server", hint="raise it"), "out of budget: server"),
        (
            RuntimeError("CUDA error:\n device lost"),
            "the engine died (RuntimeError: CUDA error: device lost)",
        ),
        (MemoryError(), "the engine died (MemoryError:)"),
    ],
)
def test_an_engine_that_dies_leaves_a_run_that_can_go_on(
    store: AnswerStore, cause: Exception, message: str
) -> None:
    got = []
    with pytest.raises(EngineError) as caught:
        got.extend(ask(Dying(7, cause), questions(20), store, serving=SERVING))
    text = str(caught.value)
    assert text.startswith(message)
    assert "7 answers of this run are stored in" in text
    assert "run again" in text
    assert len(AnswerStore(store.home).select()) == 7
    engine = LineEngine()
    assert len(run(engine, questions(20), store)[0]) == 20
    assert len(engine.asked) == 13


def test_the_death_of_an_engine_tells_no_secret(store: AnswerStore) -> None:
    serving = ServingSettings(api_key="the-secret-key-of-mine")
    for cause in (
        RuntimeError("401 for the-secret-key-of-mine"),
        EngineError("401 for the-secret-key-of-mine"),
    ):
        with pytest.raises(EngineError) as caught:
            list(ask(Dying(1, cause), questions(3), store, serving=serving))
        assert "the-secret-key-of-mine" not in str(caught.value)


def test_an_engine_that_answers_too_little_twice_or_something_else_is_dead(
    store: AnswerStore,
) -> None:
    class Odd(LineEngine):
        def __init__(self, answers: Callable[[list[Request]], list[Request]]) -> None:
            super().__init__()
            self._answers = answers

        def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
            return iter([answer(r) for r in self._answers(list(requests))])

    for start, (odd, message) in enumerate(
        (
            (Odd(lambda r: r[1:]), "stopped without 1 of its answers"),
            (Odd(lambda r: [*r, r[0]]), "unknown or a duplicate"),
            (Odd(lambda r: [question("other"), *r]), "unknown or a duplicate"),
        )
    ):
        with pytest.raises(EngineError, match=message):
            list(ask(odd, questions(3, 10 * start), store, serving=SERVING))
    copies = Odd(lambda requests: [replace(r, tag=None) for r in requests])
    rows, _ = run(copies, questions(5, 100), store)
    assert sorted(row[0].tag for row in rows) == list(range(100, 105))


def test_a_fault_of_the_caller_comes_through_and_what_was_answered_is_stored(
    store: AnswerStore,
) -> None:
    class TheirsError(Exception):
        pass

    def requests() -> Iterator[Request]:
        yield from questions(asking._CHUNK + 5)
        raise TheirsError

    with pytest.raises(TheirsError):
        list(ask(LineEngine(), requests(), store, serving=SERVING))
    assert store.waiting == 0
    assert store.stats().answers == asking._CHUNK


def test_leaving_or_interrupting_stores_what_is_there(store: AnswerStore) -> None:
    engine = LineEngine()
    for count, _ in enumerate(ask(engine, questions(50), store, serving=SERVING), 1):
        if count == 9:
            break
    assert store.committed == 9
    assert engine.left_early == 1

    class Interrupted(LineEngine):
        def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
            for number, got in enumerate(super().submit(requests)):
                if number == 5:
                    raise KeyboardInterrupt
                yield got

    with pytest.raises(KeyboardInterrupt):
        list(ask(Interrupted(), questions(50), store, serving=SERVING))
    assert AnswerStore(store.home).stats().answers == 14


def test_a_store_that_can_not_be_written_ends_the_run_and_says_so(tmp_path: Path) -> None:
    list(ask(LineEngine(), questions(1), AnswerStore(tmp_path), serving=SERVING))
    with closing(sqlite3.connect(tmp_path / "answers" / "answers.sqlite")) as file:
        refuse = "BEGIN SELECT RAISE(ABORT, 'no more'); END"
        file.execute(f"CREATE TRIGGER full BEFORE INSERT ON answers {refuse}")
    engine = LineEngine()
    with pytest.raises(StoreError) as caught:
        list(
            ask(
                engine,
                questions(51)[1:],
                AnswerStore(tmp_path),
                serving=ServingSettings(commit_every=10),
            )
        )
    assert len(engine.asked) == 10
    assert engine.left_early == 1
    assert "0 answers of this run are stored, 10 are not; run again" in str(caught.value)


def test_nothing_is_asked_where_no_answer_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("a file where the folder should be")
    engine = LineEngine()
    with pytest.raises(StoreError):
        list(ask(engine, questions(5), AnswerStore(tmp_path), serving=SERVING))
    assert engine.asked == []


def test_an_engine_may_draw_requests_in_a_thread_of_its_own(
    store: AnswerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_CHUNK", 20)

    class Threaded(LineEngine):
        def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
            taken: list[Request] = []
            done = threading.Event()

            def draw() -> None:
                taken.extend(requests)
                done.set()

            threading.Thread(target=draw, daemon=True).start()
            sent = 0
            while not (done.is_set() and sent == len(taken)):
                if sent < len(taken):
                    self.asked.append(taken[sent])
                    yield answer(taken[sent])
                    sent += 1

    engine = Threaded()
    asked = [*questions(150), *questions(150)]
    rows, tally = run(engine, asked, store)
    assert len(rows) == 300
    assert (tally.calls, len(engine.asked)) == (150, 150)


def test_a_run_stores_no_api_key_though_the_store_was_opened_without_it(
    store: AnswerStore,
) -> None:
    secret = "the-secret-key-of-mine"
    engine = LineEngine(lambda r: answer(r, "refused", detail=f"{secret} has no credit"))
    [row], _ = run(engine, [question(1)], store, ServingSettings(api_key=secret))
    assert row[2].detail == "[secret] has no credit"
    [stored] = AnswerStore(store.home).select()
    assert stored.detail == "[secret] has no credit"
