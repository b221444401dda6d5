"""`understudy match`: tables, figures, Personality-2018, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.small_release import commit_users
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.store import Store

SMALL = [
    word
    for setting in ("users=6", "items=6", "subset_size=4", "others=5")
    for word in ("--set", f"matching.{setting}")
]
PERSONALITY = (
    "userid, openness, agreeableness, emotional_stability, conscientiousness, extraversion\n"
    "8e7c, 5.0, 2.0, 3.0, 2.5, 6.5\n"
    "77c7, 7.0, 4.0, 6.0, 5.5, 4.0\n"
    "77c7, 1.0, 1.0, 1.0, 1.0, 1.0\n"
    "b7e8, 4.0, 3.0, 4.5, 2.0, 2.5\n"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store = Store(tmp_path / "home")
    commit_users(store)
    return tmp_path / "home"


def run(home: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["match", "--home", str(home), *SMALL, *words])


def document(result: Any) -> dict[str, Any]:
    """The first JSON document of the output; an error's own may follow."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(result.stdout)[0]
    return found


def test_the_command_writes_tables_and_a_rerun_reuses_them(home: Path) -> None:
    first, second = (document(run(home, "--json")) for _ in range(2))
    assert (first["users"], first["method"], first["cohort"]) == (6, "statistical", "matched")
    assert [second["reused"], second["versions"]] == [True, first["versions"]]
    rows = Store(home).current("movies.matched_personas").read()
    people = Store(home).current("movies.personas").read()
    assert rows.height == 6
    assert people["persona_id"].to_list() == rows["persona_id"].to_list()
    assert {row["predictor"] for row in first["figures"]} == {
        "statistical", "most probable", "majority", "prior"
    }  # fmt: skip


def test_people_too_alike_for_a_release_are_an_error_that_names_the_check(home: Path) -> None:
    result = run(home)
    assert result.exit_code == 4
    shown = " ".join(result.output.split())
    assert "blocking checks failed: " in shown
    assert "descriptions_distinct" in shown
    assert "no release will include them" in shown


def test_personality_is_judged_beside_the_constant_median(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "personality-data.csv"
    path.write_text(PERSONALITY)
    found = document(run(home, "--personality", str(path), "--json"))
    assert (found["people"], found["repeated"]) == (3, 1)
    statistical, median = found["rows"]
    assert (statistical["predictor"], statistical["errors"]) == ("statistical", None)
    # Openness 4/6, 1 and 1/2: distances from 4/6 are 0, 1/3 and 1/6.
    assert median["errors"]["openness"]["value"] == pytest.approx((1 / 3 + 1 / 6) / 3)
    assert Store(home).versions("movies.matched_personas") == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--set", "matching.candidates=0"), 2, "matching.candidates"),
        (("--method", "statistcal"), 2, "unknown matcher: 'statistcal'"),
        (("--personality", "none.csv"), 3, "none.csv"),
        (("--domain", "books"), 5, "books.interactions"),
    ],
)
def test_wrong_words_are_errors_of_one_line(
    home: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    result = run(home, *words)
    assert message in " ".join(result.output.split())
    assert result.exit_code == code
    assert "Traceback" not in result.output
