"""Homes of earlier versions, whose answers are Parquet parts: moved into files once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.calls import IDENTITY, STARS, answer, question, questions

from pipelines.errors import IntegrityError
from pipelines.llm.answers import AnswerStore, Scope, answer_key, answer_keys
from pipelines.llm.answers._record import identity_json
from pipelines.llm.engines import Answer

SCORES = Scope("movies.preference_scores", "late night")
RANGES = "answers/tables/movies.preference_scores:late%20night/p3,"


def row(one: Answer, moment: int) -> dict[str, Any]:
    """A row as version 0.1 stored it."""
    return {
        "key": bytes.fromhex(answer_key(IDENTITY, one.request)),
        "status": one.status,
        "max_tokens": one.request.sampling.max_tokens,
        "stored_at": moment,
        "text": one.text,
        "probabilities": one.probabilities,
        "mass": one.mass,
        "finish_reason": one.finish_reason,
        "prompt_tokens": one.prompt_tokens,
        "completion_tokens": one.completion_tokens,
        "cached_tokens": one.cached_tokens,
        "latency": one.latency,
        "detail": one.detail,
        "engine": IDENTITY.engine,
        "model": IDENTITY.model,
        "identity": identity_json(IDENTITY),
        "request": None,
    }


def part(folder: Path, number: int, answers: list[Answer]) -> Path:
    """A part as version 0.1 wrote it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row(one, 10**15 + 100 * number + n) for n, one in enumerate(answers)]
    table = pa.Table.from_pylist(rows)
    at = table.schema.get_field_index("stored_at")
    moments = table["stored_at"].cast(pa.timestamp("us", tz="UTC"))
    path = folder / f"part-{number:016d}-abc.parquet"
    pq.write_table(table.set_column(at, "stored_at", moments), path, write_page_checksum=True)
    return path


def test_parts_become_files_of_their_scopes(tmp_path: Path) -> None:
    starred = Answer(question("x", constraint=STARS), "ok", "2", (0.25, 0.5, 0.25), 0.75, "stop", 3)
    part(tmp_path / "answers", 1, [answer(question(1), "truncated"), starred])
    part(tmp_path / "answers", 2, [answer(question(1)), answer(question(2), "invalid")])
    part(tmp_path / RANGES, 3, [answer(question(3))])
    (tmp_path / "answers" / "uses" / "elsewhere").mkdir(parents=True)
    store = AnswerStore(tmp_path)
    asked = [question(1), question(2), question(3)]
    got = store.get(answer_keys(IDENTITY, [*asked, starred.request]))
    assert [got[key].status for key in answer_keys(IDENTITY, asked)] == ["ok", "invalid", "ok"]
    restored = got[answer_key(IDENTITY, starred.request)]
    assert restored.answer(starred.request) == starred
    assert restored.stored_at.timestamp() == pytest.approx(1e9 + 101e-6)
    store.close()
    names = {path.name for path in (tmp_path / "answers").iterdir()}
    assert names == {"answers.sqlite", SCORES.file}


def test_a_part_that_cannot_be_read_is_named_and_stays(tmp_path: Path) -> None:
    whole = part(tmp_path / "answers", 1, [answer(r) for r in questions(3)])
    torn = part(tmp_path / "answers", 2, [answer(r) for r in questions(3, 5)])
    torn.write_bytes(torn.read_bytes()[:200])
    with pytest.raises(IntegrityError, match="earlier version's answers can't be read"):
        AnswerStore(tmp_path)
    assert torn.exists()
    assert not whole.exists()
    torn.rename(tmp_path / "elsewhere")
    assert AnswerStore(tmp_path).stats().answers == 3
