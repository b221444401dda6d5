"""Rows, comparisons and answers of studies, worked by hand."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.study import Claim, Figure, Plot, Row, Study, TooFew, write_report

CLAIM = Claim(
    "Readers of long lists read more.", "books", {"group": "long"}, {"group": "short"},
    above="more", below="less", equal="not told",
)  # fmt: skip


def study(**changes: Any) -> Study:
    return Study(
        "reading", "Do readers read more?", "A, Table 1", {"books": "books (count)"}, ("group",),
        unit="person", **changes,
    )  # fmt: skip


def readers(*books: float) -> pl.DataFrame:
    return pl.DataFrame({"person": [f"p{n}" for n in range(len(books))], "books": books})


def test_rows_of_a_unit_count_once() -> None:
    twice = pl.DataFrame({"person": ["a", "a", "a", "b"], "books": [1.0, 1.0, 1.0, 3.0]})
    row = study().add(["short"], "baseline", twice)
    assert row.figures["books"] == Figure(2.0, 1.0, 3.0)
    assert row.n == 2


def test_too_few_units_leave_a_models_row_without_figures() -> None:
    made, least = study(), ("readers", 3, "ask more")
    row = made.add(["model"], "model", readers(1.0, 2.0), least=least)
    assert row.figures == {"books": None}
    assert row.note == "2 readers, at least 3 are needed"
    with pytest.raises(TooFew, match=r"2 readers, at least 3 are needed: rule \(ask more\)"):
        made.add(["rule"], "baseline", readers(1.0, 2.0), least=least)


def test_rows_are_compared_with_their_control_alone() -> None:
    made = Study("s", "?", figures={"books": ""}, conditions=("group", "list"), unit="person")
    for group in ("rule", "agent"):
        for name, shift in (("short", 0.0), ("long", 1.0)):
            made.add((group, name), "baseline", readers(1.0 + shift, 2.0 + shift))
    made.add(("paper", "long"), "paper", figures={"books": 3.0})
    made.against("books", list="short")
    assert [(c.left, c.right) for c in made.comparisons] == [
        ("rule, long", "rule, short"), ("agent, long", "agent, short")
    ]  # fmt: skip
    assert made.comparisons[0].difference == Figure(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("long", "verdict"),
    [((5.0, 6.0, 7.0), "more"), ((0.0, 0.0, 0.0), "less"), ((1.0, 2.0, 3.0), "not told")],
)
def test_the_paired_difference_gives_the_verdict(long: tuple[float, ...], verdict: str) -> None:
    made = study(claim=CLAIM)
    made.add(["short"], "baseline", readers(1.0, 2.0, 3.0))
    made.add(["long"], "statistical", readers(*long))
    made.against("books", group="short")
    answer = made.answer()
    assert answer is not None
    assert answer.verdict == verdict
    assert "control short: 2.000 [" in answer.measured
    assert "; difference " in answer.measured


def test_unpaired_rows_are_told_by_intervals_that_are_apart() -> None:
    made = study(claim=CLAIM)
    made.add(["short"], "baseline", figures={"books": Figure(1.0, 0.5, 1.5)})
    made.add(["long"], "statistical", figures={"books": Figure(2.0, 1.4, 2.6)})
    made.add(["long"], "model", figures={"books": Figure(9.0, 8.0, 9.5)})
    # The row with a language model is the one that answers.
    answer = made.answer()
    assert answer is not None
    assert (answer.verdict, answer.measured.partition(" [")[0]) == (
        "more",
        "`books` of long is 9.000",
    )
    made.rows.pop()
    answer = made.answer()
    assert answer is not None
    assert answer.verdict == "not told"


def test_a_claim_without_its_row_is_not_judged() -> None:
    made = study(claim=CLAIM)
    made.add(["short"], "baseline", readers(1.0))
    answer = made.answer()
    assert answer is not None
    assert answer.verdict == "None: nothing was measured."


def test_the_page_leads_with_question_claim_and_verdict() -> None:
    made = study(claim=CLAIM)
    made.add(["short"], "baseline", readers(1.0, 2.0))
    made.add(["long"], "statistical", readers(3.0, 4.0))
    lines = [line for line in made.markdown(release="movies@1").splitlines() if line]
    starts = ("# reading", "**Do readers", "Claim of the paper (A, Table 1)", "Measured:",
              "**Verdict**: more", "Release movies@1", "| group |")  # fmt: skip
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=False))


ROWS = [
    Row({"group": "people", "list": "x"}, "people", {"books": 1.0}, measure="lower bound"),
    Row({"group": "agents", "list": "x"}, "statistical", {"books": 5.0}),
]


def test_what_is_not_comparable_shares_neither_panel_nor_table() -> None:
    panels = Plot("Books", "count", ("books",), ("list",), ("group",)).grouped(ROWS)
    assert {name: list(series) for name, series in panels.items()} == {
        "": ["agents"], "lower bound": ["people"]
    }  # fmt: skip
    text = study(rows=ROWS).markdown(release="movies@1")
    first, second = text.split("Not comparable with the other rows: lower bound.")
    assert "| agents |" in first
    assert "| people |" not in first
    assert "| people |" in second


def test_files_of_a_study(tmp_path: Path) -> None:
    made = study(rows=ROWS)
    for name, lines in (("bars", False), ("lines", True)):
        made.draw({name: Plot("Books", "count", ("books",), ("list",), ("group",), lines=lines)})
    made.add(["nan"], "baseline", figures={"books": Figure(1.0, float("nan"), float("nan"))})
    files = write_report({"reading": made}, tmp_path, release="movies@1", stem="all")
    assert sorted(p.name for p in files.values()) == [
        "all.html", "reading-bars.png", "reading-lines.png", "reading-paired.csv", "reading.csv",
        "reading.md",
    ]  # fmt: skip
    assert all(png.startswith(b"\x89PNG") for png in made.pictures.values())
    rows = pl.read_csv(tmp_path / "reading.csv")
    assert rows["value"].to_list() == [1.0, 5.0, 1.0]
    assert rows["low"].null_count() == 3


def test_too_few_keeps_its_parts_when_copied_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(TooFew("people", found=1, needed=2, where="here")))
    assert str(again) == "1 people, at least 2 are needed: here"
    assert (again.found, again.needed) == (1, 2)
