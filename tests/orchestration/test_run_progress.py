"""Output of `understudy run` while a step is slow and there is no terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.cli import _render, _Steps
from pipelines.cli._terminal import console


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_running_step_is_shown_with_elapsed_and_remaining_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    steps = _Steps(quiet=False, clock=clock)
    steps.step("start", "movies_preference_scores", 0.0, "")
    clock.now = 2.0
    steps.progress("scoring", 0, 4_000)
    clock.now = 12.0
    steps.progress("scoring", 1_000, 4_000)
    steps.tick()
    line = " ".join(capsys.readouterr().err.split())
    assert line == "… 12.0 s movies_preference_scores scoring 1,000 of 4,000, about 30 s left"


def test_long_line_is_not_wrapped_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    steps = _Steps(quiet=False, clock=Clock())
    steps.step("start", "movies_item_embeddings", 0.0, "")
    steps.progress(f"embed movies.items {'of a long name ' * 5}", 0, 4_000)
    steps.tick()
    steps.step("done", "movies_item_embeddings", 11.0, "3 rows, " * 12)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_stages_side_by_side_keep_their_own_remaining_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    steps = _Steps(quiet=False, clock=clock)
    steps.step("start", "embeddings", 0.0, "")
    for second in range(11):
        clock.now = float(second)
        steps.progress("films", 10 * second, 400)
        steps.progress("games", 10 * second, 200)
    steps.tick()
    line = " ".join(capsys.readouterr().err.split())
    assert line == (
        "… 10.0 s embeddings films 100 of 400, about 30 s left; games 100 of 200, about 10 s left"
    )
    steps.progress("games", 200, 200)
    steps.tick()
    assert "games" not in capsys.readouterr().err
    clock.now = 100.0
    steps.tick()
    assert "films" not in capsys.readouterr().err


def test_what_an_ended_step_reported_last_is_shown_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    steps = _Steps(quiet=False, clock=clock)
    for name in ("ingest_movielens", "embed"):
        steps.step("start", name, 0.0, "")
    # Five rows were left out: the last report is not the end.
    steps.progress("reading ratings.csv", 20_000, 20_005)
    steps.progress("texts", 0, 400)
    clock.now = 2.0
    steps.step("done", "ingest_movielens", 2.0, "")
    steps.tick()
    clock.now = 10.0
    steps.progress("texts", 100, 400)
    steps.tick()
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert lines[1:] == ["… 2.0 s embed", "… 10.0 s embed texts 100 of 400, about 30 s left"]


def test_result_has_names_with_brackets_and_no_markup(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    released = {"release": "movies@1", "domain": "movies", "world": "my[bold]", "tables": {}}
    outcomes = {"passed": 1, "warned": ["items: few[x]"], "failed": [], "not_applicable": 0}
    payload = {
        "releases": [{**released, "summary": {}}],
        "checks": outcomes,
        "left_out": [],
        "unused": ["no TMDB [records]"],
        "rejected": [
            {
                "file": "r.csv",
                "rejected": 1,
                "rows": 4,
                "share": 0.25,
                "first": [{"line": 2, "reason": "off_scale", "text": "[9]"}],
            },
        ],
        "seconds": 1.0,
        "home": str(tmp_path),
        "ui": "http://127.0.0.1:3000",
    }
    _render(console(), payload)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "Published movies@1  (world: my[bold])" in lines
    assert "! items: few[x]" in lines
    assert "! no TMDB [records]" in lines
    assert "! r.csv: 1 of 4 rows rejected (25.00%): line 2 off_scale: [9]" in lines
