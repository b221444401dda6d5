"""The code location: every asset says what it is, jobs and schedules are complete."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.assets import COHORTS
from orchestration.cli import WORKSPACE
from orchestration.dbt_project import manifest_path
from orchestration.definitions import build_defs
from orchestration.defs.jobs import REPORTS
from orchestration.instance import open_instance
from orchestration.naming import SHARED, asset_key
from pipelines.config import Settings
from pipelines.contracts import ABLATIONS, CONTRACTS, PUBLISHED
from pipelines.domains import DOMAINS
from pipelines.personas import OWN
from pipelines.warehouse import Project, dbt_vars

PARTS = ("raw", "tables", "scores", "reports")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    """dbt's manifest, which the first who asks for it parses."""
    parsed: dict[str, Any] = json.loads(manifest_path().read_text())
    return parsed


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    return build_defs(tmp_path_factory.mktemp("home"), executor=dg.in_process_executor)


@pytest.fixture(scope="module")
def specs(defs: dg.Definitions) -> list[dg.AssetSpec]:
    keys = {
        key
        for job in (
            "ingest",
            *DOMAINS,
            "match_personas",
            "caption_items",
            "ablations",
            "train_policy",
            "train_rater",
            "train_surrogate",
            "simulate",
            "experiments",
            "dialogues",
        )
        for key in defs.resolve_job_def(job).asset_layer.selected_asset_keys
    }
    return [spec for spec in defs.resolve_all_asset_specs() if spec.key in keys]


def test_the_definitions_are_loadable(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)


def test_every_asset_has_group_kinds_owner_description_and_code_version(
    specs: list[dg.AssetSpec],
) -> None:
    assert len(specs) > 30
    for spec in specs:
        name = spec.key.to_user_string()
        groups = {f"{d}_{p}" for d in (*DOMAINS, SHARED) for p in PARTS}
        groups |= {group for group, _ in REPORTS.values()}
        assert spec.group_name in groups, name
        assert spec.tags["domain"] in {*DOMAINS, SHARED}, name
        assert spec.kinds, name
        assert spec.owners, name
        assert spec.code_version, name
        assert spec.description, name


def test_every_domain_has_groups_from_raw_tables_to_its_release(
    specs: list[dg.AssetSpec],
) -> None:
    groups: dict[str | None, set[str]] = {}
    for spec in specs:
        groups.setdefault(spec.group_name, set()).add(spec.key.path[-1])
    for domain in DOMAINS:
        published = {name.partition(".")[2] for name in PUBLISHED if name.startswith(f"{domain}.")}
        assert published <= set().union(*(groups.get(f"{domain}_{p}", set()) for p in PARTS))
        assert {f"{domain}_items", "items", "interactions"} <= groups[f"{domain}_tables"]
        assert groups[f"{domain}_scores"] == {"score_plan", "preference_scores"}
        assert domain in groups[f"{domain}_reports"], "the release"
    assert "movielens_ratings" in groups["movies_raw"]
    assert "stg_movielens__ratings" in groups["movies_tables"]
    assert {"amazon_reviews_2018", "world_files"} <= groups[f"{SHARED}_raw"]


def test_code_locations_are_the_pipeline_and_what_no_release_waits_for(
    defs: dg.Definitions, tmp_path: Path
) -> None:
    pipeline, optional = (
        {
            spec.key: spec
            for spec in build_defs(tmp_path, part=part).resolve_all_asset_specs()
            if spec.group_name != "default"
        }
        for part in ("pipeline", "optional")
    )
    groups = {group for group, _ in REPORTS.values()}
    assert {spec.group_name for spec in optional.values()} == groups
    # Nobody misses data of their own where there is none.
    assert {spec.tags["domain"] for spec in pipeline.values()} == {*DOMAINS, SHARED} - {OWN}
    names = {dg.AssetKey(["releases", name]) for name in DOMAINS if name != OWN}
    graph = defs.resolve_asset_graph()
    assert dg.AssetSelection.assets(*names).upstream().resolve(graph) <= set(pipeline)
    assert [
        place["python_module"]["module_name"] for place in json.loads(WORKSPACE)["load_from"]
    ] == [
        "orchestration.definitions",
        "orchestration.optional",
    ]


