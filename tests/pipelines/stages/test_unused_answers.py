"""Stored answers go with the last table that came from them, and never before."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.small_release import conform, frames
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.config import ServingSettings, Settings
from pipelines.llm.answers import USES, AnswerStore, ask, recorded_uses
from pipelines.llm.engines import Message, Request
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.stages import Inputs, PipelineContext, Report, Stage, build, stage_of
from pipelines.store import Snapshot, Store

PERSONAS = "movies.personas"


def written(home: Path, cohort: str = "pilot", *, count: int = 4, **personas: Any) -> Snapshot:
    """A cohort written by a scripted model through the answer store of the home."""
    chosen = {"writer": "model", "gates": "none", "count": count, **personas}
    context = PipelineContext(
        {
            "runtime": {"home": str(home)},
            "engine": {"kind": "scripted"},
            "personas": chosen,
        }
    )
    return build(stage_of(PERSONAS), context, cohort=cohort).snapshots[PERSONAS]


def keys(home: Path) -> set[bytes]:
    with AnswerStore(home) as store:
        return {key for table in store.scan(["key"]) for key in table["key"].to_pylist()}


def gc(home: Path, *options: str) -> dict[str, int]:
    run = CliRunner().invoke(app, ["gc", "--home", str(home), "--grace", "0", "--json", *options])
    assert run.exit_code == 0, run.output
    return dict(json.loads(run.stdout)["answers"])


def asked_again(home: Path, folder: Path, **of: Any) -> int:
    """Answers that a home with these answers alone would have to pay for again."""
    shutil.copytree(home / "answers", folder / "answers")
    before = keys(folder)
    written(folder, **of)
    return len(keys(folder) - before)


def test_answers_go_with_the_last_version_that_asked_for_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = written(home, seed=1)
    old = keys(home)
    second = written(home, seed=2)
    new = keys(home) - old
    assert old
    assert new
    listed = gc(home, "--dry-run")
    assert keys(home) == old | new
    assert listed == gc(home) == {
        "removed": len(old), "attributed": len(new), "unattributed": 0,
    }  # fmt: skip
    assert keys(home) == new
    assert Store(home).versions(PERSONAS) == [second.version] != [first.version]
    assert asked_again(home, tmp_path / "copy", seed=2) == 0
    assert gc(home)["removed"] == 0


def test_answers_that_two_versions_asked_for_stay_with_either(tmp_path: Path) -> None:
    home = tmp_path / "home"
    written(home, count=4)
    shared = keys(home)
    written(home, count=6)
    assert shared < keys(home)
    assert gc(home) == {"removed": 0, "attributed": len(keys(home)), "unattributed": 0}
    assert asked_again(home, tmp_path / "copy", count=6) == 0


def test_other_cohorts_of_a_new_version_keep_their_answers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    written(home, "a")
    written(home, "b", seed=1)
    kept = keys(home)
    lost = written(home, "c", seed=3)
    # Cohort b is written anew: its first answers go, those of a and c came along.
    before = keys(home)
    written(home, "b", seed=2)
    found = gc(home)
    assert lost.version not in Store(home).versions(PERSONAS)
    assert 0 < found["removed"] < len(before)
    for number, (cohort, seed) in enumerate([("a", 0), ("b", 2), ("c", 3)]):
        copy = tmp_path / f"copy-{number}"
        options = {"seed": seed} if seed else {}
        assert asked_again(home, copy, cohort=cohort, **options) == 0, cohort
    assert asked_again(home, tmp_path / "copy-b", cohort="b", seed=1) > 0
    assert len(kept - keys(home)) == found["removed"]


def test_pinned_release_keeps_the_answers_of_its_tables(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = Store(home)
    pinned = written(home, seed=1)
    store.publish("movies", {"personas": pinned}, world="t", required={}, card="#", settings={})
    written(home, seed=2)
    assert gc(home)["removed"] == 0
    assert asked_again(home, tmp_path / "copy", seed=1) == 0


def _ask(home: Path, *questions: str) -> int:
    """Ask outside of any table; calls of the engine."""
    engine = ScriptedEngine(lambda request: "Yes.", name="demo")
    requests = [Request((Message("user", text),)) for text in questions]
    before = keys(home)
    with AnswerStore(home) as store:
        assert len(list(ask(engine, requests, store, serving=ServingSettings()))) == len(requests)
    return len(keys(home) - before)


def _table(home: Path, name: str, questions: list[str]) -> dict[str, Any]:
    """Facts of a table that was made of the answers to some questions."""
    with recorded_uses(home, name) as uses:
        _ask(home, *questions)
        return {USES: {"": uses.end()}}


def _drop(home: Path, kept: list[dict[str, Any]], gone: list[dict[str, Any]]) -> Any:
    names = ([n for facts in some for n in facts[USES][""]] for some in (kept, gone))
    with AnswerStore(home) as store:
        return store.gc_unused(*names)


def test_rows_that_are_carried_over_keep_their_answers(tmp_path: Path) -> None:
    home, frame = tmp_path, conform(PERSONAS, frames()[PERSONAS])
    context = PipelineContext({"runtime": {"home": str(home)}})

    def built(version: str, question: str, *, carried: bool) -> None:
        def make(inputs: Inputs, settings: Settings, report: Report) -> pl.DataFrame:
            report.carried = carried
            _ask(home, question)
            return frame.with_columns(
                description=pl.lit(f"Sees films often; as of version {version} of this test.")
            )

        stage = Stage(datasets=(PERSONAS,), code_version=version, make=make, by_cohort=True)
        build(stage, context, cohort="default")

    built("1", "a", carried=False)
    built("2", "b", carried=True)
    assert gc(home) == {"removed": 0, "attributed": 2, "unattributed": 0}
    built("3", "c", carried=False)
    assert gc(home) == {"removed": 2, "attributed": 1, "unattributed": 0}


def test_what_was_asked_outside_of_tables_is_kept_and_counted(tmp_path: Path) -> None:
    facts = _table(tmp_path, "t", ["a", "b", "c"])
    _ask(tmp_path, "c", "d")
    found = _drop(tmp_path, [], [facts])
    assert (found.removed, found.attributed, found.unattributed) == (2, 0, 2)
    assert _ask(tmp_path, "c", "d") == 0
    assert _ask(tmp_path, "a") == 1


def test_what_a_killed_build_asked_for_is_kept_until_the_next_one_takes_it_over(
    tmp_path: Path,
) -> None:
    with recorded_uses(tmp_path, "t"):
        _ask(tmp_path, "a")
    assert _drop(tmp_path, [], []).unattributed == 1
    facts = _table(tmp_path, "t", ["b"])
    assert len(facts[USES][""]) == 2
    assert _drop(tmp_path, [facts], []).attributed == 2
    assert _drop(tmp_path, [], [facts]).removed == 2


def test_answers_from_before_the_records_are_never_removed(tmp_path: Path) -> None:
    _ask(tmp_path, "a")
    shutil.rmtree(tmp_path / "answers" / "uses")
    facts = _table(tmp_path, "t", ["a", "b"])
    found = _drop(tmp_path, [], [facts])
    assert (found.removed, found.unattributed) == (1, 1)
    assert _ask(tmp_path, "a") == 0


def test_records_of_processes_are_merged_and_still_hold(tmp_path: Path) -> None:
    facts = _table(tmp_path, "t", ["a"])
    folder = tmp_path / "answers" / "uses" / "elsewhere"
    _ask(tmp_path, "a")
    (own,) = folder.iterdir()
    own.rename(folder / "another-process.keys")
    _ask(tmp_path, "x")
    assert _drop(tmp_path, [], []).removed == 0
    assert len(list(folder.iterdir())) == 1
    assert _drop(tmp_path, [], [facts]).removed == 0


def test_gc_of_a_home_without_answers_makes_none(tmp_path: Path) -> None:
    assert gc(tmp_path / "home", "--dry-run") == {"removed": 0, "attributed": 0, "unattributed": 0}
    assert not (tmp_path / "home" / "answers").exists()


@pytest.mark.parametrize("broken", ["since.json"])
def test_records_that_cannot_be_read_stop_the_removal(tmp_path: Path, broken: str) -> None:
    written(tmp_path, seed=1)
    written(tmp_path, seed=2)
    before = keys(tmp_path)
    path = tmp_path / "answers" / "uses" / broken
    path.chmod(0o644)
    path.write_text("{")
    run = CliRunner().invoke(app, ["gc", "--home", str(tmp_path), "--grace", "0"])
    assert run.exit_code != 0
    assert keys(tmp_path) == before
    assert len(Store(tmp_path).versions(PERSONAS)) == 2
    assert Store(tmp_path).collect_garbage(grace=timedelta(0), dry_run=True).versions
