"""Expected calls of a language model are shown before a run, and a preview stores nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.config import Settings
from pipelines.stages import expect_calls, stage_of
from pipelines.store import Store

MODEL = {"engine": {"kind": "openai", "model": "m"}, "scoring": {"rater": "llm"}}


def settings(**more: object) -> Settings:
    return Settings(**MODEL, personas={"writer": "model", "count": 20}, **more)


def test_statistical_run_expects_no_call(tmp_path: Path) -> None:
    stages = [stage_of(f"movies.{table}") for table in ("personas", "preference_scores", "items")]
    assert expect_calls(stages, Store(tmp_path), Settings(), "default") == []


def test_price_and_time_follow_from_tokens_and_settings(tmp_path: Path) -> None:
    stages = [stage_of(f"movies.{table}") for table in ("personas", "preference_scores")]
    serving = {"input_price": 2.0, "output_price": 10.0, "concurrency": 10}
    calls = expect_calls(stages, Store(tmp_path), settings(serving=serving), "default")
    assert [call.table for call in calls] == [
        *("movies.personas", "movies.preference_scores", "movies.rater_report")
    ]
    # 20 personas with each of the sample world's 300 films.
    assert [call.requests for call in calls] == [20, 6000, 2000]
    for call in calls:
        assert call.price == pytest.approx(
            (2 * call.prompt_tokens + 10 * call.completion_tokens) / 1e6
        )
        # A prompt holds a persona and a film, and no book.
        assert 100 < call.prompt_tokens / call.requests < 2000
    assert calls[1].completion_tokens == 6000
    assert calls[1].seconds == pytest.approx(600 * (0.5 + 1 / 50))
    free = expect_calls(stages, Store(tmp_path), settings(), "default")
    assert [call.price for call in free] == [None] * 3


def test_dry_run_and_preview_write_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def called(*words: str) -> dict[str, object]:
        result = CliRunner().invoke(app, [*words, "--home", str(home), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    model = ("--set", "engine.kind=openai", "--set", "engine.model=m")
    asked = called("personas", "write", "--n", "7", "--writer", "model", "--dry-run", *model)
    assert asked["requests"] == 7
    shown = called("personas", "write", "--preview", "3")["personas"]
    assert [row["persona_id"][-1] for row in shown] == ["0", "1", "2"]
    written = called(
        *("personas", "write", "--preview", "1", "--writer", "model"),
        *("--set", "engine.kind=scripted", "--set", "personas.gates=none"),
    )
    assert written["writer"] == "scripted"
    assert not home.exists()
