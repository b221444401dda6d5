"""The command, its report, and a real (tiny) model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer
from support.ablation_release import RULE, Opened, settings_of
from typer.testing import CliRunner

from pipelines.ablations import CaseRule
from pipelines.config import EngineSettings
from pipelines.errors import ConfigError, ReleaseError, StoreError
from pipelines.llm.answers import AnswerStore
from sim.ablations import Options, RaterSpec, run_suite, write_report
from sim.ablations.cli import ablate

app = typer.Typer()
app.command()(ablate)


@pytest.fixture
def small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes as few cases as the other tests of the suite."""
    fields = RULE.metadata()
    monkeypatch.setattr("pipelines.stages.s80_reports.CaseRule", lambda: CaseRule(**fields))


def called(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


@pytest.mark.pipeline
def test_the_command_prints_a_row_per_configuration_and_writes_the_report(
    home: Path, tmp_path: Path, small_cases: None
) -> None:
    where = shutil.copytree(home, tmp_path / "home")
    out = tmp_path / "report"
    first = called("--suite", "movies", "--home", str(where), "--out", str(out), "--seeds", "2")
    assert first.exit_code == 0, first.output
    assert "use no language model" in first.output
    assert {p.name for p in out.iterdir()} == {
        "movies.md", "movies.csv", "movies.html", "movies-paired.csv",
        "movies-scores.png", "movies-ratings.png",
    }  # fmt: skip
    again = called("--suite", "movies", "--home", str(where), "--seeds", "2", "--json")
    found = json.loads(again.stdout)
    assert found["reused"] == found["cells"] == 2 * (9 + 3 + 3)
    assert Path(found["files"]["html"]).parent == where / "ablations" / "reports"
    rows = {(r["rater"], r["test"]) for r in found["rows"]}
    assert len(rows) == 3 * 5


@pytest.mark.pipeline
def test_the_page_needs_no_other_file_and_says_who_needs_no_model(
    opened: Opened, tmp_path: Path
) -> None:
    result = run_suite(opened(), [], seeds=(0,))
    files = write_report(result, tmp_path)
    page = files["html"].read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "src='http" not in page
    assert "use no language model" in page
    wide = pl.read_csv(files["csv"])
    assert wide.filter(pl.col("source") == "measured").height == len(result.configurations)
    text = files["markdown"].read_text()
    assert "2 of 22 series (2 by collection)" in text
    assert "statistical: 15 asked, 9 different" in text
    assert "| statistical | 1-10 |  |  | embedding | none | open-text | statistical |" in text


@pytest.mark.pipeline
def test_an_aggregate_of_some_tests_only_says_so(tmp_path: Path) -> None:
    from support import small_release

    from pipelines.store import Store
    from sim.ablations import SuiteContext, suite_study

    # Without the two collections there is no series.
    items = small_release.frames()["movies.items"].with_columns(title=pl.lit("Alone"))
    small_release.build(tmp_path, replace={"movies.items": items})
    store = Store(tmp_path)
    shop = SuiteContext.open(
        store, store.release("movies@latest"), "movies", settings_of(tmp_path), rule=RULE
    )
    result = run_suite(shop, [], seeds=(0,))
    base = result.baselines["random"].scores
    assert base["collections"].cases == 0
    rest = [base[t].value for t in ("genres", "raters", "similarity")]
    assert base["aggregate"].value == pytest.approx(np.mean(rest))
    text = suite_study(result).markdown(release="movies@1")
    assert "no cases for collections: the aggregate is of the other tests only" in text
    assert "| aggregate of 3 of 4 tests |" in text
    assert "0 of 22 series." in text
    assert write_report(result, tmp_path / "report")["html"].exists()


@pytest.mark.pipeline
def test_names_in_the_report_are_escaped(opened: Opened, tmp_path: Path) -> None:
    from dataclasses import replace

    result = run_suite(opened(), [], seeds=(0,))
    evil = "llm:<script>|alert"
    renamed = [
        replace(c, rater=evil if c.rater == "mean" else c.rater) for c in result.configurations
    ]
    asked = {evil if k == "mean" else k: v for k, v in result.asked.items()}
    page = write_report(
        replace(result, configurations=renamed, asked=asked), tmp_path
    )["html"].read_text()  # fmt: skip
    assert "<script>" not in page
    assert "llm:&lt;script&gt;|alert" in page


@pytest.mark.pipeline
def test_a_folder_that_cant_be_written_is_named(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        write_report(run_suite(opened(), [], seeds=(0,)), tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("--rater", "statisticl"), ConfigError, "did you mean statistical"),
        (("--model", "m"), ConfigError, "--model needs --rater llm"),
        (("--release", "movies@0000"), ReleaseError, "movies@0000"),
        (("--seeds", "9"), ConfigError, "0 to 2"),
    ],
)
def test_errors_name_what_and_where(
    home: Path, small_cases: None, arguments: tuple[str, ...], error: type, says: str
) -> None:
    found = called("--suite", "movies", "--home", str(home), *arguments)
    assert isinstance(found.exception, error)
    assert says in str(found.exception)


def test_an_unknown_suite_is_a_usage_error(home: Path) -> None:
    assert called("--suite", "games", "--home", str(home)).exit_code == 2


@pytest.mark.pipeline
def test_a_model_of_a_real_engine_is_judged_like_the_others(
    opened: Opened, home: Path, tmp_path: Path, tiny_model: Path
) -> None:
    where = shutil.copytree(home, tmp_path / "h")
    spec = RaterSpec("llm", EngineSettings(kind="transformers", model=str(tiny_model)))
    options = Options("one-ten", "0", "custom")

    def cell() -> tuple[pl.DataFrame, bool, int]:
        shop = opened(where, answer_store=AnswerStore(where), settings=settings_of(where))
        frame, known = shop.cell(spec, options, 0)
        rater = None if known else shop._rater(spec, options)
        calls = 0 if rater is None else rater.tally.calls
        shop.raters.close()
        return frame, known, calls

    frame, known, calls = cell()
    assert not known
    assert calls > 0
    rated = frame.filter(pl.col("status") == "ok")
    assert rated.height == frame.height, "a closed choice can always be read"
    assert rated["chance"].drop_nulls().is_between(0, 1).all()
    similar = frame.filter(pl.col("test") == "similarity")["shares"].to_list()
    np.testing.assert_allclose(np.sum(similar, axis=1), 1.0)
    again, known, _ = cell()
    assert known
    assert again.equals(frame)
