"""Damaged files of answers: nothing wrong is handed out, and what can be read is kept."""

from __future__ import annotations

import logging
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.calls import IDENTITY, STARS, LineEngine, answer, question, questions

from pipelines.config import ServingSettings
from pipelines.errors import IntegrityError, StoreError
from pipelines.llm.answers import AnswerStore, answer_keys, ask

SERVING = ServingSettings()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def filled(home: Path, count: int) -> list[str]:
    """Keys of answers in a store that is closed again."""
    asked = questions(count)
    with AnswerStore(home) as store:
        store.add(IDENTITY, [answer(r) for r in asked])
    return answer_keys(IDENTITY, asked)


def file_of(home: Path) -> Path:
    return home / "answers" / "answers.sqlite"


def change(home: Path, statement: str) -> None:
    """Change the file behind the store's back."""
    with closing(sqlite3.connect(file_of(home), isolation_level=None)) as file:
        file.execute(statement)


@pytest.mark.parametrize(
    "changed",
    [
        "text = 'Film 9?'",
        "status = 'refused'",
        "probabilities = x'00'",
        "mass = 0.5",
        "stored_at = stored_at + 1",
        "latency = latency + 1",
        "identity = identity + 1",
        "checksum = 0",
        "request = '{}'",
    ],
)
def test_a_changed_row_is_left_out_listed_and_asked_again(
    home: Path, changed: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = filled(home, 5)
    change(home, f"UPDATE answers SET {changed} WHERE hex(key) = '{keys[2].upper()}'")
    fresh = AnswerStore(home)
    with caplog.at_level(logging.WARNING):
        engine = LineEngine()
        rows = list(ask(engine, questions(5), fresh, serving=SERVING))
    assert [row[0].tag for row in rows if row[2].text != answer(row[0]).text] == []
    assert [request.tag for request in engine.asked] == [2]
    assert "1 answers were damaged: they are asked again" in caplog.text
    assert [problem.file for problem in fresh.problems] == ["answers.sqlite"]
    assert AnswerStore(home).get(keys).keys() == set(keys)
    assert AnswerStore(home).gc().corrupt == 0


def test_gc_compares_every_row(home: Path) -> None:
    filled(home, 20)
    change(home, "UPDATE answers SET latency = 99 WHERE rowid % 5 = 0")
    assert AnswerStore(home).gc(dry_run=True).corrupt == 4
    assert AnswerStore(home).gc().corrupt == 4
    assert AnswerStore(home).stats().answers == 16


@pytest.mark.parametrize("how", ["empty", "cut", "another file"])
def test_a_damaged_file_stops_a_run_before_anything_is_paid_for_twice(home: Path, how: str) -> None:
    filled(home, 400)
    path = file_of(home)
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": data[:9000], "another file": b"PAR1" * 9000}[how])
    engine, fresh = LineEngine(), AnswerStore(home)
    with pytest.raises(IntegrityError, match=r"are damaged .*answers gc` keeps"):
        list(ask(engine, questions(400), fresh, serving=SERVING))
    assert engine.asked == []
    report = AnswerStore(home).gc()
    assert [problem.file for problem in report.set_aside] == [path.name]
    assert (home / "answers" / "corrupt" / path.name).exists()
    rows = list(ask(engine, questions(400), AnswerStore(home), serving=SERVING))
    assert {row[2].status for row in rows} == {"ok"}
    assert len(rows) == 400


def test_what_lies_on_either_side_of_the_damage_is_kept(home: Path) -> None:
    keys = filled(home, 5000)
    path = file_of(home)
    data = bytearray(path.read_bytes())
    middle = data.index(b"Film 2500?") // 4096 * 4096
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(data)
    report = AnswerStore(home).gc()
    kept = AnswerStore(home).get(keys)
    assert len(report.set_aside) == 1
    assert 4500 < len(kept) < 5000
    assert {k: found.text for k, found in kept.items()} == {
        k: f"Film {n}?" for n, k in enumerate(keys) if k in kept
    }


@pytest.mark.pipeline
def test_a_flipped_bit_gives_no_wrong_answer(tmp_path: Path) -> None:
    asked = [*questions(20), *(question(n, constraint=STARS) for n in range(20, 40))]
    with AnswerStore(tmp_path / "whole") as store:
        store.add(IDENTITY, [answer(r) for r in asked])
    data = file_of(tmp_path / "whole").read_bytes()
    dice = random.Random(7)
    noticed = 0
    for number in range(150):
        broken = bytearray(data)
        broken[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        home = tmp_path / str(number)
        (home / "answers").mkdir(parents=True)
        file_of(home).write_bytes(broken)
        fresh = AnswerStore(home)
        try:
            rows = list(ask(LineEngine(), asked, fresh, serving=SERVING))
        except StoreError:
            noticed += 1
            continue
        finally:
            fresh.close()
        assert [row[2].text for row in rows] == [answer(row[0]).text for row in rows]
        noticed += bool(fresh.problems)
    assert noticed > 20


def test_a_file_of_a_later_version_is_an_error_and_not_a_damaged_one(home: Path) -> None:
    keys = filled(home, 1)
    change(home, "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="have format 99"):
        AnswerStore(home).get(keys)
