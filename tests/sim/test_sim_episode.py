"""The command `understudy episode`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from support.llm_api import NAME
from support.llm_server import LlmServer
from typer.testing import CliRunner, Result

from pipelines.cli.main import app
from pipelines.store import Store


def call(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["episode", "--home", str(home), *words])


def payload(home: Path, *words: str, code: int = 0) -> Any:
    result = call(home, *words, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.mark.pipeline
def test_the_installed_script_prints_persona_steps_and_summary(home: Path) -> None:
    script = Path(sys.executable).parent / "understudy"
    done = subprocess.run(
        [str(script), "episode", "--release", "latest", "--home", str(home), "--steps", "4",
         "--persona", "persona:default:2"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "Cleo, 42, female, carpenter (persona:default:2)"
    assert lines[1] == "likes Drama, Romance"
    assert "  1. Film 1 (1972) · Action, Thriller" in lines
    assert "★" in done.stdout
    assert "/10" in done.stdout
    assert "mean reward" in done.stdout
    assert "no language model was used" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout
    assert max(map(len, lines)) <= 80


def test_json_agrees_with_itself(home: Path) -> None:
    found = payload(home, "--steps", "6", "--seed", "4")
    steps, summary = found["steps"], found["summary"]
    assert found["language_model"] is False
    assert found["release"] == str(Store(home).release("movies"))
    assert [s["step"] for s in steps] == list(range(1, len(steps) + 1))
    assert summary["steps"] == len(steps)
    assert summary["total"] == sum(s["rating"] for s in steps)
    assert summary["mean_rating"] == pytest.approx(summary["total"] / len(steps))
    assert set(steps[0]) >= {"item_id", "title", "year", "genres", "expected", "drivers"}
    assert len({s["item_id"] for s in steps}) == len(steps)


@pytest.mark.pipeline
def test_episode_is_of_a_sampled_persona_beside_the_average_one(
    small: ModuleType, tmp_path: Path
) -> None:
    """Persona, drivers with taste, and the mean of what sampled personas would give."""
    people = small.frames()["movies.personas"].sort("persona_id")
    tests = pl.col("persona_id").is_in(["persona:default:0", "persona:default:3"])
    origin = pl.when(tests).then(pl.lit("handmade")).otherwise(pl.lit("sampled"))
    home = tmp_path / "home"
    small.build(home, replace={"movies.personas": people.with_columns(origin=origin)})
    sampled = people.filter(~tests)["persona_id"].to_list()
    drawn = {
        payload(home, "--steps", "1", "--seed", str(n))["persona"]["persona_id"] for n in range(8)
    }
    assert drawn <= set(sampled)
    assert len(drawn) > 1
    first = [payload(home, "--steps", "1", "--persona", one)["steps"][0] for one in sampled]
    # The most rated film comes first for everybody.
    assert len({step["item_id"] for step in first}) == 1
    mean = sum(step["expected"] for step in first) / len(first)
    assert [step["average"] for step in first] == pytest.approx([mean] * len(first), abs=1e-5)
    assert len({step["drivers"]["taste"] for step in first}) == len(first)
    assert f"average viewer {mean:.1f}" in call(home, "--steps", "1").stdout


@pytest.mark.parametrize("policy", ["random", "popular", "best"])
def test_the_same_seed_prints_the_same_episode(policy: str, home: Path) -> None:
    words = ["--policy", policy, "--steps", "5"]
    first = payload(home, *words, "--seed", "3")
    assert payload(home, *words, "--seed", "3") == first
    assert payload(home, *words, "--seed", "5")["steps"] != first["steps"]


def test_popular_goes_down_the_ranks_and_best_down_the_expected_ratings(
    small: ModuleType, home: Path
) -> None:
    ranks = small.frames()["movies.item_stats"].sort("popularity_rank")["item_id"].to_list()
    popular = payload(home, "--policy", "popular", "--seed", "1", "--steps", "3")["steps"]
    assert [s["item_id"] for s in popular] == ranks[: len(popular)]
    # She likes dramas and romances, and in this episode goes on liking what she is shown: what is
    # both comes before anything else.
    words = ["--policy", "best", "--steps", "5", "--persona", "persona:default:2", "--seed", "4"]
    best = payload(home, *words)["steps"]
    romances = small.frames()["movies.items"].filter(pl.col("genres").list.contains("Romance"))
    assert len(best) == 5
    assert {s["item_id"] for s in best} <= set(romances["item_id"])
    assert best[0]["expected"] == max(s["expected"] for s in best)


def test_replay_skips_what_has_no_rating_and_ends_when_nothing_is_left(home: Path) -> None:
    words = ["--rater", "replay", "--persona", "persona:default:1", "--steps", "100"]
    # A seed under which the persona stays to the end.
    for seed in range(20):
        found = payload(home, *words, "--seed", str(seed))
        if found["summary"]["end"] == "nothing left to recommend":
            break
    assert found["summary"]["end"] == "nothing left to recommend"
    assert len(found["steps"]) == 22
    assert {s["rating"] for s in found["steps"]} == {2.0}
    assert found["rater"] == "replay of statistical"


def test_rater_of_ones_own_plays_and_is_called_no_model(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from pipelines.raters import RandomRater\n"
        "class Mine(RandomRater):\n"
        "    name = 'mine'\n"
        "    def __init__(self, scale):\n"
        "        super().__init__(scale)\n"
    )
    found = payload(home, "--rater", f"{file}:Mine", "--steps", "1")
    assert (found["rater"], found["language_model"]) == ("mine", False)


def test_titles_are_printed_as_they_are(home: Path) -> None:
    words = ["--rater", "replay", "--policy", "random", "--steps", "100"]
    text = "".join(call(home, *words, "--seed", str(seed)).stdout for seed in range(6))
    assert "The [bold]Bracket[/bold] & Söhne\n" in text


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["--release", "moveis"], 6, "did you mean movies?"),
        (["--persona", "persona:defualt:2"], 6, "persona:default:2"),
        (["--policy", "worst"], 2, "worst"),
        (["--steps", "0"], 2, "--steps"),
    ],
)
def test_bad_input_is_one_line(words: list[str], code: int, what: str, home: Path) -> None:
    result = call(home, *words)
    assert result.exit_code == code
    assert what in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_release_without_the_needed_tables_names_them(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path, without=("interactions", "splits"))
    result = call(tmp_path)
    assert result.exit_code == 6
    assert "interactions, splits" in result.stderr
    small.build(tmp_path, without=("item_stats",))
    assert "item_stats" in call(tmp_path, "--policy", "popular", "--rater", "replay").stderr
    assert call(tmp_path, "--policy", "random", "--rater", "replay").exit_code == 0


def test_language_model_plays_an_episode(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path, settings={"scoring": {"scale": "1-5"}, "engine": {"kind": "scripted"}})
    words = ["--rater", "llm", "--retriever", "embedding", "--policy", "random", "--steps", "3"]
    found = payload(tmp_path, *words)
    assert (found["rater"], found["language_model"]) == ("llm:scripted", True)
    assert [step["average"] for step in found["steps"]] == [None] * len(found["steps"])
    assert "action_mask" not in found["steps"][0]
    refused = call(tmp_path, "--rater", "llm", "--policy", "best")
    assert refused.exit_code == 2
    assert "asks the language model about every item" in refused.stderr


@pytest.mark.pipeline
def test_model_that_gives_no_rating_ends_with_its_reason(
    small: ModuleType, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.build(tmp_path, settings={"scoring": {"scale": "1-5"}})
    monkeypatch.setenv("UNDERSTUDY_ENGINE__KIND", "openai")
    monkeypatch.setenv("UNDERSTUDY_ENGINE__MODEL", NAME)
    with LlmServer(tiny_model, "ollama") as server:
        monkeypatch.setenv("UNDERSTUDY_SERVING__BASE_URL", server.url)
        result = call(tmp_path, "--rater", "llm", "--steps", "2")
        many = CliRunner().invoke(
            app, ["episodes", "--home", str(tmp_path), "--rater", "llm", "--episodes", "2"]
        )
    assert result.exit_code == 7
    assert "the engine can't give the probabilities of 5 answers" in result.stderr
    assert "set engine.draws" in result.stderr
    assert result.stderr.count("\n") == 1
    assert (many.exit_code, many.stderr) == (7, result.stderr)
