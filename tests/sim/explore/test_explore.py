"""The files of a site over a small release."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from PIL import Image
from support.dialogue_release import publish
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.config import Settings
from pipelines.errors import ConfigError
from sim import open_release
from sim.dialogue.testing import sample_world
from sim.explore import VIEWS, explore


@pytest.fixture(scope="module")
def site_home(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a release of films, whose people are matched, and one of products."""
    folder = tmp_path_factory.mktemp("explore") / "home"
    small.build(folder, replace=small.matched_frames())
    publish(folder, sample_world(sets=6, personas=40))
    return folder


def settings(home: Path) -> Settings:
    return Settings(runtime={"home": home})


def content(site: Path, name: str) -> Any:
    """The value that a data file hands to the page."""
    text = (site / "data" / f"{name}.js").read_text("utf-8")
    assert text.startswith(f'understudy("{name}",')
    assert text.endswith(");\n")
    return json.loads(text[len(f'understudy("{name}",') : -len(");\n")])


@pytest.fixture(scope="module")
def site(site_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    release = open_release("movies@latest", home=site_home)
    explore(release, folder, settings(site_home), number=8)
    return folder


def test_page_and_data_of_every_view_are_written(site: Path) -> None:
    index = content(site, "index")
    assert set(index["views"]) <= set(VIEWS)
    assert {"people", "visits", "dialogues"} <= set(index["views"])
    for name, rows in index["views"].items():
        assert len(content(site, name)["rows"]) == rows > 0
    page = (site / "index.html").read_text("utf-8")
    scripts = [part.partition('"')[0] for part in page.split('src="')[1:]]
    assert all((site / script).is_file() for script in scripts)
    assert not (site / "_staging").exists()
    assert "Apache License" in (site / "LICENCES.txt").read_text("utf-8")


def test_ratings_of_a_persona_are_from_best_to_worst_with_reasons(site: Path) -> None:
    index, people = content(site, "index"), content(site, "people")
    assert people["scale"]["answers"] == [1, 2, 3, 4, 5]
    for person in people["rows"]:
        expected = [rating["expected"] for rating in person["ratings"]]
        assert expected == sorted(expected, reverse=True)
        assert all(sum(rating["p"]) == pytest.approx(1, abs=1e-3) for rating in person["ratings"])
        assert all(0 <= rating["item"] < len(index["items"]) for rating in person["ratings"])
        alike = [cosine for _, cosine in person["near"]]
        assert alike == sorted(alike, reverse=True)
    reasons = [rating["why"] for person in people["rows"] for rating in person["ratings"]]
    assert {"quality", "agreement"} & {name for why in reasons for name in why}


def test_visits_hold_pages_with_what_was_watched_and_why(site: Path) -> None:
    for visit in content(site, "visits")["rows"]:
        assert visit["exit_reason"] in ("chosen", "limit")
        assert visit["who"]["persona_id"].startswith("persona:")
        assert max(page["page"] for page in visit["pages"]) >= visit["exit_page"]
        for page in visit["pages"]:
            assert page["items"]
            for item in page["items"]:
                assert (item["rating"] is not None) == item["watched"]
                assert item["reason"]


def test_dialogues_hold_the_shelf_and_the_regret_of_each_turn(site: Path) -> None:
    for dialogue in content(site, "dialogues")["rows"]:
        scores = {product["id"]: product["score"] for product in dialogue["shelf"]}
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        sold = scores[dialogue["item_id"]]
        assert max(scores.values()) - sold == pytest.approx(dialogue["regret"], abs=0.11)
        probed = {t["turn"] for t in dialogue["turns"] if t["regret"] is not None}
        assert probed >= set(range(1, dialogue["questions"] + 1))


def test_titles_are_data_and_stay_as_they_are(site: Path) -> None:
    titles = {item["id"]: item["title"] for item in content(site, "index")["items"]}
    assert titles.get("ml:24", "The [bold]Bracket[/bold] & Söhne").startswith("The [bold]")


def test_second_site_replaces_the_first(small: ModuleType, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "site"
    small.build(home, without=("splits", "graph_triples"))
    release = open_release("movies@latest", home=home)
    for number in (1, 3):
        written = explore(release, folder, settings(home), number=number)
        # Neither agents nor a graph: what the release lacks has no view, and a reason.
        assert written["views"] == {"people": number} == content(folder, "index")["views"]
        assert {*written["absent"], *written["views"]} == {*VIEWS, "reasons of ratings"}
        assert "splits" in written["absent"]["visits"]
        assert written["absent"] == content(folder, "index")["absent"]


def test_folder_with_other_files_is_refused(site_home: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine", "utf-8")
    release = open_release("movies@latest", home=site_home)
    with pytest.raises(ConfigError, match=r"letter\.txt"):
        explore(release, tmp_path, settings(site_home))


def test_columns_and_posters_need_consent(small: ModuleType, tmp_path: Path) -> None:
    home, world = tmp_path / "home", tmp_path / "world"
    small.build(home, world="ml-latest-small", without=("splits", "graph_triples"))
    (world / "posters").mkdir(parents=True)
    for n in range(1, 25):
        Image.new("RGB", (500, 750), "red").save(world / "posters" / f"{n}.jpg")
    release = open_release("movies@latest", home=home)
    chosen = Settings(runtime={"home": home}, world={"folder": world})
    shared = explore(release, tmp_path / "shared", chosen, number=1)
    assert {"actors", "directors", "overview"} <= set(shared["left_out"])
    assert not (tmp_path / "shared" / "posters").exists()
    private = explore(release, tmp_path / "private", chosen, number=1, texts=True)
    assert private["left_out"] == []
    posters = [item["poster"] for item in content(tmp_path / "private", "index")["items"]]
    with Image.open(tmp_path / "private" / posters[0]) as image:
        assert image.size == (240, 360)


def test_ratings_of_a_persona_in_two_releases(small: ModuleType, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "site"
    lean = ("splits", "graph_triples")
    small.build(home, without=lean)
    first = open_release("movies@latest", home=home)
    scores = small.frames()["movies.preference_scores"].with_columns(
        expected=pl.when(pl.col("persona_id") == "persona:default:0").then(3).otherwise("expected")
    )
    small.build(home, without=lean, replace={"movies.preference_scores": scores})
    release = open_release("movies@latest", home=home)
    explore(first, folder, settings(home), beside=release, number=1)
    view = content(folder, "beside")
    assert (view["a"], view["b"]) == (first.ref, release.ref)
    assert {row["table"]: row["status"] for row in view["rows"]}["preference_scores"] == "changed"
    (person,) = view["people"]
    assert (person["name"], person["expected"], person["expected_after"]) == ("Ada", 1, 3)


def test_run_on_another_release_is_refused(site_home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text('{"release": "movies@0000"}', "utf-8")
    for table in ("agents", "views", "pages", "memories"):
        pl.DataFrame({"agent": [0]}).write_parquet(run / f"{table}.parquet")
    release = open_release("movies@latest", home=site_home)
    with pytest.raises(ConfigError, match="movies@0000"):
        explore(release, tmp_path / "site", settings(site_home), simulation=run)


def test_the_command_writes_the_site(site_home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    words = ["explore", "movies", "--home", str(site_home), "--out", str(folder), "--json"]
    result = CliRunner().invoke(app, [*words, "--personas", "2"])
    assert result.exit_code == 0, result.output
    payload = json.loads(result.stdout)
    assert payload["views"]["people"] == 2
    assert payload["bytes"] == sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
