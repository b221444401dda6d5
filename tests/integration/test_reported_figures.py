"""Dataset card, terminal and Dagster UI show the figures of the release's tables."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from rich.console import Console

from orchestration.instance import open_instance
from pipelines.quality import render_summary
from pipelines.raters import population_rows
from pipelines.store import Release, Store

pytestmark = pytest.mark.night

#: A name, then a number with three decimals or a `-`, then the rest of the row.
ROW = re.compile(r"^(\S.*?) {2,}(-?\d\.\d{3}.*|-.*)$")


def figures(text: str) -> dict[tuple[str, str], list[float]]:
    """Numbers of each row with three decimals, by the row above the table and the row's name."""
    found: dict[tuple[str, str], list[float]] = {}
    title = ""
    for line in map(str.rstrip, text.splitlines()):
        if title and (row := ROW.match(line)):
            found[title, row[1]] = [float(n) for n in re.findall(r"-?\d+\.\d+", row[2])]
        elif re.search(r"; \d is best\)|95 % intervals\)", line):
            title = line.partition(" (")[0]
    return found


def terminal(summary: dict[str, Any]) -> str:
    """The summary as a terminal of 80 columns shows it."""
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_summary(summary))
    return console.export_text()


def of_movies(payload: dict[str, Any]) -> dict[str, Any]:
    """Figures of the films' release by `understudy run --json`."""
    (released,) = (r for r in payload["releases"] if r["domain"] == "movies")
    return dict(released)


@pytest.fixture(scope="module")
def published(published_home: Path) -> tuple[dict[str, Any], Release]:
    movies = of_movies(json.loads((published_home / "run.json").read_text()))
    return movies, Store(published_home).release(movies["release"])


@pytest.fixture
def shown(
    published_home: Path, published: tuple[dict[str, Any], Release], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Metadata of an asset's materialization in that release, as the UI shows it."""
    monkeypatch.setenv("DAGSTER_HOME", "")  # restored afterwards: `open_instance` sets it
    with open_instance(published_home) as instance:

        def metadata(key: str, name: str, value: str) -> dict[str, Any]:
            asset = dg.AssetKey(key.split("/"))
            for event in instance.fetch_materializations(asset, limit=100).records:
                assert event.asset_materialization is not None
                known = event.asset_materialization.metadata
                entries = {k: v.value for k, v in known.items()}
                # A run that reuses a table makes no text of it anew.
                if entries.get(name) == value and not entries.get("reused"):
                    return entries
            raise AssertionError(f"{key} was not materialized with {name} {value}")

        yield metadata


def test_a_summary_fits_a_terminal_and_its_figures_are_those_of_the_tables(
    published: tuple[dict[str, Any], Release],
) -> None:
    movies, release = published
    text = terminal(movies["summary"])
    assert max(map(len, text.splitlines())) <= 80
    found = figures(text)
    report = release.snapshot("rater_report").read().filter(split="user", metric="rmse")
    errors = {name: row for (title, name), row in found.items() if title.startswith("Error")}
    assert len(errors) == 5
    for name, row in errors.items():
        (own,) = report.filter(predictor=name).select("value", "low", "high").rows()
        assert row == pytest.approx(own, abs=5e-4)
    (share,) = release.snapshot("population").read().filter(figure="item_person_share").to_dicts()
    row = found["Personas beside people", "item x person share of variance"]
    ends = ("value", "low", "high")
    wanted = [share[f"{side}_{end}"] for side in ("personas", "people") for end in ends]
    assert row == pytest.approx(wanted, abs=5e-4)


def test_the_card_shows_the_figures_of_the_terminal(
    published: tuple[dict[str, Any], Release],
) -> None:
    movies, release = published
    rows = [re.findall(r"-?\d+\.\d{3}", line) for line in release.card().splitlines()]
    for numbers in figures(terminal(movies["summary"])).values():
        assert [f"{n:.3f}" for n in numbers] in rows


def test_the_ui_shows_card_and_summary_of_the_release(
    published: tuple[dict[str, Any], Release], shown: Any
) -> None:
    movies, release = published
    entries = shown("releases/movies", "release", movies["release"])
    assert entries["card"] == release.card()
    assert figures(terminal(entries["summary"])) == figures(terminal(movies["summary"]))


def test_the_ui_shows_the_figures_of_the_reports(
    published: tuple[dict[str, Any], Release], shown: Any
) -> None:
    _, release = published
    report, population = (release.snapshot(name) for name in ("rater_report", "population"))
    text = shown("movies/rater_report", "version", report.version)["figures"]
    for row in report.read().filter(pl.col("metric") == "rmse").iter_rows(named=True):
        part = text.partition(f"Split `{row['split']}`")[2].partition("Split `")[0]
        cell = f"{row['value']:.4f} [{row['low']:.4f}, {row['high']:.4f}]"
        (line,) = (n for n in part.splitlines() if n.startswith(f"| {row['predictor']} |"))
        assert f" {cell} " in line
    text = shown("movies/population", "version", population.version)["figures"]
    for cells in population_rows(population.read()):
        assert f"| {' | '.join(cells)} |" in text
