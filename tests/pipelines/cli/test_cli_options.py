"""Options, settings and terminal helpers that commands share."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.cli.options import (
    Call,
    command,
    overrides_of,
    progress_bar,
    table,
)
from pipelines.config import Settings, load_settings
from pipelines.errors import ConfigError
from pipelines.progress import advance


def test_home_on_the_command_line_wins_over_set_and_environment(tmp_path: Path) -> None:
    settings = load_settings(None, overrides_of(tmp_path, ["runtime.home=elsewhere"]))
    assert settings.runtime.home == tmp_path


def test_assignments_are_converted_by_the_settings(tmp_path: Path) -> None:
    overrides = overrides_of(None, ["personas.count=50", "world.sample.films=40"])
    settings = load_settings(None, overrides)
    assert (settings.personas.count, settings.world.sample.films) == (50, 40)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("personas.count", "section.key=value"),
        ("count=3", "section.key=value"),
        ("a..b=3", "section.key=value"),
        ("tmdb.token=s3cret", "set UNDERSTUDY_TMDB__TOKEN in the environment"),
        ("serving.api_key=s3cret", "set UNDERSTUDY_SERVING__API_KEY in the environment"),
    ],
)
def test_a_bad_assignment_is_named_and_never_echoes_its_value(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        load_settings(None, overrides_of(None, [text]))
    assert "s3cret" not in str(caught.value)


def test_latest_alone_is_the_configured_release() -> None:
    call = Call(Settings(release={"name": "books"}), {})
    assert call.ref("latest") == "books@latest"
    assert call.ref("movies@0123") == "movies@0123"


def test_an_option_of_a_setting_has_its_help_and_default() -> None:
    text = CliRunner().invoke(app, ["match", "--help"], env={"COLUMNS": "200"}).stdout
    assert (
        "Users matched per domain, sampled by hash (count). (setting matching.users; a whole"
        in text
    )
    assert "default 1000)" in text


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["match", "--users", "0"], "matching.users takes a whole number of at least 1, not 0"),
        (["personas", "write", "--writer", "ghost"], "personas.writer takes one of statistical"),
        (["train", "--seed", "1", "--seed", "-1"], "training.seeds"),
        (["ui", "--port", "70000"], "runtime.ui_port takes a whole number from 1 to 65535"),
    ],
)
def test_an_option_of_a_setting_is_validated_as_the_setting(words: list[str], what: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert what in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_option_wins_over_set(tmp_path: Path) -> None:
    file = tmp_path / "seen.json"

    @command({"--n": "personas.count", "--seed": "training.seeds"})
    def seen(call: Call) -> None:
        settings = call.settings
        file.write_text(json.dumps([settings.personas.count, settings.training.seeds]))

    own = typer.Typer()
    own.command()(seen)
    words = ["--set", "personas.count=3", "--n", "4", "--seed", "5", "--seed", "6"]
    result = CliRunner().invoke(own, words)
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_text()) == [4, [5, 6]]


def test_csv_has_the_rows_of_the_json(home: Path) -> None:
    words = ["release", "list", "--home", str(home)]
    rows = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["releases"]
    result = CliRunner().invoke(app, [*words, "--csv"])
    shown = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["version"] for row in shown] == [row["version"] for row in rows]
    assert shown[0]["latest"] == "true"
    both = CliRunner().invoke(app, [*words, "--csv", "--json"])
    assert (both.exit_code, both.stderr.count("exclude each other")) == (2, 1)


@pytest.mark.parametrize("forced", ["", "1"])
def test_a_progress_bar_writes_nothing_without_a_terminal(
    forced: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", forced)
    with progress_bar("working"):
        advance("still working", 1, 2)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_a_log_gets_a_line_with_every_slow_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 1.0, 5.0, 5.0, 6.0, 30.0, 70.0, 70.0])
    monkeypatch.setattr("pipelines.cli._terminal.monotonic", lambda: next(times))
    with progress_bar("working", lines=True):
        advance("judge: 8 agents")  # 1 s after the beginning
        advance("answers", 3)  # 5 s
        advance("judge: 3 agents")  # 1 s later
        advance("answers", 9)  # 25 s later, the same step
        advance("answers", 20, 40)  # more than a minute later
    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["answers 3", "answers 20 of 40"]


def test_a_wide_table_keeps_every_character_at_80_columns() -> None:
    from rich.console import Console

    shown = io.StringIO()
    grid = table("name", "count", numeric=["count"])
    grid.add_row("x" * 200, "1,000,000")
    Console(file=shown, width=80).print(grid)
    lines = shown.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 80
    assert shown.getvalue().count("x") == 200
    assert "1,000,000" in shown.getvalue()


def test_config_show_gives_value_and_origin_of_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("personas:\n  count: 12\nworld:\n  sample:\n    films: 40\n")
    monkeypatch.setenv("UNDERSTUDY_PERSONAS__SEED", "9")
    result = CliRunner().invoke(
        app, ["config", "show", "--config", str(file), "--set", "scoring.scale=1-5", "--json"]
    )
    assert result.exit_code == 0, result.output
    rows = {row["key"]: row for row in json.loads(result.stdout)["settings"]}
    assert (rows["personas.count"]["value"], rows["personas.count"]["origin"]) == (12, str(file))
    assert rows["world.sample.films"]["origin"] == str(file)
    assert rows["personas.seed"]["origin"] == "UNDERSTUDY_PERSONAS__SEED"
    assert rows["runtime.home"]["origin"] == "UNDERSTUDY_HOME"
    assert (rows["scoring.scale"]["value"], rows["scoring.scale"]["origin"]) == (
        "1-5",
        "command line",
    )
    assert (rows["splits.test"]["value"], rows["splits.test"]["origin"]) == (0.1, "default")
    assert rows["runtime.threads"]["identity"] is False
    assert rows["personas.count"]["identity"] is True
    assert all(row["description"] for row in rows.values())


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize("variable", ["TMDB_TOKEN", "UNDERSTUDY_TMDB__TOKEN"])
def test_config_show_never_prints_the_token(
    words: list[str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "s3cret-token")
    result = CliRunner().invoke(app, ["config", "show", *words])
    assert result.exit_code == 0, result.output
    assert "s3cret" not in result.output
    assert "********" in result.output
    assert variable in result.output.replace("\n", "")


def test_config_show_refuses_an_unknown_key_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("personas:\n  cuont: 12\n")
    result = CliRunner().invoke(app, ["config", "show", "--config", str(file)])
    assert result.exit_code == 2
    assert "did you mean personas.count?" in result.stderr
