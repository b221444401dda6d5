"""Scopes of answers: what a worker finds, reads and writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calls import IDENTITY, answer, questions

from pipelines.llm.answers import AnswerStore, Scope, answer_keys, recorded_uses
from pipelines.llm.answers import _merge as merging
from pipelines.llm.engines import Request

TABLE = Scope.of("movies.preference_scores", "default")
#: Two blocks of a cohort's personas.
EARLY, LATE = TABLE.between(None, "p5"), TABLE.between("p5", None)


def store_in(home: str, scope: Scope | None, asked: list[Request]) -> None:
    """Store answers as a process of its own that works on a scope."""
    store = AnswerStore(home)
    store.enter(scope)
    store.get([])
    store.add(IDENTITY, [answer(request) for request in asked])
    store.close()


def found(home: str, scope: Scope | None, asked: list[Request]) -> list[int]:
    """Tags of the questions whose answers a process that works on a scope finds."""
    store = AnswerStore(home)
    store.enter(scope)
    keys = answer_keys(IDENTITY, asked)
    known = store.get(keys)
    return [int(str(r.tag)) for r, key in zip(asked, keys, strict=True) if key in known]


def indexed(home: str, scope: Scope | None) -> int:
    """Rows that a process that works on a scope has in its index (count)."""
    store = AnswerStore(home)
    store.enter(scope)
    store.get([])
    return len(store._catalogue.index)


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


def test_a_scope_reads_its_own_answers_and_those_of_no_table(home: str) -> None:
    asked = questions(30)
    store_in(home, EARLY, asked[:10])
    store_in(home, LATE, asked[10:20])
    store_in(home, Scope.of("movies.preference_scores", "young"), asked[20:24])
    store_in(home, None, asked[24:])
    assert found(home, EARLY, asked) == [*range(10), *range(24, 30)]
    assert found(home, LATE, asked) == [*range(10, 20), *range(24, 30)]
    assert found(home, TABLE, asked) == [*range(20), *range(24, 30)]
    assert found(home, None, asked) == [*range(30)]
    assert [indexed(home, s) for s in (EARLY, LATE, TABLE, None)] == [16, 16, 26, 30]


def test_blocks_that_are_cut_otherwise_find_the_answers_of_earlier_ones(home: str) -> None:
    asked = questions(20)
    store_in(home, EARLY, asked[:10])
    store_in(home, LATE, asked[10:])
    assert found(home, TABLE.between(None, "p3"), asked) == [*range(10)]
    assert found(home, TABLE.between("p3", "p7"), asked) == [*range(20)]
    assert found(home, TABLE.between("p7", None), asked) == [*range(10, 20)]


def test_parts_are_merged_within_their_scope(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FAN_IN", 3)
    asked = questions(8)
    reader = AnswerStore(home)
    reader.enter(EARLY)
    for number in range(2):
        store_in(home, EARLY, asked[number : number + 1])
        store_in(home, LATE, asked[4 + number : 5 + number])
    keys = answer_keys(IDENTITY, asked)
    assert len(reader.get(keys)) == 2
    store_in(home, EARLY, asked[2:3])
    assert parts(home) == {EARLY.path.as_posix(): 1, LATE.path.as_posix(): 2}
    assert reader.get(keys).keys() == set(keys[:3])
    assert found(home, None, asked) == [0, 1, 2, 4, 5]
    report = AnswerStore(home).gc()
    assert (report.answers, report.parts_before, report.parts_after) == (5, 3, 2)
    assert found(home, None, asked) == [0, 1, 2, 4, 5]


def parts(home: str) -> dict[str, int]:
    """Parts of each scope (count)."""
    names = Path(home, "answers").rglob("part-*.parquet")
    folders = [name.parent.as_posix().partition("tables/")[2] for name in names]
    return {folder: folders.count(folder) for folder in sorted(folders)}


def test_a_store_that_is_opened_while_a_table_is_built_has_its_scope(home: str) -> None:
    assert AnswerStore(home).scope is None
    with recorded_uses(Path(home), "movies.personas", "young"):
        assert AnswerStore(home).scope == Scope.of("movies.personas", "young")
    assert AnswerStore(home).scope is None


def test_what_waits_is_committed_to_the_scope_that_it_was_asked_in(home: str) -> None:
    store = AnswerStore(home)
    store.enter(EARLY)
    store.add(IDENTITY, [answer(request) for request in questions(2)])
    store.enter(LATE)
    assert found(home, EARLY, questions(2)) == [0, 1]
    assert found(home, LATE, questions(2)) == []


edges = st.none() | st.integers(0, 30)


@given(edges, edges, edges, edges)
def test_ranges_with_a_persona_in_common_meet(
    first: int | None, end: int | None, other_first: int | None, other_end: int | None
) -> None:
    def within(person: int, low: int | None, high: int | None) -> bool:
        return (low is None or low <= person) and (high is None or person < high)

    def name(number: int | None) -> str | None:
        return None if number is None else f"a,b~/{number:04}"

    mine = TABLE.between(name(first), name(end))
    theirs = TABLE.between(name(other_first), name(other_end))
    common = any(within(n, first, end) and within(n, other_first, other_end) for n in range(-1, 32))
    assert len(theirs.path.parts) == 2
    if common:
        assert mine.meets(theirs.path.name)
    elif None not in (first, end, other_first, other_end):
        empty = first >= end or other_first >= other_end  # type: ignore[operator]
        assert empty or not mine.meets(theirs.path.name)
