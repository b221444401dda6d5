"""Suites, their report and the command line, on a generated book."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.tiny_models import tiny_checkpoint
from typer.testing import CliRunner

import sim
from pipelines.config import Settings, load_settings
from pipelines.contracts import DIALOGUE
from pipelines.errors import ConfigError, IntegrityError
from pipelines.llm import session
from sim.dialogue import Book, Lifetimes, ShoppingTools
from sim.dialogue.suites import (
    SUITES,
    Configuration,
    DialogueContext,
    DialogueRun,
    checks,
    chosen_suites,
    read_run,
    run_suites,
    write_run,
)
from sim.dialogue.testing import sample_book


@pytest.fixture(scope="module")
def book() -> Book:
    return sample_book(sets=20, personas=80)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def found(book: Book, home: Path) -> DialogueRun:
    context = DialogueContext(book, Settings(), home, seeds=6, episodes=5)
    return run_suites(context, ["models", "planning"])


def test_suites_are_those_of_the_paper_and_ours() -> None:
    assert list(SUITES) == [
        "models", "planning", "feedback", "reasoning", "context", "settings", "generalisation",
        "faithfulness",
    ]  # fmt: skip
    assert chosen_suites(["all"]) == list(SUITES)
    with pytest.raises(ConfigError, match="did you mean feedback"):
        chosen_suites(["feedbak"])


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_has_floors_bounds_and_statistical_rows(name: str) -> None:
    rows = SUITES[name].rows(("model-base",))
    agents = {row.agent for row in rows}
    assert {"random", "popularity", "oracle", "best", "model-base"} <= agents
    assert {row.source for row in rows} == {"baseline", "statistical", "model"}
    label, value = SUITES[name].reference
    assert any(row.labels[label] == value for row in rows)
    # Labels that are shown tell all rows apart.
    shown = [tuple(row.labels[k] for k in SUITES[name].varied) for row in rows]
    assert len(set(shown)) == len(shown)


def test_models_play_with_memory_on_and_off(found: DialogueRun) -> None:
    dp = found.episodes.filter(pl.col("agent") == "dp")
    assert set(dp["memory"]) == {True, False}


def test_tables_follow_their_contracts(found: DialogueRun) -> None:
    for name in ("episodes", "turns", "report"):
        DIALOGUE[f"dialogue.{name}"].validate(getattr(found, name))


def test_report_has_curves_tests_and_calibration(found: DialogueRun) -> None:
    own = found.report.filter(
        (pl.col("figure") == "models") & (pl.col("configuration") == "dp, memory on")
    )
    curve = own.filter((pl.col("metric") == "normalised_regret") & (pl.col("x") > 0))
    assert curve["x"].to_list() == [1, 2, 3, 4, 5]
    whole = own.filter((pl.col("metric") == "memory_effect") & (pl.col("x") == 0)).row(
        0, named=True
    )
    assert 0 < whole["p"] <= 1
    assert whole["low"] <= whole["value"] <= whole["high"]
    assert {"ece_top_1", "ece_regret_10"} <= set(own["metric"])
    planned = found.report.filter(
        (pl.col("figure") == "planning") & pl.col("metric").eq("regret_episode_1")
    )
    asked = planned.filter(pl.col("configuration") == "base")["x"].to_list()
    assert asked == list(range(1, 11))


def test_gap_closed_is_one_of_the_oracle(found: DialogueRun) -> None:
    own = found.report.filter((pl.col("metric") == "gap_closed") & (pl.col("figure") == "models"))
    values = dict(own.select("configuration", "value").iter_rows())
    assert values["oracle, memory off"] == pytest.approx(1.0)
    assert values["best, memory off"] > 1


def test_checks_read_the_run(book: Book, found: DialogueRun) -> None:
    passed = {name: ok for name, (ok, _) in checks(book, found).items()}
    assert passed == dict.fromkeys(
        ("replies_are_readable", "no_leaks", "asking_pays", "oracle_beats_floors"), True
    )
    flat = replace(book, sets=tuple(replace(s, y=np.full(s.y.shape, 70, "f4")) for s in book.sets))
    assert not checks(flat, found)["asking_pays"][0]
    leaked = found.episodes.with_columns(status=pl.lit("leaked"))
    assert not checks(book, replace(found, episodes=leaked))["no_leaks"][0]


def test_written_run_is_read_back(found: DialogueRun, tmp_path: Path) -> None:
    files = write_run(found, tmp_path / "run")
    again = read_run(tmp_path / "run")
    assert again.episodes.equals(found.episodes)
    assert again.report.equals(found.report)
    page = files["html"].read_text("utf-8")
    assert "no model improves over episodes" in page
    assert page.count("data:image/png") >= 6
    with pytest.raises(IntegrityError, match="no finished run"):
        read_run(tmp_path)


def test_second_run_plays_nothing_again(book: Book, home: Path, found: DialogueRun) -> None:
    context = DialogueContext(book, Settings(), home, seeds=6, episodes=5)
    assert context.play(Configuration("dp")).reused == 1
    assert run_suites(context, ["models", "planning"]).key == found.key


@pytest.fixture
def command(book: Book, home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sim, "open_release", lambda *_, **__: None)
    monkeypatch.setattr(Book, "open", classmethod(lambda *_: book), raising=False)
    from sim.dialogue.cli import app

    def run(*words: str, input: str | None = None) -> Any:  # noqa: A002
        where = [] if words[0] == "nothing" else ["--home", str(home)]
        return CliRunner().invoke(app, [*words, *where], input=input)

    return run


def test_run_report_and_show_print_the_same_run(command: Any) -> None:
    asked = ("run", "--agent", "dp", "--seeds", "2", "--episodes", "2", "--feedback", "stars")
    done = command(*asked, "--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)["figures"]
    assert {row["configuration"] for row in figures} == {
        "random, memory off", "popularity, memory off", "oracle, memory off", "best, memory off",
        "dp, memory on",
    }  # fmt: skip
    again = json.loads(command("report", "--json").stdout)
    assert again["figures"] == figures
    shown = command("show", "1", "--agent", "dp")
    assert shown.exit_code == 0, shown.output
    assert "Lifetime 1: agent dp, setting customer, feedback stars, memory on" in shown.stdout
    assert shown.stdout.count("Sold:") == 2
    assert "Customer: I " in shown.stdout


def test_wrong_words_are_one_line_errors(command: Any) -> None:
    for words, text in (
        (("run",), "name suites or agents"),
        (("run", "--agent", "greddy"), "greedy"),
        (("run", "--suite", "modles"), "models"),
        (("run", "--agent", "dp", "--agent-option", "depth"), "key=value"),
        (("run", "--agent", "dp", "--episodes", "99"), "99 episodes need 99"),
        (("run", "--agent", "dp", "--cell", "unseen"), "unknown cell"),
    ):
        done = command(*words)
        assert done.exit_code != 0
        assert text in str(done.exception), done.output


def test_play_lets_a_person_ask_and_sell(command: Any, book: Book) -> None:
    done = command("play", "--seed", "4", input="Which material?\n99\n1\n")
    assert done.exit_code == 0, done.output
    drawn = Lifetimes.draw(book, [4], episodes=1)
    shelf, y = book.sets[drawn.sets[0, 0]], None
    y = shelf.y[drawn.personas[0, 0]]
    assert f"Category: {shelf.name}" in done.stdout
    assert f"Numbers are from 1 to {len(shelf)}" in done.stdout
    assert f"{shelf.titles[int(np.argmax(y))]}: {y.max():.1f}" in done.stdout
    assert "Mean regret" in done.stdout
    left = command("play", "--seed", "4", "--json", input="\n")
    assert json.loads(left.stdout) == {"regrets": [], "mean_regret": None}
    assert "Category" not in left.stdout


def test_tasks_are_json_lines_that_the_tools_take(command: Any, book: Book) -> None:
    done = command("tasks", "--tasks", "3", "--episodes", "2")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({row["task"] for row in rows}) == 3
    assert json.loads(command("tasks", "--tasks", "3", "--episodes", "2", "--json").stdout) == rows
    tools = ShoppingTools(book=book)
    assert "You are serving customer 1." in tools.reset(**rows[2])


def test_language_models_have_rows_of_their_own_and_share_their_weights(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_checkpoint(tmp_path / "tiny", shape={"max_position_embeddings": 4096})
    settings = load_settings(
        overrides={
            "runtime": {"home": tmp_path / "home"},
            "engine": {"kind": "transformers", "model": str(folder)},
            "dialogue": {"max_questions": 1},
        }
    )
    loaded: list[str] = []
    load = session.load_engine

    def counted(engine: Any, serving: Any) -> Any:
        loaded.append(engine.model)
        return load(engine, serving)

    monkeypatch.setattr(session, "load_engine", counted)
    context = DialogueContext(
        book, settings, tmp_path, customer="model", seeds=1, episodes=1,
        models=("model-base",), model_seeds=1, model_episodes=1,
    )  # fmt: skip
    found = context.play(Configuration("model-base", model=True))
    row = found.episodes.row(0, named=True)
    assert (row["agent"], row["customer"]) == ("model-base", "model")
    assert row["language_model"] is not None
    assert row["tokens"] > 0
    assert loaded == [str(folder)]
