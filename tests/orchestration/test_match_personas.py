"""The job `match_personas`: personas of every domain with their checks, from published tables."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from support.small_release import commit_users

from orchestration.definitions import build_defs
from pipelines.contracts import MATCHED_DOMAINS
from pipelines.store import Store

pytestmark = pytest.mark.pipeline

CHECKS = {
    "matched_personas": {"one_persona_per_user", "training_rows_only", "null_share_by_basis"},
    "persona_candidates": {"scores_recomputable", "best_is_chosen", "users_matched"},
}
SETTINGS = {"users": 9, "items": 6, "subset_size": 4, "others": 5}


def test_the_job_matches_users_of_every_domain(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for domain in MATCHED_DOMAINS:
        # The sources of books and games tell nothing of their users.
        commit_users(store, domain, stated=domain == "movies")
    defs = build_defs(tmp_path, executor=dg.in_process_executor, overrides={"matching": SETTINGS})
    with dg.instance_for_test() as instance:
        job = defs.resolve_job_def("match_personas")
        result = job.execute_in_process(instance=instance)
        assert result.success
        made = {
            e.asset_key.to_user_string(): e.step_materialization_data.materialization.metadata
            for e in result.all_events
            if e.is_step_materialization and e.asset_key is not None
        }
        checks = {
            (c.asset_key.to_user_string(), c.check_name): c.passed
            for c in result.get_asset_check_evaluations()
        }
    assert len(made) == 6
    for domain, basis in (("movies", "fitted"), ("books", "none"), ("games", "none")):
        for table, names in CHECKS.items():
            for name in names:
                assert checks[f"{domain}/{table}", name], (domain, name)
        rows = store.current(f"{domain}.matched_personas").read()
        assert rows["user_id"].n_unique() == rows.height == 9
        assert set(rows["basis"]) == {basis}
        assert rows["age_band"].null_count() == (0 if basis == "fitted" else 9)
    figures = made["movies/matched_personas"]["figures"].value
    assert "majority" in figures
    assert "assumed.yaml" in figures


def test_a_changed_score_fails_the_check(tmp_path: Path) -> None:
    from pipelines.context import PipelineContext
    from pipelines.stages import build, check, stage_of

    commit_users(Store(tmp_path))
    context = PipelineContext({"runtime": {"home": str(tmp_path)}, "matching": SETTINGS})
    build(stage_of("movies.matched_personas"), context)
    store = Store(tmp_path)
    rows = store.current("movies.persona_candidates").read()
    store.commit(
        "movies.persona_candidates",
        rows.with_columns(score=pl.col("score") + 0.5),
        code_version="test",
    )
    failed = {r.name for r in check(context, "movies.persona_candidates") or [] if r.blocks}
    assert failed == {"scores_recomputable"}


@pytest.mark.parametrize("table", ["score_plan", "preference_scores"])
def test_matched_cohorts_are_scored_only_on_request(table: str) -> None:
    from pipelines.config import Settings
    from pipelines.stages import stage_of

    left_out = stage_of(f"movies.{table}").left_out
    assert left_out is not None
    assert "matching.scored is false" in str(left_out(Settings(), "matched"))
    assert left_out(Settings(matching={"scored": True}), "matched") is None
    assert left_out(Settings(), "default") is None


def test_a_release_takes_matches_of_its_own_tables_only(tmp_path: Path) -> None:
    from pipelines.context import PipelineContext
    from pipelines.domains import DOMAINS
    from pipelines.stages import build, check, s90_releases, stage_of

    store = Store(tmp_path)
    commit_users(store)
    context = PipelineContext({"runtime": {"home": str(tmp_path)}, "matching": SETTINGS})
    made = build(stage_of("movies.matched_personas"), context).snapshots
    own = {name: store.current(name) for name in store.datasets() if name not in made}
    # Their checks are steps of another run: a release in between is made without the tables.
    assert s90_releases._further(context, DOMAINS["movies"], own) == {}
    for name in made:
        check(context, name)
    found = s90_releases._further(context, DOMAINS["movies"], own)
    assert {n: s.version for n, s in found.items()} == {n: s.version for n, s in made.items()}
    rows = store.current("movies.splits").read().with_columns(split=pl.lit("train"))
    own["movies.splits"] = store.commit("movies.splits", rows, code_version="test")
    assert s90_releases._further(context, DOMAINS["movies"], own) == {}
