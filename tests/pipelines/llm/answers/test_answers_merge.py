"""Merging and collecting: fewer parts, the same answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calls import IDENTITY, answer, question, questions

from pipelines.config import ServingSettings
from pipelines.errors import LockedError, StoreError
from pipelines.llm.answers import AnswerStore, answer_key, answer_keys
from pipelines.llm.answers import _merge as merging
from pipelines.llm.engines import STATUSES, Answer
from pipelines.store.locks import mutex


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parts of a class become one."""
    monkeypatch.setattr(merging, "FAN_IN", 3)


def parts(home: Path) -> list[Path]:
    return sorted((home / "answers").glob("*.parquet"))


def write(store: AnswerStore, *answers: Answer) -> None:
    """Write a part."""
    store.add(IDENTITY, answers)
    store.flush()


def snapshot(home: Path, keys: list[str]) -> dict[str, Any]:
    return {k: v.to_dict() for k, v in AnswerStore(home).get(keys).items()}


def test_the_number_of_parts_stays_small(home: Path) -> None:
    store = AnswerStore(home, ServingSettings(commit_every=1))
    asked = questions(70)
    for request in asked:
        store.add(IDENTITY, [answer(request)])
    counts = [pq.read_metadata(p).num_rows for p in parts(home)]
    # 70 = 4 · 16 + 6: at most 15 parts of each class can be waiting.
    assert counts == [16, 16, 16, 16, *([1] * 6)]
    assert AnswerStore(home).get(answer_keys(IDENTITY, asked)).keys() == set(
        answer_keys(IDENTITY, asked)
    )
    assert [s.text for s in store.select(limit=70)] == [f"Film {n}?" for n in range(69, -1, -1)]


@pytest.mark.usefixtures("narrow")
def test_a_merged_part_keeps_every_column(home: Path) -> None:
    serving = ServingSettings(keep_requests=True)
    store = AnswerStore(home, serving)
    kept = [question(n) for n in range(3)]
    write(store, answer(kept[0], latency=0.5, cached_tokens=3))
    write(store, answer(kept[1], "truncated"))
    keys = answer_keys(IDENTITY, kept)
    before = snapshot(home, keys)
    write(store, answer(kept[2], "invalid", detail="why"))
    assert len(parts(home)) == 1
    after = snapshot(home, keys)
    assert {k: after[k] for k in before} == before
    assert after[keys[2]]["detail"] == "why"


@pytest.mark.usefixtures("narrow")
def test_a_reader_whose_parts_were_merged_away_finds_their_answers(home: Path) -> None:
    store = AnswerStore(home)
    asked = questions(4)
    for request in asked[:2]:
        write(store, answer(request))
    reader = AnswerStore(home)
    keys = answer_keys(IDENTITY, asked)
    assert len(reader.get(keys)) == 2
    # Between its look into the folder and its reading, the parts are merged.
    refresh = reader._catalogue.refresh
    calls: list[int] = []

    def overtaken() -> None:
        refresh()
        if not calls:
            calls.append(1)
            write(store, answer(asked[2]))
            assert len(parts(home)) == 1

    reader._catalogue.refresh = overtaken  # type: ignore[method-assign]
    assert reader.get(keys[:2]).keys() == set(keys[:2])
    assert calls
    assert reader.get(keys).keys() == set(keys[:3])


@pytest.mark.usefixtures("narrow")
def test_parts_that_were_merged_but_not_removed_are_ignored_and_then_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AnswerStore(home)
    with monkeypatch.context() as killed:
        # As after a kill between the two steps.
        killed.setattr(merging, "_remove", lambda folder, names: None)
        for request in questions(3):
            write(store, answer(request))
    assert len(parts(home)) == 4
    fresh = AnswerStore(home)
    assert fresh.stats().answers == 3
    assert fresh.find(answer_keys(IDENTITY, questions(3))).table.num_rows == 3
    fresh.gc()
    assert len(parts(home)) == 1
    assert AnswerStore(home).stats().answers == 3


@pytest.mark.usefixtures("narrow")
def test_who_can_not_merge_because_another_does_goes_on_writing(home: Path) -> None:
    store = AnswerStore(home)
    with mutex(home / "_locks" / "answers-compact.lock"):
        for request in questions(5):
            write(store, answer(request))
        assert len(parts(home)) == 5
        with pytest.raises(LockedError):
            mutex(home / "_locks" / "answers-compact.lock", timeout=0).__enter__()
    write(store, answer(question(5)))
    assert len(parts(home)) == 1


