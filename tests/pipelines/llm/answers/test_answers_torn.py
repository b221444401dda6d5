"""Torn parts of the answer store are left out and reported; the rest is whole."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.calls import IDENTITY, answer, questions

from pipelines.config import ServingSettings
from pipelines.errors import StoreError
from pipelines.llm.answers import AnswerStore, answer_keys


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def serving(**fields: Any) -> ServingSettings:
    return ServingSettings(**fields)


def fill(store: AnswerStore, count: int, start: int = 0) -> list[str]:
    asked = questions(count, start)
    store.add(IDENTITY, [answer(r) for r in asked])
    return answer_keys(IDENTITY, asked)


def parts(home: Path) -> list[Path]:
    return sorted((home / "answers").glob("*.parquet"))


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.chmod(0o644)
    broken = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "no footer": data[:-8] + b"\0" * 8,
        "one byte": data.replace(b"Film", b"Fi1m") if b"Film" in data else flip(data),
        "another file": b"PAR1 not Parquet at all PAR1",
    }[how]
    assert broken != data
    path.write_bytes(broken)


def flip(data: bytes) -> bytes:
    """Another byte within the first column chunk: the keys."""
    return data[:120] + bytes([data[120] ^ 0xFF]) + data[121:]


@pytest.mark.parametrize("how", ["empty", "cut", "no footer", "one byte", "another file"])
def test_a_torn_part_is_ignored_and_reported(
    home: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = AnswerStore(home)
    lost, kept = [], []
    for start, into in ((0, kept), (10, lost), (20, kept)):
        into += fill(store, 10, start)
        store.flush()
    victim = parts(home)[1]
    damage(victim, how)
    with caplog.at_level(logging.WARNING):
        fresh = AnswerStore(home)
        assert fresh.get([*lost, *kept]).keys() == set(kept)
        assert fresh.get(lost) == {}
    assert [p.part for p in fresh.problems] == [victim.name]
    assert caplog.text.count("torn part of the answer store ignored") == 1, "said once"
    figures = fresh.stats()
    assert (figures.answers, figures.parts, len(figures.problems)) == (20, 2, 1)
    fill(fresh, 10, 10)
    fresh.flush()
    assert fresh.get([*lost, *kept]).keys() == {*lost, *kept}
    report = fresh.gc()
    assert [p.part for p in report.set_aside] == [victim.name]
    assert (home / "answers" / "torn" / victim.name).exists()
    assert AnswerStore(home).stats().problems == ()
    assert AnswerStore(home).get([*lost, *kept]).keys() == {*lost, *kept}


def test_a_part_that_breaks_after_it_was_opened_is_left_out_too(home: Path) -> None:
    store = AnswerStore(home)
    whole = fill(store, 10)
    store.flush()
    broken = fill(store, 10, 10)
    store.flush()
    damage(parts(home)[1], "cut")
    assert store.get([*whole, *broken]).keys() == set(whole)
    assert len(store.problems) == 1


def test_a_part_of_a_later_version_is_an_error_and_not_a_torn_one(home: Path) -> None:
    store = AnswerStore(home)
    fill(store, 1)
    store.flush()
    [path] = parts(home)
    table = pq.read_table(path)
    note = {b"understudy.answers": b'{"format":99,"replaces":[]}'}
    path.unlink()
    pq.write_table(table.replace_schema_metadata(note), path)
    with pytest.raises(StoreError, match="has format 99"):
        AnswerStore(home).get([])


def test_other_files_in_the_folder_are_not_touched(home: Path) -> None:
    store = AnswerStore(home)
    fill(store, 1)
    store.flush()
    (home / "answers" / "notes.txt").write_text("mine")
    (home / "answers" / "mine.parquet").write_text("mine")
    assert AnswerStore(home).stats().problems == ()
    store.gc()
    assert (home / "answers" / "mine.parquet").read_text() == "mine"
