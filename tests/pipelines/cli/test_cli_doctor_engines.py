"""`doctor` on language models: which can run, and what the configured one can do."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from support.llm_api import KINDS
from support.llm_server import LlmServer
from typer.testing import CliRunner, Result

from pipelines.cli.main import app
from pipelines.llm.engines.vllm import vllm_version

KEY = "sk-that-no-one-may-see-51d0"
SCALES = ["scale 0-9", "scale 1-10", "scale one-ten", "scale 1-5", "scale 0-100"]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `doctor` with settings of the environment; the lines on models by name."""
    from pipelines.cli import _doctor

    monkeypatch.setattr(_doctor, "CHECKS", {})

    def run(*args: str, **settings: str) -> tuple[dict[str, dict[str, str]], Result]:
        for key, value in settings.items():
            monkeypatch.setenv(f"UNDERSTUDY_{key.upper()}", value)
        result = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path), "--json", *args])
        rows = {row["name"]: row for row in json.loads(result.stdout)["checks"]}
        return rows, result

    return run


def test_without_a_model_it_is_one_line_that_says_what_to_set(doctor: Any) -> None:
    rows, result = doctor()
    assert list(rows) == ["engines", "language model"]
    line = rows["language model"]
    assert line["status"] == "ok"
    assert "none configured" in line["found"]
    assert "engine.kind" in line["found"]
    assert "engine.model" in line["found"]
    assert result.exit_code == 0


def test_a_checkpoint_is_loaded_its_scales_read_and_a_question_answered(
    doctor: Any, tiny_model: Path
) -> None:
    rows, result = doctor(engine__kind="transformers", engine__model=str(tiny_model))
    assert list(rows) == ["engines", "language model", *SCALES, "question", "smoke test"]
    loaded = rows["language model"]["found"]
    for part in ("tiny-model", "float32", "device cpu", "context 1,024 tokens", "ready in"):
        assert part in loaded
    assert str(tiny_model) not in result.stdout
    assert rows["scale 1-5"]["found"] == "each answer is one token"
    assert rows["scale 1-10"]["found"] == ('read as sequences: "10" is 2 tokens; "1" begins "10"')
    # Random weights put next to nothing on five digits of two thousand tokens.
    smoke = rows["smoke test"]
    assert smoke["status"] == "warn"
    assert " ms; " in smoke["found"]
    assert "chat template" in smoke["advice"]
    assert result.exit_code == 0


def test_a_model_that_is_not_there_fails_and_says_where_it_was_looked_for(
    doctor: Any, tmp_path: Path
) -> None:
    rows, result = doctor(engine__kind="transformers", engine__model=str(tmp_path / "none"))
    line = rows["language model"]
    assert line["status"] == "fail"
    assert str(tmp_path / "none") in line["found"]
    assert line["advice"]
    assert list(rows) == ["engines", "language model"]
    assert result.exit_code == 1


@pytest.mark.skipif(vllm_version() is not None, reason="vLLM is installed here")
def test_an_engine_that_is_not_installed_fails_with_where_to_read(
    doctor: Any, tiny_model: Path
) -> None:
    rows, result = doctor(engine__kind="vllm", engine__model=str(tiny_model))
    assert rows["language model"]["status"] == "fail"
    assert "docs/engines.md" in rows["language model"]["advice"]
    assert result.exit_code == 1


def test_a_server_is_probed_and_no_key_is_shown(doctor: Any, tiny_model: Path) -> None:
    with LlmServer(tiny_model, KINDS["vllm"], key=KEY) as server:
        rows, result = doctor(
            engine__kind="openai",
            engine__model=server.name,
            serving__base_url=server.url,
            serving__api_key=KEY,
            serving__tokenizer=str(tiny_model),
        )
    assert rows["language model"]["status"] == "ok"
    assert "logprob_token_ids" in rows["language model"]["found"]
    assert {rows[name]["status"] for name in SCALES} == {"ok"}
    assert rows["smoke test"]["status"] == "warn"
    assert KEY not in result.output


def test_a_server_that_is_not_there_fails_without_the_key(doctor: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        rows, result = doctor(
            engine__kind="openai",
            engine__model="any",
            serving__base_url=address,
            serving__api_key=KEY,
            serving__retries="0",
        )
    assert rows["language model"]["status"] == "fail"
    assert address[:-3] in rows["language model"]["found"] + rows["language model"]["advice"]
    assert KEY not in result.output
    assert result.exit_code == 1


def test_the_scripted_engine_passes_the_smoke_test(doctor: Any) -> None:
    rows, result = doctor(engine__kind="scripted")
    assert rows["smoke test"]["status"] == "ok"
    assert result.exit_code == 0


def test_the_question_that_a_model_answers_best_is_advised(doctor: Any, tmp_path: Path) -> None:
    rows, _ = doctor(engine__kind="scripted")
    assert "none is measured" in rows["question"]["found"]
    assert "understudy ablate" in rows["question"]["found"]
    reports = tmp_path / "ablations" / "reports"
    reports.mkdir(parents=True)
    scores = {"llm:scripted": 0.4, "llm:scripted:like": 0.7, "llm:scripted:compare": 0.5}
    lines = [f"{name},{words},{s}" for name, s in scores.items() for words in ("own", "open-text")]
    (reports / "movies.csv").write_text("\n".join(["rater,wording,aggregate", *lines]))
    rows, result = doctor()
    assert rows["question"]["found"].startswith("scale is not its best: like 0.700, compare 0.500")
    assert rows["question"]["advice"] == "set scoring.question=like"
    rows, _ = doctor(scoring__question="like")
    assert rows["question"]["status"] == "ok"
    assert result.exit_code == 0
