"""`understudy answers stats | show | gc` on a real store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.calls import IDENTITY, STARS, answer, question
from typer.testing import CliRunner, Result

from pipelines.cli.main import app
from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, answer_key
from pipelines.llm.engines import Answer

OTHER = replace(IDENTITY, model="larger [beta]", engine="openai")
STARRED = Answer(
    question("one", constraint=STARS, max_tokens=1),
    "ok",
    "2",
    (0.25, 0.5, 0.25),
    0.75,
    "length",
    9,
    1,
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of two models; never write to it."""
    home = tmp_path_factory.mktemp("answers") / "home"
    with AnswerStore(home, ServingSettings(keep_requests=True)) as store:
        store.add(IDENTITY, [STARRED, answer(question("two"), "engine_error", detail="reset")])
    with AnswerStore(home) as store:
        store.add(OTHER, [answer(question("two"), text="[bold]Fine[/bold]")])
        store.add(IDENTITY, [answer(question("three"), "truncated", text="and so")])
    return home


def call(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["answers", *words, "--home", str(home)])


def payload(home: Path, *words: str) -> Any:
    result = call(home, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_stats_counts_by_model_and_status(filled: Path) -> None:
    found = payload(filled, "stats")
    assert found["folder"] == str(filled / "answers")
    assert (found["answers"], found["files"], found["failed"]) == (4, 1, 1)
    assert found["statuses"] == {
        "ok": 2,
        "truncated": 1,
        "invalid": 0,
        "refused": 0,
        "engine_error": 1,
    }
    tiny, larger = found["models"]
    assert (tiny["model"], tiny["answers"], tiny["prompt_tokens"]) == ("tiny", 3, 9 + 7 + 7)
    assert (larger["engine"], larger["statuses"]["ok"]) == ("openai", 1)
    assert found["oldest"] < found["newest"]
    assert found["problems"] == []
    text = call(filled, "stats").output
    assert "4 answers in 1 files" in text
    assert "larger [beta]" in text
    assert "1 truncated" in text
    assert "would drop 1 failed rows" in text


def test_an_empty_store_has_no_answers_and_is_not_made(tmp_path: Path) -> None:
    home = tmp_path / "none"
    assert payload(home, "stats")["answers"] == 0
    assert "No answers are stored." in call(home, "stats").output
    assert payload(home, "show") == {"answers": []}
    assert "No such answer is stored." in call(home, "show").output
    assert not home.exists()


def test_show_lists_the_newest_first_and_filters(filled: Path) -> None:
    shown = [(a["identity"]["model"], a["status"]) for a in payload(filled, "show")["answers"]]
    assert shown == [
        ("tiny", "truncated"),
        ("larger [beta]", "ok"),
        ("tiny", "engine_error"),
        ("tiny", "ok"),
    ]

    def found(*words: str) -> list[str]:
        return [a["status"] for a in payload(filled, "show", *words)["answers"]]

    assert found("--limit", "2") == ["truncated", "ok"]
    assert found("--status", "ok", "--status", "truncated") == ["truncated", "ok", "ok"]
    assert found("--model", "larger") == ["ok"]
    assert found("--model", "larger", "--status", "invalid") == []
    text = call(filled, "show").output
    assert "[bold]Fine[/bold]" in text
    assert "reset" in text
    assert "and so" not in text, "what is cut is no answer"
    assert "--limit shows more" in call(filled, "show", "--limit", "2").output


@pytest.mark.parametrize("digits", [64, 17, 16, 9, 1])
def test_show_finds_an_answer_by_the_start_of_its_key(filled: Path, digits: int) -> None:
    key = answer_key(IDENTITY, STARRED.request)
    found = payload(filled, "show", key[:digits].upper())["answers"]
    assert key in [a["key"] for a in found]
    assert all(a["key"].startswith(key[:digits]) for a in found)


def test_an_answer_alone_is_shown_in_full_with_its_question(filled: Path) -> None:
    key = answer_key(IDENTITY, STARRED.request)
    text = call(filled, "show", key).output
    for line in (
        f"key      {key}",
        "status   ok",
        "model    tiny main",
        "engine   test 1.0 float32 none",
        "tokens   9 in (0 cached), 1 out of at most 1",
        "shares   0.2500 0.5000 0.2500",
        "mass     0.7500",
        "user: Film one?",
    ):
        assert line in text
    [found] = payload(filled, "show", key)["answers"]
    assert found["probabilities"] == [0.25, 0.5, 0.25]
    assert found["request"]["constraint"] == {"choice": ["1", "2", "3"]}


def test_what_is_no_key_is_a_usage_error(filled: Path) -> None:
    result = call(filled, "show", "xyz")
    assert result.exit_code == 2
    assert "not a key prefix: xyz" in result.output
    assert call(filled, "show", "--limit", "0").exit_code == 2
    assert call(filled, "gc", "--forget", "maybe").exit_code == 2


def test_gc_says_what_it_would_do_and_does_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with AnswerStore(home) as store:
        store.add(IDENTITY, [answer(question(1), "engine_error"), answer(question(2), "invalid")])
        store.add(IDENTITY, [answer(question(3))])
        store.add(OTHER, [answer(question(3))])
    torn = home / "answers" / "movies.personas:torn.sqlite"
    torn.write_bytes(b"torn" * 99)
    assert f"damaged, not counted: {torn.name}" in call(home, "stats").output
    dry = call(home, "gc", "--dry-run").output
    assert "1 of 4 rows would be dropped: 1 failed, 0 forgotten, 0 damaged" in dry
    assert f"damaged: {torn.name}" in dry
    done = payload(home, "gc", "--forget", "invalid")
    assert (done["answers"], done["failed"], done["forgotten"]) == (4, 1, 1)
    assert (done["corrupt"], done["dry_run"]) == (0, False)
    assert [p["file"] for p in done["set_aside"]] == [torn.name]
    assert payload(home, "stats")["statuses"]["ok"] == 2
    assert payload(home, "gc", "--model", "larger")["forgotten"] == 1
    assert "0 of 1 rows dropped" in call(home, "gc").output


def test_export_writes_parquet(filled: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.parquet"
    assert payload(filled, "export", "--out", str(out)) == {"file": str(out), "answers": 4}
    assert "4 answers written to" in call(filled, "export", "--out", str(out)).output
    frame = pl.read_parquet(out)
    assert frame["model"].value_counts(sort=True).rows() == [("tiny", 3), ("larger [beta]", 1)]
    assert frame.filter(status="ok", model="tiny")["probabilities"].to_list() == [[0.25, 0.5, 0.25]]
