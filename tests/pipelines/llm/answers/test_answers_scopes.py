"""Scopes of answers: which file they are in, and who reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.calls import IDENTITY, answer, questions

from pipelines.llm.answers import AnswerStore, Scope, UnusedReport, answer_keys, answers_of
from pipelines.llm.engines import Request

SCORES = Scope("movies.preference_scores", "default")
YOUNG = Scope("movies.preference_scores", "young")


def store_in(home: Path, scope: Scope | None, asked: list[Request]) -> None:
    """Store answers as a process of its own that works on a scope."""
    store = AnswerStore(home)
    store.enter(scope)
    store.add(IDENTITY, [answer(request) for request in asked])
    store.close()


def found(home: Path, scope: Scope | None, asked: list[Request]) -> list[int]:
    """Tags of the questions whose answers a process that works on a scope finds."""
    store = AnswerStore(home)
    store.enter(scope)
    keys = answer_keys(IDENTITY, asked)
    known = store.get(keys)
    return [int(str(r.tag)) for r, key in zip(asked, keys, strict=True) if key in known]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_scope_reads_its_own_answers_and_those_of_no_table(home: Path) -> None:
    asked = questions(30)
    store_in(home, SCORES, asked[:20])
    store_in(home, YOUNG, asked[20:24])
    store_in(home, None, asked[24:])
    assert found(home, SCORES, asked) == [*range(20), *range(24, 30)]
    assert found(home, YOUNG, asked) == [*range(20, 30)]
    assert found(home, None, asked) == [*range(30)]
    names = {path.name for path in (home / "answers").glob("*.sqlite")}
    assert names == {SCORES.file, YOUNG.file, "answers.sqlite"}


def test_a_store_that_is_opened_while_a_table_is_built_has_its_scope(home: Path) -> None:
    assert AnswerStore(home).scope is None
    with answers_of(home, "movies.personas", "young"):
        assert AnswerStore(home).scope == Scope("movies.personas", "young")
    assert AnswerStore(home).scope is None


def test_what_waits_is_committed_to_the_scope_that_it_was_asked_in(home: Path) -> None:
    store = AnswerStore(home)
    store.enter(SCORES)
    store.add(IDENTITY, [answer(request) for request in questions(2)])
    store.enter(YOUNG)
    assert found(home, SCORES, questions(2)) == [0, 1]
    assert found(home, YOUNG, questions(2)) == []


def test_answers_of_cohorts_without_a_version_go(home: Path) -> None:
    asked = questions(10)
    store_in(home, SCORES, asked[:5])
    store_in(home, YOUNG, asked[5:8])
    store_in(home, None, asked[8:])
    store = AnswerStore(home)
    expected = UnusedReport(removed=3, attributed=5, unattributed=2)
    assert store.gc_tables({SCORES}, {SCORES, YOUNG}, dry_run=True) == expected
    assert found(home, None, asked) == [*range(10)]
    assert store.gc_tables({SCORES}, {SCORES, YOUNG}) == expected
    assert found(home, None, asked) == [0, 1, 2, 3, 4, 8, 9]
    store_in(home, YOUNG, asked[5:8])
    assert found(home, YOUNG, asked) == [5, 6, 7, 8, 9]
    # Nothing is known of a table that was never finished: its answers stay.
    assert store.gc_tables({SCORES}, set()) == UnusedReport(0, 5, 5)


@pytest.mark.parametrize("name", ["", "late night", "a:b/c", "ü.sqlite"])
def test_any_cohort_has_a_file_of_its_own(home: Path, name: str) -> None:
    scope = Scope("movies.personas", name)
    assert Scope.of_file(scope.file) == scope
    store_in(home, scope, questions(1))
    assert [path.name for path in (home / "answers").iterdir()] == [scope.file]