def test_every_dataset_with_a_contract_is_an_asset(specs: list[dg.AssetSpec]) -> None:
    assert {asset_key(name) for name in CONTRACTS} <= {spec.key for spec in specs}


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_release_waits_for_every_published_table_of_its_domain(
    defs: dg.Definitions, domain: str
) -> None:
    graph = defs.resolve_asset_graph()
    parents = graph.get(dg.AssetKey(["releases", domain])).parent_keys
    own = {asset_key(name) for name in PUBLISHED if name.startswith(f"{domain}.")}
    shared = {asset_key(name) for name in PUBLISHED if "." not in name}
    assert parents == own | shared


def test_what_judges_a_release_is_a_job_of_its_own_that_no_run_of_the_domains_waits_for(
    defs: dg.Definitions,
) -> None:
    judged = {asset_key(name) for name in ABLATIONS}
    jobs = {
        name: defs.resolve_job_def(name).asset_layer.selected_asset_keys
        for name in ("ingest", "ablations", *DOMAINS)
    }
    assert jobs.pop("ablations") == judged
    assert not any(keys & judged for keys in jobs.values())


@pytest.mark.parametrize("report", REPORTS)
def test_jobs_on_published_tables_are_in_no_domain_and_not_in_everything(
    defs: dg.Definitions, report: str
) -> None:
    own = defs.resolve_job_def(report).asset_layer.selected_asset_keys
    assert own
    for name in ("ingest", *DOMAINS):
        assert not defs.resolve_job_def(name).asset_layer.selected_asset_keys & own, name


def test_what_touches_the_duckdb_file_shares_a_pool_of_one(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    for node in graph.asset_nodes:
        if node.key.path[0] in {"staging", "intermediate", "marts"}:
            assert node.pools == {"duckdb"}, node.key
    assert graph.get(asset_key("movies.items")).pools == {"duckdb"}


def test_every_published_table_has_a_blocking_check(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    blocking = {
        key.asset_key
        for key in graph.asset_check_keys
        if graph.get(key).blocking  # type: ignore[attr-defined]
    }
    assert {asset_key(name) for name in PUBLISHED} <= blocking


def test_dbt_tests_are_asset_checks(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    checked = {key.asset_key.path[0] for key in graph.asset_check_keys}
    assert {"staging", "marts"} <= checked


def test_every_check_says_what_it_is_about(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    silent = [k for k in graph.asset_check_keys if not graph.get(k).description]  # type: ignore[attr-defined]
    assert not silent


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_has_a_weekly_schedule_of_its_job_that_is_off(
    defs: dg.Definitions, domain: str
) -> None:
    schedule = defs.resolve_schedule_def(f"weekly_{domain}")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert schedule.cron_schedule == "0 4 * * 1"
    assert schedule.job_name == domain


@pytest.mark.parametrize(
    ("domain", "cohort"), [("movies", "2026-w48"), ("books", "books-2026-w48")]
)
def test_a_tick_of_the_schedule_adds_the_weeks_cohort(
    defs: dg.Definitions, domain: str, cohort: str
) -> None:
    with dg.instance_for_test() as instance:
        context = dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=datetime(2026, 11, 23, 4, tzinfo=UTC),
            repository_def=defs.get_repository_def(),
        )
        data = defs.resolve_schedule_def(f"weekly_{domain}").evaluate_tick(context)
        (request,) = data.run_requests or []
        assert request.partition_key == cohort
        assert instance.get_dynamic_partitions(str(COHORTS[domain].name)) == [cohort]


def test_an_instance_knows_the_configured_cohort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "")  # restored afterwards: `open_instance` sets it
    with open_instance(tmp_path, "default") as instance:
        assert instance.get_dynamic_partitions("movies_cohorts") == ["default"]
        assert (tmp_path / "dagster" / "dagster.yaml").exists()
        assert not instance.telemetry_enabled


def test_variables_that_a_group_of_models_reads_are_in_its_key(manifest: dict[str, Any]) -> None:
    project, macros = Project(manifest), manifest["macros"]
    for node, group in project.groups.items():
        used, todo = set(), [node]
        while todo:
            key = todo.pop()
            own = macros.get(key) or manifest["nodes"][key]
            used |= {*re.findall(r"\bvar\('(\w+)'", own.get("macro_sql") or own["raw_code"])}
            needs = own["depends_on"]["macros"]
            todo += [n for n in needs if n != key and n in macros and "understudy" in n]
        assert used <= project.key(group, {}, dbt_vars(Settings()))["vars"].keys(), node
