"""Cohorts in the store: made alone, kept beside the others, equal whenever they are made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.config import Settings, load_settings
from pipelines.contracts import CONTRACTS
from pipelines.domains import cohort_domain
from pipelines.errors import ConfigError, LockedError
from pipelines.llm.answers import AnswerStore
from pipelines.stages import PipelineContext, build, check, stage_of
from pipelines.store import Snapshot, Store
from pipelines.store.locks import mutex


def _write(home: Path, cohort: str, count: int = 20) -> Snapshot:
    settings = Settings(personas={"count": count}, runtime={"home": str(home)})
    context = PipelineContext.of(Store(home), settings)
    dataset = f"{cohort_domain(cohort)}.personas"
    return build(stage_of(dataset), context, cohort=cohort).snapshots[dataset]


@pytest.mark.parametrize(
    ("cohort", "domain"),
    [
        ("books-pilot", "books"),
        ("games", "games"),
        ("pilot", "movies"),
        ("handmade-books", "books"),
    ],
)
def test_cohort_name_decides_the_domain(tmp_path: Path, cohort: str, domain: str) -> None:
    snapshot = _write(tmp_path, cohort, 3)
    assert snapshot.dataset == f"{domain}.personas"
    assert set(snapshot.read()["domain"]) == {domain}


def test_stage_of_another_domain_leaves_the_cohort_out(tmp_path: Path) -> None:
    context = PipelineContext.of(Store(tmp_path), Settings(runtime={"home": str(tmp_path)}))
    left_out = build(stage_of("games.personas"), context, cohort="books-pilot")
    assert left_out.reason == "books-pilot is not a cohort of the games"
    assert not context.store.has("games.personas")


def test_handmade_people_are_a_cohort_like_others(tmp_path: Path) -> None:
    made = _write(tmp_path, "handmade-movies")
    assert set(made.read()["origin"]) == {"handmade"}
    assert made.manifest.stats["cohorts"] == {"handmade-movies": made.rows}
    assert made.rows >= 40


def test_an_imported_cohort_needs_files(tmp_path: Path) -> None:
    games = tmp_path / "data" / "steam" / "steam_games.json"
    games.parent.mkdir(parents=True)
    games.write_bytes(b"{'id': '10', 'app_name': 'Game'}\n")
    games.with_name("australian_user_reviews.json").write_bytes(
        b"{'user_id': 'a', 'reviews': []}\n"
    )
    home = str(tmp_path / "home")
    context = PipelineContext(
        {"world": {"folder": str(tmp_path / "data")}, "runtime": {"home": home}}
    )
    with pytest.raises(ConfigError, match="no persona files to import"):
        build(stage_of("movies.personas"), context, cohort="imported")
    assert not context.store.has("movies.personas")


def _imported(tmp_path: Path, **options: Any) -> tuple[Snapshot, PipelineContext]:
    """Three personas of a file, written as the cohort `imported`."""
    folder = tmp_path / "data"
    (folder / "steam").mkdir(parents=True, exist_ok=True)
    (folder / "steam" / "steam_games.json").write_bytes(b"{'id': '10', 'app_name': 'Game'}\n")
    (folder / "steam" / "australian_user_reviews.json").write_bytes(
        b"{'user_id': 'a', 'reviews': []}\n"
    )
    (folder / "personas").mkdir(exist_ok=True)
    life = (
        "Lives near a river with two friends, an old dog and more plants than the rooms can hold."
    )
    texts = (f"{life} Adores comedies and hates horror.", life, f"{life} A harsh critic.")
    (folder / "personas" / "people.txt").write_text("\n".join(texts) + "\n")
    settings = {"world": {"folder": str(folder)}, "runtime": {"home": str(tmp_path / "home")}}
    context = PipelineContext({**settings, **options})
    made = build(stage_of("movies.personas"), context, cohort="imported")
    return made.snapshots["movies.personas"], context


def test_a_model_reads_imported_texts_in_their_stage(tmp_path: Path, tiny_model: Path) -> None:
    engine = {"kind": "transformers", "model": str(tiny_model)}
    table, context = _imported(tmp_path, personas={"reader": "model"}, engine=engine)
    found = table.read()
    CONTRACTS["movies.personas"].validate(found)
    reader = table.manifest.stats["reader"]["imported"]
    stated = found.filter(
        (pl.col("likes").list.len() > 0)
        | (pl.col("dislikes").list.len() > 0)
        | pl.col("leniency").is_not_null()
        | pl.col("manner").is_not_null()
    )
    assert (reader["texts"], reader["read"]) == (3, stated.height)
    # Two named genres, and leniency and manner of each: answers are kept for the next run.
    answers = AnswerStore(tmp_path / "home", context.settings.serving)
    assert answers.stats().answers == 2 + 3 * 2
    answers.close()
    assert _imported(tmp_path, personas={"reader": "model"}, engine=engine)[0] == table


def test_rules_leave_imported_fields_to_the_raters(tmp_path: Path) -> None:
    table, _ = _imported(tmp_path)
    assert table.read()["likes"].list.len().sum() == 0
    assert table.manifest.stats["reader"] == {"imported": {}}


def test_two_processes_don_t_make_one_cohort_at_once(tmp_path: Path) -> None:
    lock = tmp_path / "_locks" / "movies.personas-a.lock"
    with mutex(lock), pytest.raises(LockedError, match=r"is writing movies\.personas of a"):
        _write(tmp_path, "a")
    assert _write(tmp_path, "a").rows == 20


def test_name_that_no_id_can_have_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a cohort's name.*My cohort!.*lower-case"):
        _write(tmp_path, "My cohort!")
    with pytest.raises(ConfigError, match=r"personas.cohort takes lower-case.*, not My_cohort"):
        load_settings(overrides={"personas": {"cohort": "My_cohort"}})


def test_the_command_writes_checks_and_shows_a_cohort(tmp_path: Path) -> None:
    home = ["--home", str(tmp_path)]
    words = ["personas", "write", "--cohort", "pilot", "--n", "120", *home]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "persona:pilot:0000000" in result.output
    assert "0 failed" in result.output
    store = Store(tmp_path)
    snapshot = store.current("movies.personas")
    assert snapshot.scan().filter(pl.col("cohort") == "pilot").collect().height == 120
    assert store.checks("movies.personas", snapshot.version)["clean_language"].passed
    words = ["personas", "show", "persona:pilot:0000007", *home, "--json"]
    shown = json.loads(CliRunner().invoke(app, words).stdout)
    assert (shown["cohort"], shown["count"]) == ("pilot", 120)
    assert [row["persona_id"] for row in shown["personas"]] == ["persona:pilot:0000007"]
    refused = CliRunner().invoke(app, ["personas", "show", "--cohort", "other", *home])
    assert refused.exit_code == 2
    assert "no cohort other" in refused.stderr


def test_planned_size_does_not_apply_to_handmade_cohorts_alone(tmp_path: Path) -> None:
    _write(tmp_path, "handmade-movies")
    settings = Settings(runtime={"home": str(tmp_path)})
    records = check(PipelineContext.of(Store(tmp_path), settings), "movies.personas") or []
    (size,) = [r for r in records if r.name == "cohort_size"]
    assert size.passed is None
    assert size.details["message"].endswith("every cohort is imported, hand-made or matched")
    assert not [r.name for r in records if r.blocks]
