"""The page of a release: what it says, and that it needs nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import small_release
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.quality import release_report, report_page
from pipelines.store import Release


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    small_release.build(folder)
    return folder


@pytest.fixture(scope="module")
def release(home: Path) -> Release:
    return small_release.Store(home).release("movies")


def test_page_shows_a_persona_and_why_she_rates(release: Release) -> None:
    shown = release_report(release, persona="persona:default:2")["persona"]
    assert shown["name"] == "Cleo"
    # This persona gives 3 whatever the film; of 24 films, five in equal steps by rating.
    assert [r["expected"] for r in shown["ratings"]] == [3.0] * 5
    assert all(r["bars"] == [0.0, 0.0, 32.0, 0.0, 0.0] for r in shown["ratings"])
    films = {r["item_id"]: r["why"] for r in shown["ratings"]}
    assert films["ml:1"] == "dislikes Action, Thriller"
    assert "likes Drama, Romance" in films.values()


def test_page_of_a_release_without_reports_has_what_is_there(release: Release) -> None:
    page = report_page(release_report(release))
    for text in (
        "A persona and her ratings",
        "Personas beside people",
        "11 passed, 0 warned, 0 failed",
    ):
        assert text in page
    assert "Population report" not in page
    assert "No language model was used" in page


def test_terms_name_the_sources_of_the_personas(release: Release) -> None:
    named = {source for source, _, _ in release_report(release)["terms"]}
    assert {"us_census", "genre_preferences"} <= named


def test_page_loads_nothing(release: Release) -> None:
    page = report_page(release_report(release))
    loaded = re.findall(r"""(?:src|href)=["']([^"'#][^"']*)""", page)
    assert loaded
    assert all(address.startswith("data:image/png;base64,") for address in loaded)
    assert "@import" not in page
    assert "url(" not in page


def test_command_writes_the_page(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", "movies", "--html", "--home", str(home), "--json"])
    assert done.exit_code == 0, done.output
    written = json.loads(done.stdout)
    assert Path(written["page"]).read_text().startswith("<!doctype html>")
    assert written["persona"]["persona_id"] == "persona:default:0"
    assert written["checks"] == {"passed": 11, "warned": 0, "failed": 0, "not_applicable": 0}
    shown = CliRunner().invoke(app, ["report", "movies", "--home", str(home)])
    assert "Ada, 20, female, student, chess" in shown.stdout
    assert "--html" in shown.stdout
