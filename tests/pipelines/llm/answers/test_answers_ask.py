"""Asking: only what is missing is asked, each once, and whatever happens it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calls import STARS, LineEngine, answer, question, questions

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, Tally, answer_key, ask
from pipelines.llm.answers import _ask as asking
from pipelines.llm.engines import Answer, Choice, Request, Sampling
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.progress import listening

SERVING = ServingSettings()


@pytest.fixture
def store(tmp_path: Path) -> AnswerStore:
    return AnswerStore(tmp_path / "home")


def run(
    engine: Any,
    requests: Iterable[Request],
    store: AnswerStore | None,
    serving: ServingSettings = SERVING,
) -> tuple[list[tuple[Request, str, Answer]], Tally]:
    tally = Tally()
    rows = list(ask(engine, requests, store, serving=serving, tally=tally))
    for request, key, got in rows:
        assert key == answer_key(engine.identity, request)
        assert got.request is request
    return rows, tally


def test_a_rerun_with_everything_stored_makes_no_call(store: AnswerStore) -> None:
    asked = [question(n, constraint=STARS, tag=n) for n in range(40)]
    first, tally = run(ScriptedEngine(window=7), asked, store)
    assert (tally.calls, tally.hits, tally.answers, tally.stored) == (40, 0, 40, 40)
    assert (tally.prompt_tokens, tally.completion_tokens) == (40 * 2, 40)
    for again in (store, AnswerStore(store.home)):
        engine = LineEngine(identity=ScriptedEngine().identity)
        second, tally = run(engine, asked, again)
        assert engine.asked == []
        assert (tally.calls, tally.hits, tally.answers, tally.prompt_tokens) == (0, 40, 40, 0)
        by_tag = {row[0].tag: row for row in first}
        assert {row[0].tag: row for row in second} == by_tag


def test_only_what_is_missing_is_asked(store: AnswerStore) -> None:
    run(LineEngine(), questions(10), store)
    engine = LineEngine()
    _, tally = run(engine, questions(15), store)
    assert engine.asked == questions(15)[10:]
    assert (tally.calls, tally.hits) == (5, 10)


@pytest.mark.parametrize("kept", [True, False])
def test_equal_requests_are_asked_once_wherever_they_come(store: AnswerStore, kept: bool) -> None:
    one, two = question(1), question(2)
    asked = [replace(r, tag=n) for n, r in enumerate([one, one, two, one, two, one])]
    for window in (1, 2, 10):
        engine = ScriptedEngine(name=f"of {window}", window=window)
        rows, tally = run(engine, asked, store if kept else None)
        assert sorted(row[0].tag for row in rows) == list(range(6))
        assert len({row[2].text for row in rows}) == 2
        assert (tally.calls, tally.duplicates, tally.hits) == (2, 4, 0)


def test_equal_requests_far_apart_are_asked_once(
    store: AnswerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_CHUNK", 5)
    for place in (store, None):
        engine = LineEngine()
        rows, tally = run(engine, [*questions(30), *questions(30)], place)
        assert len(engine.asked) == 30
        assert len(rows) == 60
        assert tally.hits + tally.duplicates == 30


def test_only_truncated_answers_are_asked_again_when_the_budget_grows(store: AnswerStore) -> None:
    statuses = {"Film 0?": "ok", "Film 1?": "truncated", "Film 2?": "invalid", "Film 3?": "refused"}

    def rule(request: Request) -> Answer:
        return answer(request, statuses[request.messages[0].content])

    def asked_with(budget: int) -> list[str]:
        engine = LineEngine(rule)
        run(engine, [question(n, max_tokens=budget) for n in range(4)], store, lenient)
        return [r.messages[0].content for r in engine.asked]

    lenient = ServingSettings(error_budget=1)
    assert len(asked_with(50)) == 4
    assert asked_with(50) == []
    assert asked_with(80) == ["Film 1?"]
    assert asked_with(80) == asked_with(50) == []
    assert asked_with(70) == []
    assert asked_with(40) == ["Film 2?"], "it may fit into the context now"
    assert asked_with(40) == asked_with(50) == asked_with(80) == []


def test_one_call_with_two_budgets_asks_the_larger_one_again_only_if_needed(
    store: AnswerStore,
) -> None:
    def rule(request: Request) -> Answer:
        short = request.sampling.max_tokens < 20
        return answer(
            request, "truncated" if short and "1" in request.messages[0].content else "ok"
        )

    asked = [question(film, max_tokens=n) for film in (1, 2) for n in (10, 20, 5, 20)]
    for place in (store, None):
        engine = LineEngine(rule)
        rows, _ = run(engine, asked, place)
        sent = [(r.messages[0].content, r.sampling.max_tokens) for r in engine.asked]
        assert sent == [("Film 1?", 10), ("Film 2?", 10), ("Film 1?", 20)]
        got = {(r.messages[0].content, r.sampling.max_tokens): a.status for r, _, a in rows}
        assert len(rows) == 8
        assert got[("Film 1?", 20)] == got[("Film 2?", 20)] == got[("Film 2?", 5)] == "ok"
        assert got[("Film 1?", 5)] == "truncated"


def test_failed_calls_are_rows_now_and_asked_again_next_time(store: AnswerStore) -> None:
    first = questions(3)
    broken = LineEngine(lambda r: answer(r, "engine_error", detail="reset"))
    rows, tally = run(broken, [*first, *first], store)
    assert len(broken.asked) == 3, "once per run"
    assert {row[2].status for row in rows} == {"engine_error"}
    assert len(rows) == 6
    assert tally.failures == {"engine_error": 3}
    engine = LineEngine()
    rows, _ = run(engine, first, store)
    assert engine.asked == first
    assert {row[2].status for row in rows} == {"ok"}
    assert run(LineEngine(), first, store)[1].calls == 0


def test_rows_come_while_requests_are_still_drawn(store: AnswerStore) -> None:
    drawn = 0

    def endless() -> Iterator[Request]:
        nonlocal drawn
        while True:
            drawn += 1
            yield question(drawn)

    rows = ask(LineEngine(), endless(), store, serving=SERVING)
    for _ in range(20):
        next(rows)
    assert drawn <= asking._CHUNK
    rows.close()
    assert store.waiting == 0
    assert store.committed >= 20


def test_progress_sees_every_answer_and_the_end(store: AnswerStore) -> None:
    seen: list[tuple[int, int]] = []
    tally, serving = Tally(), ServingSettings(commit_every=2)
    with listening(lambda _, answers, __: seen.append((answers, tally.stored))):
        list(ask(LineEngine(), questions(5), store, serving=serving, tally=tally))
    assert seen == [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (5, 5)]


def test_the_tally_is_json_ready_and_counts_on(store: AnswerStore) -> None:
    tally = Tally()
    list(ask(LineEngine(), questions(3), store, serving=SERVING, tally=tally))
    list(ask(LineEngine(), questions(4), store, serving=SERVING, tally=tally))
    got = tally.to_dict()
    assert got["calls"] == got["stored"] == 4
    assert got["hits"] == 3
    assert got["statuses"]["ok"] == got["answers"] == 7
    assert got["prompt_tokens"] == 28
    assert got["seconds"] > 0


def test_requests_that_no_model_can_serve_are_one_invalid_row_each(store: AnswerStore) -> None:
    odd = [
        Request(),
        question("\udfff", constraint=Choice(())),
        question("x", constraint=object()),
        question("x", sampling=Sampling(temperature=float("nan"))),
        question("x", max_tokens=0),
        question("y", max_tokens=2**80),
        Request(tokens=(2**70,), seed=-(2**70)),
    ]
    good = question("z")
    serving = ServingSettings(keep_requests=True)
    rows, tally = run(ScriptedEngine(lambda r: "fine"), [*odd, good], store, serving)
    assert tally.calls == len(odd) + 1
    statuses = {id(row[0]): row[2].status for row in rows}
    assert [statuses[id(r)] for r in odd[:5]] == ["invalid"] * 5
    again, tally = run(ScriptedEngine(), [*odd, good], AnswerStore(store.home), serving)
    assert tally.calls == 0
    assert {id(row[0]): row[2].status for row in again} == statuses


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=25),
    st.lists(st.sampled_from(["ok", "truncated", "invalid", "refused"]), min_size=7, max_size=7),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 25),
)
def test_every_request_has_one_row_and_a_rerun_asks_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[tuple[int, int]],
    statuses: list[Any],
    window: int,
    every: int,
    first: int,
) -> None:
    """Any requests in any order, with any outcome and an interruption."""
    counts: Counter[tuple[int, int]] = Counter()

    def rule(request: Request) -> Answer:
        film, budget = request.tag[0]
        counts[film, budget] += 1
        return answer(request, statuses[film])

    engine = ScriptedEngine(rule, name="any", window=window)
    serving = ServingSettings(error_budget=1, commit_every=every)
    requests = [
        question(film, max_tokens=n, tag=((film, n), i)) for i, (film, n) in enumerate(calls)
    ]
    store = AnswerStore(tmp_path_factory.mktemp("ask"))
    run(engine, requests[:first], store, serving)
    for _ in range(2):
        rows, _ = run(engine, requests, store, serving)
        assert sorted(row[0].tag[1] for row in rows) == list(range(len(calls)))
        assert all(row[2].status == statuses[row[0].tag[0][0]] for row in rows)
    asked = counts.copy()
    _, tally = run(engine, requests, AnswerStore(store.home), serving)
    assert tally.calls == 0
    assert counts == asked
    assert all(n == 1 for n in counts.values()), "no call was made twice"
    for film, status in enumerate(statuses):
        if status in ("ok", "refused"):
            assert sum(n for (f, _), n in counts.items() if f == film) <= 1
