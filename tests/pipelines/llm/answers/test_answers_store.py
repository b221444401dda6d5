"""The answer store: what goes in comes out, whoever reads it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calls import IDENTITY, STARS, answer, question, questions

from pipelines.config import ServingSettings
from pipelines.errors import StoreError
from pipelines.llm.answers import AnswerStore, answer_key, answer_keys
from pipelines.llm.engines import Answer


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def serving(**fields: Any) -> ServingSettings:
    return ServingSettings(**fields)


def fill(store: AnswerStore, count: int, start: int = 0) -> list[str]:
    asked = questions(count, start)
    store.add(IDENTITY, [answer(r) for r in asked])
    return answer_keys(IDENTITY, asked)


def stored(home: Path) -> int:
    """Rows that another process would find (count)."""
    return AnswerStore(home).stats().answers


FULL = Answer(
    question("full", constraint=STARS, max_tokens=1),
    "ok",
    "2",
    (0.25, 0.5, 0.25),
    0.75,
    "length",
    900,
    1,
    850,
    0.125,
)


def test_an_answer_comes_back_as_it_was(home: Path) -> None:
    key = answer_key(IDENTITY, FULL.request)
    with AnswerStore(home) as store:
        assert store.add(IDENTITY, [FULL]) == [FULL]
    [found] = AnswerStore(home).get([key]).values()
    assert found.answer(FULL.request) == FULL
    assert (found.key, found.identity, found.max_tokens) == (key, IDENTITY, 1)
    assert found.request is None
    assert abs(found.stored_at.timestamp() - time.time()) < 600


answers = st.builds(
    Answer,
    st.integers(0, 50).map(question),
    st.sampled_from(["ok", "truncated"]),
    st.text(max_size=6),
    st.none(),
    st.none(),
    st.sampled_from(["", "stop", "tool calls", "längè"]),
    *[st.integers(0, 2**40)] * 3,
    st.floats(0, 1e6),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(answers, max_size=12, unique_by=lambda a: a.request), st.integers(1, 5))
def test_any_answers_come_back_from_memory_and_from_the_disk(
    tmp_path_factory: pytest.TempPathFactory, given_answers: list[Answer], every: int
) -> None:
    home = tmp_path_factory.mktemp("any")
    store = AnswerStore(home, serving(commit_every=every))
    for one in given_answers:
        store.add(IDENTITY, [one])
    keys = answer_keys(IDENTITY, [a.request for a in given_answers])
    assert store.waiting < every
    wanted = dict(zip(keys, given_answers, strict=True))
    for reader in (store, AnswerStore(home)):
        got = reader.get(keys)
        assert {key: got[key].answer(a.request) for key, a in wanted.items()} == wanted
        store.flush()


def test_answers_are_found_before_they_are_committed_and_by_others_after(home: Path) -> None:
    store, other = AnswerStore(home), AnswerStore(home)
    keys = fill(store, 3)
    assert store.get(keys).keys() == set(keys)
    assert other.get(keys) == {}
    assert store.flush() == 3
    assert other.get(keys).keys() == set(keys)
    assert (store.committed, store.waiting, store.flush()) == (3, 0, 0)


def test_every_n_answers_are_committed(home: Path) -> None:
    store = AnswerStore(home, serving(commit_every=4))
    for request in questions(11):
        store.add(IDENTITY, [answer(request)])
    assert (stored(home), store.waiting) == (8, 3)
    store.close()
    assert stored(home) == 11


def test_after_some_seconds_answers_are_committed_though_none_comes(home: Path) -> None:
    store = AnswerStore(home, serving(commit_seconds=0.05))
    fill(store, 3)
    deadline = time.monotonic() + 30
    while store.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stored(home) == 3
    fill(store, 2, start=3)
    while store.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stored(home) == 5


def test_a_timed_commit_that_fails_is_raised_to_the_next_who_adds(home: Path) -> None:
    home.mkdir()
    (home / "answers").write_text("a file where the folder should be")
    store = AnswerStore(home, serving(commit_seconds=0.02))
    fill(store, 2)
    deadline = time.monotonic() + 30
    while store._writer._failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(StoreError, match="can't be written"):
        fill(store, 1, start=5)
    (home / "answers").unlink()
    assert store.flush() == 2, "nothing was lost"


@pytest.mark.pipeline
@pytest.mark.parametrize(
    "end",
    ["", "child = os.fork()\nif child: os.waitpid(child, 0)\n"],
    ids=["a process ends", "a fork and its parent end"],
)
def test_what_waits_at_the_end_of_the_process_is_committed_once(home: Path, end: str) -> None:
    code = (
        "import os, sys; sys.path[:0] = sys.argv[2:]\n"
        "from support.calls import IDENTITY, answer, question\n"
        "from pipelines.llm.answers import AnswerStore\n"
        "store = AnswerStore(sys.argv[1])\n"
        "store.add(IDENTITY, [answer(question(n)) for n in range(3)])\n"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", code + end, str(home), str(root), str(root / "tests")]
    subprocess.run(command, check=True)
    assert AnswerStore(home).stats().answers == 3


def test_only_rows_that_serve_the_budget_are_found(home: Path) -> None:
    cut, whole = question("cut", max_tokens=50), question("whole", max_tokens=50)
    store = AnswerStore(home)
    store.add(IDENTITY, [answer(cut, "truncated"), answer(whole)])
    keys = answer_keys(IDENTITY, [cut, whole])

    def served(budget: int) -> list[bool]:
        asked = [question(name, max_tokens=budget) for name in ("cut", "whole")]
        return [found is not None for found in store.look_up(asked, keys)]

    for _ in range(2):
        assert served(50) == served(49) == [True, True]
        assert served(51) == [False, True]
        store.flush()
    longer = replace(answer(question("cut", max_tokens=60), "truncated"), text="longer")
    store.add(IDENTITY, [longer])
    for _ in range(2):
        [found] = store.look_up([longer.request], keys[:1])
        assert found is not None
        assert found.text == "longer"
        assert store.get(keys)[keys[0]].max_tokens == 60
        store.flush()


def test_ok_stays_and_a_failed_call_replaces_nothing(home: Path) -> None:
    [key] = answer_keys(IDENTITY, [question(1)])
    store = AnswerStore(home)
    for status, stays in (
        ("engine_error", "engine_error"),
        ("invalid", "invalid"),
        ("engine_error", "invalid"),
        ("truncated", "truncated"),
        ("ok", "ok"),
        ("truncated", "ok"),
        ("engine_error", "ok"),
    ):
        store.add(IDENTITY, [answer(question(1), status)])
        store.flush()
        assert AnswerStore(home).get([key])[key].status == stays
    assert stored(home) == 1


@pytest.mark.parametrize("flush", [True, False])
def test_the_first_ok_stays_on_disk_and_in_memory(home: Path, flush: bool) -> None:
    [key] = answer_keys(IDENTITY, [question(1)])
    store = AnswerStore(home)
    for text in ("first", "second"):
        store.add(IDENTITY, [answer(question(1), text=text)])
        if flush:
            store.flush()
    assert store.get([key])[key].text == "first"


def test_what_failed_has_no_distribution_and_no_text(home: Path) -> None:
    asked = [question(n, constraint=STARS) for n in range(3)]
    wrong = [
        Answer(r, status, "2", (0.2, 0.3, 0.5), 0.9)
        for r, status in zip(asked, ("invalid", "refused", "engine_error"), strict=True)
    ]
    store = AnswerStore(home)
    for kept in store.add(IDENTITY, wrong):
        assert (kept.text, kept.probabilities, kept.mass) == (None, None, None)
    assert {s.text for s in store.get(answer_keys(IDENTITY, asked)).values()} == {None}


@pytest.mark.parametrize(
    ("text", "shares", "detail"),
    [
        (None, (1.0, 0.0, 0.0), "no text"),
        ("4", (1.0, 0.0, 0.0), "not an option"),
        ("1", None, "no distribution"),
        ("1", (1.0, 0.0), "no distribution"),
        ("1", (0.5, 0.2, 0.2), "don't add up to 1"),
        ("1", (1.5, -0.5, 0.0), "invalid probabilities"),
        ("1", (float("nan"), 0.5, 0.5), "invalid probabilities"),
    ],
)
def test_a_broken_distribution_is_an_invalid_answer(
    home: Path, text: str | None, shares: tuple[float, ...] | None, detail: str
) -> None:
    request = question(1, constraint=STARS)
    [kept] = AnswerStore(home).add(IDENTITY, [Answer(request, "ok", text, shares)])
    assert (kept.status, kept.probabilities) == ("invalid", None)
    assert detail in kept.detail


def test_text_that_no_file_can_hold_is_made_storable(home: Path) -> None:
    with AnswerStore(home) as store:
        [kept] = store.add(IDENTITY, [answer(question(1), text="a\ud800b\x00😀")])
    assert kept.text == "a\ufffdb\x00😀"
    [found] = store.get([answer_key(IDENTITY, question(1))]).values()
    assert found.text == kept.text


SECRET = "very-secret-value-1234567890"


def stored_text(home: Path) -> str:
    """The bytes of every file of the home."""
    return b"".join(p.read_bytes() for p in home.rglob("*") if p.is_file()).decode("latin1")


def test_the_api_key_is_never_stored_nor_what_looks_like_one(home: Path) -> None:
    settings = serving(api_key=SECRET, keep_requests=True)
    with AnswerStore(home, settings) as store:
        refused = Answer(
            question(f"with {SECRET} in it"),
            "refused",
            finish_reason=f"key {SECRET}",
            detail=f"401\nAuthorization: Bearer abc.def-{SECRET}\nsk-proj-Abcdef123456 is wrong",
        )
        kept = store.add(IDENTITY, [refused, answer(question(2), text=f"echo {SECRET}!")])
    assert kept[0].detail == "401 Authorization: Bearer [secret] [secret] is wrong"
    assert kept[1].text == "echo [secret]!"
    everything = stored_text(home)
    assert "[secret]" in everything
    for secret in (SECRET, "sk-proj-Abcdef123456", "abc.def"):
        assert secret not in everything
    assert SECRET not in repr(store)


def test_the_question_is_kept_where_it_was_asked_for(home: Path) -> None:
    with AnswerStore(home, serving(keep_requests=True)) as store:
        fill(store, 1)
    [found] = store.select()
    shown = found.to_dict()["request"]
    assert shown["messages"] == [["user", "Film 0?"]]
    assert shown["sampling"]["max_tokens"] == 256


def test_anyone_can_read_the_file_and_the_export(home: Path, tmp_path: Path) -> None:
    with AnswerStore(home) as store:
        store.add(IDENTITY, [FULL, answer(question(2), "truncated")])
        assert store.export(tmp_path / "answers.parquet") == 2
    key = answer_key(IDENTITY, FULL.request)
    rows = duckdb.sql(
        f"select key, status, text, probabilities[2], model, identity->>'dtype' "
        f"from '{tmp_path}/answers.parquet' order by status"
    ).fetchall()
    assert rows[0] == (key, "ok", "2", 0.5, "tiny", "float32")
    assert rows[1][1:3] == ("truncated", "Film 2?")
    with sqlite3.connect(home / "answers" / "answers.sqlite") as file:
        columns = "hex(key), status, text, document->>'model'"
        found = file.execute(f"select {columns} from answers join identities using (identity)")
        assert (key.upper(), "ok", "2", "tiny") in found.fetchall()
    file.close()


def test_threads_may_share_a_store(home: Path) -> None:
    store = AnswerStore(home, serving(commit_every=7, commit_seconds=0.01))

    def work(number: int) -> None:
        for request in questions(40, number * 40):
            store.add(IDENTITY, [answer(request)])
            store.get(answer_keys(IDENTITY, [request]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    keys = answer_keys(IDENTITY, questions(160))
    assert AnswerStore(home).get(keys).keys() == set(keys)
    assert AnswerStore(home).stats().answers == 160
