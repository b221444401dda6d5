"""Blind questionnaires and what is made of the returned sheets."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.errors import ConfigError, ContractError, SourceError
from pipelines.judge import CONTROL, Case, Reply, draw_cases, export_questionnaire, score_sheets

PEOPLE = pl.DataFrame(
    {
        "persona_id": [f"persona:c:{n}" for n in range(4)],
        "description": ["Ann likes <b>dramas</b>."] + [f"Person {n}." for n in range(1, 4)],
    }
)
ITEMS = pl.DataFrame(
    {
        "item_id": [f"ml:{n}" for n in range(3)],
        "title": ["Heat", "<script>alert(1)</script>", "Up"],
        "year": [1995, None, 2009],
        "genres": [["Crime"], [], ["Animation"]],
        "overview": ["A thief and a policeman.", None, "word " * 400],
    }
)


def _scores(
    mode: int, *, failed: int = 0, scale: str = "1-10", why: str | None = None
) -> pl.DataFrame:
    frame = PEOPLE.select("persona_id").join(ITEMS.select("item_id"), how="cross")
    return frame.with_row_index().select(
        "persona_id",
        "item_id",
        scale=pl.lit(scale),
        mode=pl.lit(mode, pl.Int64),
        status=pl.when(pl.col("index") < failed).then(pl.lit("invalid")).otherwise(pl.lit("ok")),
        explanation=pl.lit(why, pl.String),
    )


def _cases() -> list[Case]:
    return [
        Case(f"case {n}", f"Who {n}", f"What {n}", (Reply("a", 9, "1-10"), Reply("b", 2, "1-10")))
        for n in range(3)
    ]


def _grade(sheet: Path, key: Path, grades: dict[str, str]) -> None:
    import orjson

    entries = orjson.loads(key.read_bytes())["entries"]
    with sheet.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with sheet.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, ["sheet", "entry", "grade"])
        out.writeheader()
        for row in rows:
            out.writerow({**row, "grade": grades[entries[row["entry"]]["rater"]]})


def test_every_rater_and_a_random_control_answer_every_case() -> None:
    cases = draw_cases({"good": _scores(9), "bad": _scores(1)}, PEOPLE, ITEMS, count=5)
    assert len({c.key for c in cases}) == 5
    for case in cases:
        assert [r.rater for r in case.replies] == ["bad", "good", CONTROL]
        assert 1 <= case.replies[-1].rating <= 10


def test_failed_answers_are_not_asked_about() -> None:
    scores = {"x": _scores(5, failed=10), "y": _scores(6)}
    assert len(draw_cases(scores, PEOPLE, ITEMS, count=2)) == 2
    with pytest.raises(ConfigError, match="2 pairs were scored by every rater, 3 are requested"):
        draw_cases(scores, PEOPLE, ITEMS, count=3)


def test_raters_on_two_scales_are_not_compared() -> None:
    with pytest.raises(ContractError, match="one scale"):
        draw_cases({"x": _scores(5), "y": _scores(5, scale="1-5")}, PEOPLE, ITEMS)


def test_an_explanation_that_not_all_have_is_shown_of_none() -> None:
    cases = draw_cases({"x": _scores(5, why="Because."), "y": _scores(6)}, PEOPLE, ITEMS, count=2)
    assert not any(r.explanation for c in cases for r in c.replies)


def test_a_page_tells_no_rater_and_loads_nothing(tmp_path: Path) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q", judges=2)
    assert made.entries == 6
    for path in (*made.pages, *made.sheets):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://|<link|src=|@import", text)
        assert '"a"' not in text
        assert "rater" not in text.lower()
        assert "case " not in text


def test_text_of_personas_and_items_is_no_markup_of_the_page(tmp_path: Path) -> None:
    cases = draw_cases({"x": _scores(5)}, PEOPLE, ITEMS, count=12)
    page = export_questionnaire(cases, tmp_path / "q").pages[0].read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<b>dramas" not in page
    assert "&lt;script&gt;" in page


def test_judges_get_the_same_replies_in_orders_and_under_names_of_their_own(tmp_path: Path) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q", judges=2)
    first, second = (
        [row["entry"] for row in csv.DictReader(path.read_text("utf-8").splitlines())]
        for path in made.sheets
    )
    assert len(first) == len(second) == 6
    assert not set(first) & set(second)


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="has files in it"):
        export_questionnaire(_cases(), tmp_path)


def test_means_and_agreement_are_those_worked_by_hand(tmp_path: Path) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q", judges=2)
    _grade(made.sheets[0], made.key, {"a": "5", "b": "1"})
    _grade(made.sheets[1], made.key, {"a": "4", "b": "2"})
    found = score_sheets(made.key, made.sheets)
    assert [(r["rater"], r["mean"], r["grades"]) for r in found.raters] == [
        ("a", 4.5, 6),
        ("b", 1.5, 6),
    ]
    assert found.raters[0]["low"] >= 4.0 > 2.0 >= found.raters[1]["high"]
    # Observed disagreement: every reply has grades 1 apart, so 1. Expected: of 12 grades (three
    # each of 1, 2, 4, 5) the mean squared difference of two different ones is
    # 2 * 9 * (1 + 9 + 16 + 4 + 9 + 1) / (12 * 11) = 720 / 132. alpha = 1 - 132 / 720.
    assert found.alpha == pytest.approx(1 - 132 / 720)
    assert (found.judges, found.cases, found.ungraded) == (2, 3, 0)


def test_missing_grades_are_counted_and_left_out(tmp_path: Path) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q")
    _grade(made.sheets[0], made.key, {"a": "3", "b": ""})
    found = score_sheets(made.key, made.sheets)
    assert [r["rater"] for r in found.raters] == ["a"]
    assert (found.ungraded, found.alpha) == (3, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sheet,entry,grade\n1,zzz,3\n", "no such entry"),
        ("entry;grade\n", "columns are not those"),
        ("\xff\xfe", "columns are not those"),
    ],
)
def test_a_foreign_sheet_is_named(tmp_path: Path, text: str, problem: str) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q")
    strange = tmp_path / "strange.csv"
    strange.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=problem):
        score_sheets(made.key, [strange])


def test_a_grade_out_of_range_names_its_line(tmp_path: Path) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q")
    _grade(made.sheets[0], made.key, {"a": "6", "b": "1"})
    with pytest.raises(SourceError, match=r"not 1 to 5.*sheet-01.csv:\d+: 6"):
        score_sheets(made.key, made.sheets)


def test_one_sheet_sent_twice_is_refused(tmp_path: Path) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q")
    _grade(made.sheets[0], made.key, {"a": "3", "b": "4"})
    with pytest.raises(SourceError, match="graded twice"):
        score_sheets(made.key, [made.sheets[0], made.sheets[0]])


def test_the_command_scores_what_it_exported(tmp_path: Path) -> None:
    made = export_questionnaire(_cases(), tmp_path / "q")
    _grade(made.sheets[0], made.key, {"a": "5", "b": "2"})
    result = CliRunner().invoke(app, ["judge", "score", str(made.folder), str(made.sheets[0])])
    assert result.exit_code == 0, result.output
    assert "5.00" in result.output
    assert "not measurable" in result.output
