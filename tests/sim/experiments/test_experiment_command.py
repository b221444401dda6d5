"""The command and its reports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.errors import ConfigError
from pipelines.study import Row, Study, TooFew, write_report
from sim import Release
from sim.experiments import (
    CODE_VERSION,
    EXPERIMENTS,
    ExperimentContext,
    chosen_names,
    open_experiment,
    paper_rows,
    run_experiments,
)
from sim.experiments.cli import experiment as app
from sim.experiments.testing import fresh
from sim.metrics import Figure

OWN = """
from sim.experiments import experiment

@experiment(
    question="Is there an answer?", conditions=("brain",), figures={"one": "always 1"}
)
def mine(study, context):
    study.add(["none"], "baseline", figures={"one": 1.0})
"""


def called(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


@pytest.fixture
def store(matched: Release, tmp_path: Path) -> Path:
    return shutil.copytree(matched.path.parents[1], tmp_path / "home")


def test_list_has_every_experiment_with_its_question() -> None:
    found = json.loads(called("list", "--json").stdout)
    assert [one["name"] for one in found] == EXPERIMENTS.names()
    assert all(one["question"] and one["figures"] for one in found)
    assert set(EXPERIMENTS.names()) <= set(EXPERIMENTS)


@pytest.mark.pipeline
def test_second_run_reads_what_the_first_computed(store: Path, tmp_path: Path) -> None:
    arguments = (
        "run",
        "distribution",
        "cost",
        "--home",
        str(store),
        "--agents",
        "30",
        "-r",
        "popular",
    )
    first = called(*arguments, "--out", str(tmp_path / "one"))
    assert first.exit_code == 0, first.output
    assert "statistical, popular (statistical)" in first.output
    second = called(*arguments, "--out", str(tmp_path / "two"), "--json")
    found = json.loads(second.stdout)
    assert found["made"] == 0
    assert found["reused"] > 0
    assert [e["name"] for e in found["experiments"]] == ["distribution", "cost"]
    names = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert names == [
        "cost-paired.csv", "cost-seconds.png", "cost.csv", "cost.md", "distribution-paired.csv",
        "distribution-ratings.png", "distribution.csv", "distribution.md", "experiments.html",
        "experiments.json",
    ]  # fmt: skip
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_page_holds_every_experiment_and_its_pictures(store: Path, tmp_path: Path) -> None:
    called("run", "distribution", "cost", "--home", str(store), "--agents", "30", "-r", "popular",
           "--out", str(tmp_path / "out"))  # fmt: skip
    text = (tmp_path / "out" / "experiments.html").read_text()
    assert text.count("<body>") == text.count("</html>") == 1
    assert text.count("<h1>") == 2
    assert text.count("data:image/png;base64,") == 2
    assert "href='#cost'" in text
    assert "id='cost'" in text
    assert "http" not in text.replace("http-equiv", "")


def test_too_little_ends_a_single_experiment_and_not_all(context: ExperimentContext) -> None:
    few = fresh(context, agents=3)
    with pytest.raises(TooFew, match="at least 10 are needed"):
        run_experiments(few, ["cost"])
    found = run_experiments(few, ["cost", "distribution"])
    assert {type(study.too_few) for study in found.values()} == {TooFew}
    text = found["cost"].markdown(release="movies@1")
    assert "No figures: 3 agents, at least 10 are needed" in text
    assert "|" not in text


def test_names_are_checked_before_anything_runs(context: ExperimentContext) -> None:
    assert chosen_names(["cost", "all"])[0] == "cost"
    assert sorted(chosen_names(["cost", "all"])) == sorted(EXPERIMENTS.names())
    with pytest.raises(ConfigError, match="no experiment is named"):
        chosen_names([])
    with pytest.raises(ConfigError, match="did you mean believability"):
        run_experiments(context, ["cost", "beleivability"])
    with pytest.raises(ConfigError, match="not an experiment"):
        open_experiment("sim.metrics:Figure")
    with pytest.raises(ConfigError, match="no option min_peple"):
        open_experiment("rating", min_peple=3)


def test_own_experiment_runs_from_a_file(store: Path, tmp_path: Path) -> None:
    (tmp_path / "own_mine.py").write_text(OWN)
    name = f"{tmp_path / 'own_mine.py'}:mine"
    out = called("run", name, "--home", str(store), "--out", str(tmp_path / "out"), "--json")
    assert out.exit_code == 0, out.output
    (one,) = json.loads(out.stdout)["experiments"]
    assert one["rows"][0]["figures"] == {"one": 1.0}
    assert (tmp_path / "out" / "mine.csv").exists()


def test_report_escapes_what_others_wrote(tmp_path: Path) -> None:
    row = Row({"brain": "<script>|"}, "model", {"likeness": Figure(0.5, 0.25, 0.75)}, 3)
    study = Study("distribution", "?", figures={"likeness": "0-1"}, rows=[row])
    write_report({"distribution": study}, tmp_path, release="movies@1")
    page = (tmp_path / "experiments.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;|" in page
    assert "0.500 <span>[0.250, 0.750]</span>" in page


def test_papers_rows_name_their_place_and_known_figures() -> None:
    for name in EXPERIMENTS.names():
        known = open_experiment(name).figures
        for row in paper_rows(name):
            assert row.source == "paper"
            assert row.labels["paper"]
            assert set(row.figures) <= set(known), name


def test_the_stage_has_the_version_of_the_code() -> None:
    # The package is too heavy to be imported where jobs are defined.
    from sim.stages import EXPERIMENTS_VERSION

    assert EXPERIMENTS_VERSION == CODE_VERSION
