"""Stored answers go with the last version of their table's cohort, and never before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, answers_of, ask
from pipelines.llm.engines import Message, Request
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.stages import PipelineContext, build, stage_of
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


def keys(home: Path) -> set[str]:
    with AnswerStore(home) as store:
        return {answer.key for answer in store.rows()}


def gc(home: Path, *options: str) -> dict[str, int]:
    run = CliRunner().invoke(app, ["gc", "--home", str(home), "--grace", "0", "--json", *options])
    assert run.exit_code == 0, run.output
    return dict(json.loads(run.stdout)["answers"])


def test_answers_of_a_cohort_stay_while_one_of_its_versions_does(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = written(home, "a", seed=1)
    written(home, "b")
    both = keys(home)
    last = written(home, "a", seed=2)
    assert gc(home) == {"removed": 0, "attributed": len(keys(home)), "unattributed": 0}
    assert both < keys(home)
    versions = Store(home).versions(f"{PERSONAS}-a")
    assert versions == [last.snapshots[0].version] != [first.snapshots[0].version]


def test_answers_go_with_the_last_version_that_has_the_cohort(tmp_path: Path) -> None:
    home = tmp_path / "home"
    written(home, "a")
    gone = keys(home)
    Store(home).withdraw(PERSONAS)
    written(home, "b", seed=1)
    kept = keys(home) - gone
    expected = {"removed": len(gone), "attributed": len(kept), "unattributed": 0}
    assert gc(home, "--dry-run") == expected
    assert keys(home) == gone | kept
    assert gc(home) == expected
    assert keys(home) == kept


def test_pinned_release_keeps_the_answers_of_its_tables(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = Store(home)
    pinned = written(home, "a", seed=1)
    store.publish("movies", {"personas": pinned}, world="t", required={}, card="#", settings={})
    store.withdraw(PERSONAS)
    written(home, "b", seed=2)
    assert gc(home)["removed"] == 0


def _ask(home: Path, *questions: str) -> None:
    """Ask outside of any table."""
    engine = ScriptedEngine(lambda request: "Yes.", name="demo")
    requests = [Request((Message("user", text),)) for text in questions]
    with AnswerStore(home) as store:
        assert len(list(ask(engine, requests, store, serving=ServingSettings()))) == len(requests)


def test_what_was_asked_outside_of_tables_or_by_a_killed_build_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    written(home)
    _ask(home, "a", "b")
    with answers_of(home, "movies.preference_scores", "default"):
        _ask(home, "c")
    assert gc(home)["unattributed"] == 3
