"""`understudy models`: get, list, path, rm."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from pipelines.cli.main import app
from pipelines.llm.engines.checkpoints import find_checkpoint


def run(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["models", *words, "--home", str(home)])


def test_model_is_got_listed_located_and_removed(tmp_path: Path, tiny_model: Path) -> None:
    got = run(tmp_path, "get", "mine", "--from", str(tiny_model), "--json")
    assert got.exit_code == 0, got.output
    payload = json.loads(got.stdout)
    assert payload["name"] == "mine"
    assert Path(payload["folder"]) == tmp_path / "models" / "mine"

    listed = json.loads(run(tmp_path, "list", "--json").stdout)
    assert [m["name"] for m in listed["models"]] == ["mine"]
    published = dict.fromkeys(("smollm2-135m", "qwen2.5-coder-1.5b"), False)
    assert {m["name"]: m["here"] for m in listed["published"]} == published
    shown = run(tmp_path, "list").stdout
    assert "mine" in shown
    assert "`understudy models get smollm2-135m`" in shown

    assert run(tmp_path, "path", "mine").stdout.strip() == payload["folder"]
    removed = run(tmp_path, "rm", "mine")
    assert "mine: deleted" in removed.stdout
    assert not Path(payload["folder"]).exists()


def test_stages_are_lines_where_no_terminal_is(tmp_path: Path, tiny_model: Path) -> None:
    got = run(tmp_path, "get", "mine", "--from", str(tiny_model))
    assert "copying model.safetensors (" in got.stderr
    assert "copying" not in got.stdout
    assert "--set engine.model=mine" in got.stdout


def test_unknown_names_are_usage_errors(tmp_path: Path) -> None:
    for words in (("get", "smollm"), ("path", "mine"), ("rm", "mine")):
        result = run(tmp_path, *words)
        assert result.exit_code == 2
        assert len(result.stderr.strip().splitlines()) == 1


def test_settings_place_models_beside_the_store(tmp_path: Path, tiny_model: Path) -> None:
    from pipelines.config import load_settings

    run(tmp_path, "get", "mine", "--from", str(tiny_model))
    settings = load_settings(overrides={"runtime": {"home": str(tmp_path)}})
    found = find_checkpoint("mine", models=settings.serving.models)
    assert (found.name, found.folder) == ("mine", tmp_path / "models" / "mine")
    elsewhere = load_settings(overrides={"serving": {"models": str(tmp_path / "models")}})
    assert find_checkpoint("mine", models=elsewhere.serving.models).folder == found.folder


def test_doctor_offers_a_model_and_opens_one_by_name(tmp_path: Path, tiny_model: Path) -> None:
    from pipelines.cli._doctor import model_findings
    from pipelines.config import load_settings

    place = {"runtime": {"home": str(tmp_path)}}
    [(_, finding)] = model_findings(load_settings(overrides=place))
    assert "`understudy models get smollm2-135m`" in finding.found
    run(tmp_path, "get", "mine", "--from", str(tiny_model))
    [(_, finding)] = model_findings(load_settings(overrides=place))
    assert "here: mine" in finding.found
    engine = {"engine": {"kind": "transformers", "model": "mine"}}
    rows = dict(model_findings(load_settings(overrides=place | engine)))
    assert "; mine; float32" in rows["language model"].found
    assert rows["scale 1-5"].found == "each answer is one token"
