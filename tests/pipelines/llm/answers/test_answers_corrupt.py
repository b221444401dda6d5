"""Torn parts of the answer store are left out and reported; the rest is whole."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.calls import IDENTITY, STARS, LineEngine, answer, question, questions

from pipelines.config import ServingSettings
from pipelines.errors import StoreError
from pipelines.llm.answers import AnswerStore, answer_keys, ask


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
def test_a_corrupt_part_is_ignored_and_reported(
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
    assert caplog.text.count("corrupt part of the answer store ignored") == 1, "reported once"
    figures = fresh.stats()
    assert (figures.answers, figures.parts, len(figures.problems)) == (20, 2, 1)
    fill(fresh, 10, 10)
    fresh.flush()
    assert fresh.get([*lost, *kept]).keys() == {*lost, *kept}
    report = fresh.gc()
    assert [p.part for p in report.set_aside] == [victim.name]
    assert (home / "answers" / "corrupt" / victim.name).exists()
    assert AnswerStore(home).stats().problems == ()
    assert AnswerStore(home).get([*lost, *kept]).keys() == {*lost, *kept}


@pytest.mark.pipeline
@pytest.mark.parametrize("where", ["footer", "anywhere"])
def test_a_part_with_a_flipped_bit_is_listed_or_whole(tmp_path: Path, where: str) -> None:
    asked = [*questions(20), *(question(n, constraint=STARS) for n in range(20, 40))]
    store = AnswerStore(tmp_path / "whole")
    store.add(IDENTITY, [answer(r) for r in asked])
    store.flush()
    [part] = parts(tmp_path / "whole")
    data = part.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    dice = random.Random(7)
    listed = 0
    for number in range(150):
        at = dice.randrange(footer if where == "footer" else 0, len(data))
        broken = bytearray(data)
        broken[at] ^= 1 << dice.randrange(8)
        home = tmp_path / str(number)
        (home / "answers").mkdir(parents=True)
        (home / "answers" / part.name).write_bytes(broken)
        engine, fresh = LineEngine(), AnswerStore(home)
        rows = list(ask(engine, asked, fresh, serving=serving()))
        assert [row[2].text for row in rows] == [answer(row[0]).text for row in rows], at
        assert len(rows) == len(asked), at
        assert len(engine.asked) == (len(asked) if fresh.problems else 0), at
        # Other columns are read by these: what is wrong with them is found now.
        assert fresh.stats().answers == len(asked) or fresh.problems, at
        assert len(fresh.select(limit=99)) == len(asked) or fresh.problems, at
        listed += bool(fresh.problems)
    assert listed > 75, "most bits of a part matter"


def test_duckdb_reads_corrupt_pages_that_the_store_leaves_out(home: Path) -> None:
    """Why look-ups read parts with Arrow: docs/decisions/0012."""
    import duckdb

    store = AnswerStore(home)
    asked = [question(n, constraint=STARS) for n in range(50)]
    store.add(IDENTITY, [answer(r, mass=0.123456789) for r in asked])
    store.flush()
    [path] = parts(home)
    data = path.read_bytes()
    key = bytes.fromhex(answer_keys(IDENTITY, asked)[7])
    at = data.index(key)
    path.chmod(0o644)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    read = duckdb.sql(f"SELECT count(*) FROM read_parquet('{path}') WHERE key IS NOT NULL")
    assert read.fetchall() == [(50,)], "nothing is noticed"
    fresh = AnswerStore(home)
    assert fresh.get(answer_keys(IDENTITY, asked)) == {}
    assert [problem.part for problem in fresh.problems] == [path.name]


@pytest.mark.parametrize("name", ["text", "status", "key", "detail", "identity"])
def test_a_renamed_column_in_a_footer_is_listed(home: Path, name: str) -> None:
    store = AnswerStore(home)
    asked = questions(10)
    store.add(IDENTITY, [answer(r) for r in asked])
    store.flush()
    [path] = parts(home)
    table = pq.read_table(path)
    path.unlink()
    renamed = [f"x{n}" if n == name else n for n in table.column_names]
    pq.write_table(table.rename_columns(renamed), path)
    fresh = AnswerStore(home)
    rows = list(ask(LineEngine(), asked, fresh, serving=serving()))
    assert {row[2].status for row in rows} == {"ok"}
    assert [problem.part for problem in fresh.problems] == [path.name]


def test_a_part_that_breaks_after_it_was_opened_is_left_out_too(home: Path) -> None:
    store = AnswerStore(home)
    whole = fill(store, 10)
    store.flush()
    broken = fill(store, 10, 10)
    store.flush()
    damage(parts(home)[1], "cut")
    assert store.get([*whole, *broken]).keys() == set(whole)
    assert len(store.problems) == 1


def test_a_part_of_a_later_version_is_an_error_and_not_a_corrupt_one(home: Path) -> None:
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