@pytest.mark.usefixtures("narrow")
def test_a_merge_that_fails_does_not_end_a_run(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = AnswerStore(home)

    def full(*_: Any) -> None:
        raise StoreError("no space left on the disk")

    with monkeypatch.context() as broken:
        broken.setattr(merging, "_rewrite", full)
        for request in questions(4):
            write(store, answer(request))
    assert "the answer store was not compacted: no space left" in caplog.text
    assert len(parts(home)) == 4
    assert store.stats().answers == 4
    store.gc()
    assert len(parts(home)) == 1


def test_gc_drops_what_serves_nothing_and_says_how_much(home: Path) -> None:
    store = AnswerStore(home)
    one, two, three, four = questions(4)
    longer = question(2, max_tokens=999)
    write(store, answer(one, "engine_error"), answer(two, "truncated"), answer(three, "truncated"))
    write(store, answer(one), answer(two), answer(longer, "truncated"))
    write(store, answer(four, "invalid"), answer(four, "refused"))
    dry = store.gc(dry_run=True)
    assert (dry.answers, dry.superseded, dry.failed, dry.forgotten) == (8, 2, 1, 0)
    assert len(parts(home)) == 3, "a dry run changes nothing"
    figures = store.stats()
    assert (figures.superseded, figures.failed) == (2, 1)
    report = store.gc()
    assert (report.superseded, report.failed, report.parts_before, report.parts_after) == (
        *(2, 1),
        *(3, 1),
    )
    assert report.bytes_after < report.bytes_before
    assert store.stats().statuses == {
        "ok": 2,
        "truncated": 1,
        "invalid": 1,
        "refused": 1,
        "engine_error": 0,
    }
    again = store.gc()
    assert (again.superseded + again.failed + again.forgotten, again.parts_after) == (0, 1)


def test_a_clean_store_of_one_part_is_left_alone(home: Path) -> None:
    store = AnswerStore(home)
    write(store, answer(question(1)))
    [before] = parts(home)
    store.gc()
    assert parts(home) == [before]


def test_forgotten_statuses_are_gone(home: Path) -> None:
    store = AnswerStore(home)
    bad, good = questions(2)
    write(store, answer(bad, "invalid"), answer(good))
    report = store.gc(forget=["invalid"])
    assert (report.forgotten, report.superseded) == (1, 0)
    assert store.get(answer_keys(IDENTITY, [bad, good])).keys() == {answer_key(IDENTITY, good)}


def test_a_store_of_which_everything_is_forgotten_is_empty(home: Path) -> None:
    store = AnswerStore(home)
    write(store, *(answer(r) for r in questions(3)))
    store.gc(forget=STATUSES)
    assert parts(home) == []
    assert AnswerStore(home).stats().answers == 0
    write(store, answer(question(1)))
    assert AnswerStore(home).stats().answers == 1


def test_large_clean_parts_are_not_written_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "LARGEST", 20)
    store = AnswerStore(home)
    write(store, *(answer(r) for r in questions(15)))
    [large] = parts(home)
    for n in (20, 21):
        write(store, answer(question(n)))
    write(store, *(answer(r) for r in questions(19, 30)), answer(question(30), "truncated"))
    store.gc()
    counts = {p.name: pq.read_metadata(p).num_rows for p in parts(home)}
    assert counts[large.name] == 15
    assert sorted(counts.values()) == [2, 15, 19]


statuses = st.sampled_from(STATUSES)
events = st.lists(
    st.tuples(st.integers(0, 4), statuses, st.integers(1, 4), st.booleans()), max_size=15
)


@settings(max_examples=12, deadline=None)
@given(events)
def test_collecting_changes_no_answer(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[int, Any, int, bool]]
) -> None:
    home = tmp_path_factory.mktemp("gc")
    store = AnswerStore(home)
    for number, (film, status, budget, commit) in enumerate(written):
        store.add(
            IDENTITY, [answer(question(film, max_tokens=budget), status, latency=float(number))]
        )
        if commit:
            store.flush()
    store.flush()
    keys = answer_keys(IDENTITY, [question(film) for film in range(5)])

    def served(reader: AnswerStore) -> list[list[tuple[int, Any]]]:
        out = []
        for wanted in range(6):
            found = reader.find(keys, [wanted] * 5)
            pairs = zip(found.positions.tolist(), found.table["latency"].to_pylist(), strict=True)
            out.append(sorted(pairs))
        return out

    before = served(AnswerStore(home))
    report = store.gc()
    assert served(AnswerStore(home)) == served(store) == before
    left = AnswerStore(home).stats()
    assert left.answers == report.answers - report.superseded - report.failed
    assert (left.superseded, left.failed) == (0, 0)


def test_collecting_while_others_write_and_read_loses_nothing(home: Path) -> None:
    writer, collector, reader = (
        AnswerStore(home, ServingSettings(commit_every=3)) for _ in range(3)
    )
    stop = threading.Event()
    faults: list[BaseException] = []

    def collect() -> None:
        try:
            while not stop.is_set():
                collector.gc()
        except BaseException as error:  # noqa: BLE001 - shown below
            faults.append(error)

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        asked = questions(120)
        for number, request in enumerate(asked):
            writer.add(IDENTITY, [answer(request)])
            done = asked[: number - number % 3]
            if number % 10 == 9:
                assert len(reader.get(answer_keys(IDENTITY, done))) == len(done)
    finally:
        stop.set()
        thread.join()
    assert faults == []
    writer.close()
    assert AnswerStore(home).stats().answers == 120
