"""`status` and `release list|show|verify|diff` on a real store."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support import small_release
from typer.testing import CliRunner, Result

from pipelines.cli.main import app
from pipelines.store import CheckRecord, Store


def call(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--home", str(home)])


def payload(home: Path, *words: str, code: int = 0) -> Any:
    result = call(home, *words, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def second_release(home: Path) -> None:
    """Publish `movies` again: one title changed, one film gone, one table left out."""
    items = small_release.frames()["movies.items"].with_columns(
        title=pl.when(pl.col("item_id") == "ml:5")
        .then(pl.lit("Renamed"))
        .otherwise(pl.col("title"))
    )
    small_release.build(
        home,
        without=("score_plan",),
        replace={"movies.items": items.filter(pl.col("item_id") != "ml:2")},
    )


def test_status_of_a_home_that_does_not_exist_says_so_and_makes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "none"
    assert payload(home, "status") == {
        "home": str(home),
        "exists": False,
        "snapshots": [],
        "releases": [],
        "unfinished": [],
        "disk": {"total": 0, "folders": {}},
    }
    assert "understudy run" in call(home, "status").stdout
    assert not home.exists()


def test_status_lists_current_tables_and_the_latest_release(own_home: Path) -> None:
    first = Store(own_home).release("movies")
    second_release(own_home)
    found = payload(own_home, "status")
    (release,) = found["releases"]
    assert release["name"] == "movies"
    assert release["version"] not in {first.version, None}
    assert (release["world"], release["tables"]) == ("sample", 10)
    tables = {s["dataset"]: s for s in found["snapshots"]}
    assert len(tables) == 11
    assert tables["movies.items"]["rows"] == 23
    assert tables["movies.items"]["version"] != first.tables["items"].version
    assert tables["movies.personas"]["version"] == first.tables["personas"].version
    assert found["disk"]["total"] == sum(found["disk"]["folders"].values())
    assert found["disk"]["folders"]["data"] >= sum(s["bytes"] for s in found["snapshots"])
    text = call(own_home, "status").stdout
    assert release["version"] in text
    # The first line is the home's path, which is never folded.
    assert max(map(len, text.splitlines()[1:])) <= 80


@pytest.mark.pipeline
def test_status_tells_a_write_in_progress_from_one_that_was_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = (
        "import time\n"
        "import polars as pl\n"
        "from pipelines.store import Store\n"
        "row = pl.DataFrame({'tmdb_id': [1], 'reason': ['not_found']})\n"
        f"with Store({str(home)!r}).write('raw.tmdb_missing', code_version='1') as writer:\n"
        "    writer.append(row)\n"
        "    print('writing', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    try:
        before = payload(home, "status")["unfinished"]
        assert [u["in_progress"] for u in before] == [True]
        assert "in progress" in call(home, "status").stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    after = payload(home, "status")["unfinished"]
    assert [(u["path"], u["in_progress"]) for u in after] == [(before[0]["path"], False)]
    assert "left by a killed process" in call(home, "status").stdout


def test_status_shows_what_is_damaged_beside_what_is_not(own_home: Path) -> None:
    release = Store(own_home).release("movies")
    (file,) = release.snapshot("items").files()
    file.unlink()
    release.path.chmod(0o644)
    release.path.write_text("{}")
    found = payload(own_home, "status")
    damaged = {s["dataset"]: s for s in found["snapshots"] if s["problem"]}
    assert list(damaged) == ["movies.items"]
    assert str(file) in damaged["movies.items"]["problem"]
    assert damaged["movies.items"]["rows"] is None
    assert len(found["snapshots"]) == 11
    assert str(release.path) in found["releases"][0]["problem"]
    text = call(own_home, "status").stdout
    assert text.count("damaged") >= 2
    assert f"{file} " in text.replace("\n", " ")
    assert payload(own_home, "release", "list") == {"releases": []}


def test_release_list_is_newest_first_and_marks_the_latest(own_home: Path) -> None:
    first = Store(own_home).release("movies").version
    time.sleep(0.001)
    second_release(own_home)
    rows = payload(own_home, "release", "list")["releases"]
    assert [r["version"] == first for r in rows] == [False, True]
    assert [r["latest"] for r in rows] == [True, False]
    assert rows[1]["rows"] == sum(small_release.frames()[d].height for d in small_release.frames())
    text = call(own_home, "release", "list").stdout
    assert "(latest)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_release_list_of_an_empty_home_is_empty_not_an_error(tmp_path: Path) -> None:
    assert payload(tmp_path, "release", "list") == {"releases": []}
    assert "No release yet" in call(tmp_path, "release", "list").stdout


def test_release_show_prints_an_excerpt_of_the_card_and_all_of_it_when_asked(
    tmp_path: Path,
) -> None:
    card = "# Title\n\nWhat it is, with [brackets].\n\n## Tables\n\nmany lines\n"
    small_release.build(tmp_path, card=card)
    short = call(tmp_path, "release", "show").stdout
    assert "What it is, with [brackets]." in short
    assert "many lines" not in short
    assert "--card" in short
    assert "many lines" in call(tmp_path, "release", "show", "--card").stdout


def test_release_show_lists_failed_checks_with_their_severity(own_home: Path) -> None:
    store = Store(own_home)
    items = store.current("movies.items")
    store.record_checks(
        "movies.items",
        items.version,
        [
            CheckRecord("posters", False, "warn", "expectations", {"share": 0.1}),
            CheckRecord("tiers", None, "error", "expectations", {"skipped": "3 rows"}),
        ],
    )
    small_release.build(own_home)
    found = payload(own_home, "release", "show")
    assert (found["checks"]["warned"], found["checks"]["failed"]) == (1, 0)
    assert found["checks"]["unjudged"] == [
        {"dataset": "movies.items", "name": "tiers", "reason": "3 rows"}
    ]
    assert found["checks"]["failures"] == [
        {
            "dataset": "movies.items",
            "name": "posters",
            "severity": "warn",
            "details": {"share": 0.1},
        }
    ]
    shown = call(own_home, "release", "show").stdout
    assert "warn: movies.items posters" in shown
    assert "1 not applicable" in shown


def test_an_unknown_release_is_exit_6_and_names_the_nearest(home: Path) -> None:
    result = call(home, "release", "show", "moveis@latest")
    assert result.exit_code == 6
    assert result.stderr.startswith("error: ")
    assert "did you mean movies@latest?" in result.stderr
    assert payload(home, "release", "show", "moveis", code=6)["error"]["type"] == "ReleaseError"


def test_release_verify_passes_on_what_was_published(home: Path) -> None:
    found = payload(home, "release", "verify")
    assert found["ok"] is True
    assert found["files"] == 11
    assert "is as published" in call(home, "release", "verify").stdout


def test_release_verify_of_changed_bytes_is_exit_5_and_names_the_file(own_home: Path) -> None:
    release = Store(own_home).release("movies")
    (file,) = release.snapshot("items").files()
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    result = call(own_home, "release", "verify")
    assert result.exit_code == 5
    assert str(file) in result.stderr
    assert result.stderr.count("\n") == 1
    error = payload(own_home, "release", "verify", code=5)["error"]
    assert error["type"] == "IntegrityError"
    assert len(error["details"]["problems"]) == 1


def test_release_diff_counts_rows_by_key_and_shows_examples(own_home: Path) -> None:
    first = str(Store(own_home).release("movies"))
    second_release(own_home)
    found = payload(own_home, "release", "diff", first, "latest")
    tables = {t["table"]: t for t in found["tables"]}
    assert found["same"] is False
    assert tables["personas"]["status"] == "same"
    assert tables["score_plan"]["status"] == "removed"
    items = tables["items"]
    assert (items["rows_before"], items["rows_after"]) == (24, 23)
    assert (items["rows_added"], items["rows_removed"], items["rows_changed"]) == (0, 1, 1)
    assert items["samples"]["changed"] == [{"item_id": "ml:5"}]
    text = call(own_home, "release", "diff", first, "latest").stdout
    assert "items: changed, such as ml:5" in text
    assert max(map(len, text.splitlines())) <= 80


def test_release_diff_says_why_and_draws_shifts(own_home: Path, tmp_path: Path) -> None:
    first = str(Store(own_home).release("movies"))
    older = small_release.frames()["movies.personas"].with_columns(age=pl.col("age") + 15)
    small_release.build(own_home, replace={"movies.personas": older})
    page = tmp_path / "diff.html"
    words = ("release", "diff", first, "latest", "--page", str(page))
    found = payload(own_home, *words)
    personas = next(t for t in found["tables"] if t["table"] == "personas")
    age = next(s for s in personas["shifts"] if s["column"] == "age")
    assert age["wasserstein"] == pytest.approx(15)
    assert age["mean_after"] - age["mean_before"] == pytest.approx(15)
    text = call(own_home, *words).stdout
    assert "personas: age shifted, PSI" in text
    assert "personas: because movies.personas" in " ".join(text.split())
    assert page.read_text().count("data:image/png;base64,") >= 1
